"""The drawn data set: its settings, and the training file, the held-out task and the page images that they make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from pathlib import Path

import PIL

from conceptformer.drawn.drawing import CELL, COLOURS, MARGIN
from conceptformer.drawn.folder import DrawingFolder, alone
from conceptformer.drawn.pages import Sheet, Standing
from conceptformer.drawn.plan import PlannedPage, SplitPlan
from conceptformer.drawn.queries import vocabulary
from conceptformer.drawn.things import FORMS, WORDS, all_things
from conceptformer.errors import DataError
from conceptformer.records import OnProgress

DRAWING_VERSION = 1
"""Part of the manifest: to be raised when the same settings give other pages or queries than before."""

TRAIN_IMAGES = "train/images"
HELD_OUT_IMAGES = "held_out/images"


@dataclass(frozen=True)
class DrawnFolders:
    """Where a drawing lies.

    Attributes:
        train: JSONL file of training pairs; a row has query_id, query, page_id, image (relative to the file), boxes,
            labels and frame.
        held_out: Folder of a retrieval task: pages.jsonl with page_id and image, queries.jsonl with query_id, query,
            relevant (page ids), boxes (by page id) and frame.
    """

    train: Path
    held_out: Path


@dataclass(frozen=True)
class DrawnPages:
    """A drawing by its settings. Equal settings give equal files, byte for byte, with one version of Pillow.

    A query names some of the things of one page. It is unambiguous by construction: no other page of its split holds
    all the things that it names, so every other page of the split is a true negative. Both splits use the same
    sentences and equally many names, and no held-out page holds the same things as a training page.

    Attributes:
        folder: Where the drawing is, or is to be made.
        pages: Of the training split.
        held_out_pages: Pages, and queries, of the held-out split.
        queries_per_page: Of the training split.
        jitter: Largest distance, in pixels per axis, of a thing from the middle of its cells; at most ``MARGIN``, so
            that it stays inside them.
        image_size: (width, height) in pixels, multiples of ``CELL``.
        things_per_page: Fewest and most things on a page.
        names_per_query: Fewest and most names in a query. Few names often fit several pages of a large split; the
            query then gets as many more as it takes.
        colours, shapes, words: How many of the known ones are used; fewer make an easier task.
        variants: Pictures of each thing, which differ in what its name leaves open (size, ink, numbers, bars, slices).

    Raises:
        DataError: A setting makes no sense.
    """

    folder: Path
    _: KW_ONLY
    pages: int = 6000
    held_out_pages: int = 200
    queries_per_page: int = 1
    seed: int = 0
    jitter: int = 2
    image_size: tuple[int, int] = (168, 224)
    things_per_page: tuple[int, int] = (4, 7)
    names_per_query: tuple[int, int] = (2, 3)
    colours: int = len(COLOURS)
    shapes: int = len(FORMS)
    words: int = len(WORDS)
    variants: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        for name in ("image_size", "things_per_page", "names_per_query"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        self._check()

    def vocabulary(self) -> list[str]:
        """Texts that hold every word and sign of every query; a tokenizer can be trained on them."""
        return vocabulary(self._sheet.things)

    def write(self, on_progress: OnProgress | None = None) -> DrawnFolders:
        """Draw what is missing; nothing where the folder holds exactly this drawing, whole.

        After a kill the next call goes on where the last one stopped. A drawing with other settings is replaced. Where
        several processes call this, one draws and the others wait.

        Args:
            on_progress: Called with the pages drawn so far in this run and the number to draw, first with 0.

        Raises:
            DataError: So many pages cannot be told apart, things do not fit on a page, or the folder holds other files.
            StoreError: The disk is full or the folder cannot be written; what is complete is kept.
        """
        with alone(self.folder):
            return self._write(on_progress)

    def _write(self, on_progress: OnProgress | None) -> DrawnFolders:
        drawing = DrawingFolder(self.folder, self._facts(), (TRAIN_IMAGES, HELD_OUT_IMAGES))
        folders = DrawnFolders(self.folder / "train" / "train.jsonl", self.folder / "held_out")
        if drawing.is_complete():
            return folders
        train, held_out = self._settle()
        drawing.begin()
        images = [(f"{TRAIN_IMAGES}/{page.page_id}.png", page) for page in train]
        images += [(f"{HELD_OUT_IMAGES}/{page.page_id}.png", page) for page in held_out]
        missing = [(name, page) for name, page in images if not drawing.holds(name)]
        for done, (name, page) in enumerate(missing):
            if on_progress is not None:
                on_progress(done, len(missing))
            drawing.write(name, self._sheet.draw(page.standing, page.paper))
        if on_progress is not None:
            on_progress(len(missing), len(missing))
        drawing.write("train/train.jsonl", _lines(self._training_rows(train)))
        drawing.write("held_out/pages.jsonl", _lines([_page_row(page) for page in held_out]))
        drawing.write("held_out/queries.jsonl", _lines([_query_row(page) for page in held_out]))
        drawing.finish()
        return folders

    @cached_property
    def _sheet(self) -> Sheet:
        things = all_things(colours=self.colours, shapes=self.shapes, words=self.words)
        return Sheet(things, self.image_size, self.jitter, self.variants, self.seed)

    def _settle(self) -> tuple[list[PlannedPage], list[PlannedPage]]:
        """The pages of the training split and of the held-out split."""
        lots = (self.things_per_page, self.names_per_query)
        train_plan = SplitPlan("train", self._sheet, self.seed, self.pages, self.queries_per_page, *lots)
        train = train_plan.settle(lambda random: random.randint(*self.names_per_query))
        # A large split needs more names than a small one; held-out queries shall not be of a kind never trained on.
        lengths = [len(query.named) for page in train for query in page.queries]
        held_out_plan = SplitPlan("held-out", self._sheet, self.seed, self.held_out_pages, 1, *lots)
        forbidden = {page.things for page in train}
        return train, held_out_plan.settle(lambda random: random.choice(lengths), forbidden=forbidden)

    def _training_rows(self, pages: Sequence[PlannedPage]) -> list[dict[str, object]]:
        return [
            {
                "query_id": query.query_id,
                "query": query.text,
                "page_id": page.page_id,
                "image": f"images/{page.page_id}.png",
                "boxes": _boxes(query.named),
                "labels": [self._sheet.things[one.thing].name for one in query.named],
                "frame": "absolute",
            }
            for page in pages
            for query in page.queries
        ]

    def _facts(self) -> dict[str, object]:
        """Everything that decides the files' content, as JSON holds it."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "folder"}
        return json.loads(json.dumps({"drawing version": DRAWING_VERSION, "pillow": PIL.__version__, **settings}))

    def _check(self) -> None:
        limits = {
            "pages": (1, None),
            "held_out_pages": (1, None),
            "queries_per_page": (1, None),
            "jitter": (0, MARGIN),
            "colours": (1, len(COLOURS)),
            "shapes": (1, len(FORMS)),
            "words": (0, len(WORDS)),
            "variants": (1, None),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value < least or (most is not None and value > most):
                expected = f"at least {least}" if most is None else f"{least} to {most}"
                raise DataError(f"{name}: expected {expected}, got {value}; change the setting")
        if any(side < 2 * CELL or side % CELL for side in self.image_size):
            width, height = self.image_size
            raise DataError(f"image_size: expected multiples of {CELL} from {2 * CELL} up, got {width} x {height}")
        things, names = self.things_per_page, self.names_per_query
        if not 1 <= names[0] <= names[1] <= things[0] <= things[1] <= len(self._sheet.things):
            raise DataError(
                f"things_per_page, names_per_query: expected 1 <= fewest names <= most names <= fewest things <= most "
                f"things <= {len(self._sheet.things)}, got names {names[0]} to {names[1]}, things {things[0]} to "
                f"{things[1]}; change them"
            )


def _pair(name: str, value: Sequence[int]) -> tuple[int, int]:
    if len(value) != 2:
        raise DataError(f"{name}: expected two numbers, got {list(value)}; change the setting")
    return int(value[0]), int(value[1])


def _page_row(page: PlannedPage) -> dict[str, object]:
    return {"page_id": page.page_id, "image": f"images/{page.page_id}.png"}


def _query_row(page: PlannedPage) -> dict[str, object]:
    (query,) = page.queries
    return {
        "query_id": query.query_id,
        "query": query.text,
        "relevant": [page.page_id],
        "boxes": {page.page_id: _boxes(query.named)},
        "frame": "absolute",
    }


def _boxes(named: Sequence[Standing]) -> list[list[int]]:
    return [list(one.box) for one in named]


def _lines(rows: Sequence[dict[str, object]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
