"""Benchmarks of questions about long documents, with all pages of all documents as one corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conceptformer.benchmarks.judgments import judged_task
from conceptformer.data.document_pages import drawn_pages
from conceptformer.data.json_rows import Refusals
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, Page, RetrievalTask
from visar.benchmarks.protocol import Benchmark
from visar.documents.discovery import is_image_file
from visar.errors import DatasetError, DocumentError
from visar.records import Document

_SETTING = re.compile(r"(?<![\w./\\-])dataset\.(root|page_base|hub)\b")


@dataclass(frozen=True)
class LongDocuments:
    """MMLongBench-Doc and its like: a question is a query, and its evidence pages answer it.

    Questions without an evidence page, rows that name no page of their document, and documents that cannot be read are
    left out and listed: such rows are known faults of the published files.

    Attributes:
        questions: Where questions and documents come from.
        drawn: Where drawn pages of PDFs are kept between runs.
        dpi: Resolution of pages of PDFs.
    """

    questions: Benchmark
    drawn: Path | str
    dpi: float

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """See :meth:`conceptformer.benchmarks.Benchmark.load`.

        Raises:
            StoreError: A drawn page cannot be written.
        """
        try:
            found = self.questions.load()
        except DatasetError as error:
            # It speaks of its settings by their place in the other package's config.
            raise DataError(_SETTING.sub(r"benchmark.questions.\1", str(error))) from error
        refusals = Refusals(Path(found.name), skip=True)
        pages, ids = self._pages(found.documents, refusals, on_progress)
        texts = {question.id: question.text for question in found.questions}
        relevant = {
            question.id: tuple(ids[question.document_id][number] for number in question.evidence_pages)
            for question in found.questions
            if question.document_id in ids
        }
        task = judged_task(found.name, texts, relevant, pages, refusals)
        return RetrievalTask(task.name, task.queries, task.pages, task.relevant, refused=found.refused + task.refused)

    def _pages(
        self, documents: tuple[Document, ...], refusals: Refusals, on_progress: OnProgress | None
    ) -> tuple[tuple[Page, ...], dict[str, tuple[str, ...]]]:
        """The pages that can be read, and the ids of all pages of a document in their order."""
        pages: dict[str, Page] = {}
        ids: dict[str, tuple[str, ...]] = {}
        for number, document in enumerate(documents, start=1):
            try:
                found = list(self._images(document))
            except DocumentError as error:
                refusals.refuse(document.id, error)
                continue
            ids[document.id] = tuple(page_id for page_id, _ in found)
            for page_id, image in found:
                if isinstance(image, DocumentError):
                    refusals.refuse(page_id, image)
                else:
                    pages[page_id] = Page(page_id, image)
            if on_progress is not None:
                on_progress(len(pages), len(pages) + len(documents) - number)
        return tuple(pages.values()), ids

    def _images(self, document: Document) -> Iterator[tuple[str, Path | DocumentError]]:
        """Id and image of each page. Slices of one document share image files, each of which is one page."""
        if is_image_file(document.files[0]):
            yield from ((path.name, path) for path in document.files)
        else:
            yield from drawn_pages(document, Path(self.drawn).expanduser(), self.dpi)
