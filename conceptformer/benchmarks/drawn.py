"""The held-out pages of the project's own drawings."""

from __future__ import annotations

from dataclasses import dataclass

from conceptformer.data.retrieval_files import read_retrieval_folder
from conceptformer.drawn import DrawnPages
from conceptformer.records import OnProgress, RetrievalTask


@dataclass(frozen=True)
class Drawn:
    """Pages drawn on the spot, those for training with them, since each needs to know the other.

    Attributes:
        drawing: What to draw, and where.
    """

    drawing: DrawnPages

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """Draw the pages unless they are there, and read the held-out ones.

        Args:
            on_progress: Called with (done, all) as pages are drawn.

        Raises:
            DataError: The folder holds other files, or damaged ones.
            StoreError: The disk is full or the folder cannot be written.
        """
        return read_retrieval_folder(self.drawing.write(on_progress).held_out, skip_bad_rows=False)
