"""Where the pages lie that a file names by their ids alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from conceptformer.data.folder import HubData, own_folder
from conceptformer.data.json_rows import Refusals, shown
from conceptformer.data.page_files import CopiedPage, PageFiles, copy_pages, corpus_stamp, readable_pages
from conceptformer.errors import DataError
from conceptformer.opendocvqa.corpus import Corpus, find_pages
from conceptformer.records import OnProgress
from visar.documents.discovery import is_image_file

_CORPUS_FILES = ("data/train-*.parquet", "data/*.parquet", "*.parquet")


class PageSource(Protocol):
    """Finds pages by their ids."""

    def find(
        self, page_ids: Collection[str], refusals: Refusals, on_progress: OnProgress | None = None
    ) -> Mapping[str, CopiedPage]:
        """The pages that are there, as files, by id.

        Args:
            refusals: Gets pages whose image cannot be read.
            on_progress: Called with (done, all) of the pages.

        Raises:
            DataError: There is no such folder, or no page in it.
            StoreError: A page cannot be copied.
            MissingExtraError: pyarrow is needed and not installed.
        """


@dataclass(frozen=True)
class PageFolder:
    """Image files named as their pages: of the page ``docvqa/17.png`` the file ``docvqa/17.png`` in the folder, and
    of ``docvqa/17`` one such file with any suffix of an image.

    Attributes:
        folder: The user's folder.
    """

    folder: Path

    def find(
        self, page_ids: Collection[str], refusals: Refusals, on_progress: OnProgress | None = None
    ) -> Mapping[str, CopiedPage]:
        """See :meth:`PageSource.find`. A page whose id names several files is refused. Files are not copied."""
        folder = own_folder(self.folder, setting="pages", needs="page images")
        # The folder is looked through, so that no id can name a file outside it.
        named: dict[str, list[Path]] = {}
        for path in sorted(folder.rglob("*")):
            if is_image_file(path) and path.is_file():
                name = path.relative_to(folder)
                named.setdefault(name.as_posix(), []).insert(0, path)  # before those that differ in their suffix
                named.setdefault(name.with_suffix("").as_posix(), []).append(path)
        if not named:
            raise DataError(f"pages: {folder} holds no image; expected PNG, JPEG, WebP, TIFF or BMP files")
        files: dict[str, Path] = {}
        for page_id in sorted(page_ids):
            found = named.get(page_id, [])
            if len(found) > 1 and found[0].relative_to(folder).as_posix() != page_id:
                others = ", ".join(path.name for path in found[:3])
                refusals.refuse(f"page {shown(page_id)}", f"several files have its name: {others}; name it with suffix")
            elif found:
                files[page_id] = found[0]
        return readable_pages(files, refusals, on_progress)


@dataclass(frozen=True)
class PageCorpus:
    """Parquet files with doc_id and image, as OpenDocVQA-Corpus. Pages that are asked for are copied out of them.

    Attributes:
        folder: The user's folder.
        images: Folder for the copies.
    """

    folder: Path
    images: Path

    def find(
        self, page_ids: Collection[str], refusals: Refusals, on_progress: OnProgress | None = None
    ) -> Mapping[str, CopiedPage]:
        """See :meth:`PageSource.find`. What an earlier run has copied is not copied again."""
        files = Corpus(self.folder, _CORPUS_FILES, HubData(None, None, ())).paths()
        found = find_pages(files, page_ids, refusals)
        page_files = PageFiles(self.images, corpus_stamp(files))
        return copy_pages(list(found.pages.values()), page_files, refusals, on_progress)
