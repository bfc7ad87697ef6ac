"""``python -m visar.ask``: which pages of a document answer a question, how many, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from visar.command_line import chosen_selectors, run_command, true_or_false, user_path, whole_number
from visar.documents import DocumentReader, OcrEngine, find_document
from visar.encoders.protocol import Encoder
from visar.errors import DocumentError, VisarError
from visar.indexing import index_documents
from visar.late_interaction import PackedPages, activation, query_patch_cosine
from visar.matches import count_without_place, find_matches
from visar.progress import progress_bar
from visar.records import Document, PageEmbedding, QueryEmbedding
from visar.report.ask_page import MOST_IMAGES, AskResult, ChosenPage, write_ask_page
from visar.selection import Selection
from visar.selectors import Oracle, PageSelector
from visar.store import EmbeddingStore

LITERAL_KEYS = ("document", "question", "output", "cache")
"""Arguments that are free text: no sign in them means anything to Hydra."""


@dataclass(frozen=True)
class Asking:
    """How documents are read, encoded and searched.

    Attributes:
        cache: Folder of page texts and embeddings.
        leave_out_broken: Leave out pages with NaN or Inf instead of raising.
        settings: Shown on the page, in this order.
    """

    encoder: Encoder
    ocr: OcrEngine
    selector: PageSelector
    cache: Path
    dpi: int
    leave_out_broken: bool
    settings: dict[str, str]

    def ask(self, document: Document, question: str, console: Console) -> AskResult:
        """Choose the pages of the document that answer the question.

        Raises:
            VisarError: The document cannot be read or encoded, or the question is empty.
        """
        query = self.encoder.encode_query(question)
        embeddings = self._embed(document, console)
        pages = PackedPages.pack([page.vectors for page in embeddings], leave_out_broken=self.leave_out_broken)
        selection = self.selector.select(query.vectors, pages)
        mean_activation = activation(query_patch_cosine(query.vectors, pages), pages.starts).mean(dim=0)
        return AskResult(
            question=question,
            document_name=_shown_name(document),
            page_count=len(embeddings),
            selection=selection,
            labels=[document.label(page) for page in range(len(embeddings))],
            chosen=self._chosen(document, selection, query, embeddings, mean_activation),
            settings=self.settings,
            notes=(*_notes(query), *self._notes_on_text(embeddings)),
        )

    def _notes_on_text(self, embeddings: list[PageEmbedding]) -> tuple[str, ...]:
        """An encoder of text gives a page without words one vector without a place."""
        empty = sum(bool(page.boxes.isnan().all()) for page in embeddings) if self.encoder.needs == "text" else 0
        if not empty:
            return ()
        cause = "a scan read with ocr=none, or blank pages"
        return (f"{empty} of {len(embeddings)} pages have no text, so nothing on them can match ({cause})",)

    def _reader(self, document: Document) -> DocumentReader:
        return DocumentReader(document, dpi=self.dpi, ocr=self.ocr, text_cache=self.cache / "texts")

    def _embed(self, document: Document, console: Console) -> list[PageEmbedding]:
        store = EmbeddingStore(self.cache / "embeddings")
        with progress_bar(console, "encoding pages") as on_progress:
            index = index_documents(
                [document],
                self.encoder,
                store,
                dpi=self.dpi,
                ocr=self.ocr,
                text_cache=self.cache / "texts",
                on_progress=on_progress,
            )
        for failure in index.failures:
            raise DocumentError(failure.reason)
        return store.read(index.keys[document.id])

    def _chosen(
        self,
        document: Document,
        selection: Selection,
        query: QueryEmbedding,
        embeddings: list[PageEmbedding],
        mean_activation: torch.Tensor,
    ) -> tuple[ChosenPage, ...]:
        with self._reader(document) as reader:
            return tuple(
                ChosenPage(
                    page=page,
                    label=document.label(page),
                    score=float(selection.scores[page]),
                    late_interaction=float(selection.late_interaction[page]),
                    image=reader.image(page) if rank < MOST_IMAGES else None,
                    matches=find_matches(query, embeddings[page], mean_activation),
                    without_place=count_without_place(query, embeddings[page], mean_activation),
                )
                for rank, page in enumerate(selection.pages)
            )


def _shown_name(document: Document) -> str:
    """The document's name as text; file systems allow bytes in it that are none."""
    name = document.files[0].name if len(document.files) == 1 else document.id
    return os.fsencode(name).decode(errors="replace")


def _notes(query: QueryEmbedding) -> tuple[str, ...]:
    if not query.dropped_tokens:
        return ()
    return (f"the question is longer than the encoder takes: its last {query.dropped_tokens} tokens were left out",)


def _print_result(result: AskResult, page: Path, console: Console) -> None:
    selection = result.selection
    table = Table(title=f"{selection.k} of {result.page_count} pages")
    for name in ("rank", "page", "score", "late interaction"):
        table.add_column(name, justify="right")
    for rank, chosen in enumerate(result.chosen, start=1):
        table.add_row(str(rank), str(chosen.label), f"{chosen.score:.3f}", f"{chosen.late_interaction:.3f}")
    console.print(table)
    console.print(f"k = {selection.k}: {selection.explanation}", markup=False, highlight=False)
    for note in (*result.notes, *selection.warnings):
        console.print(f"note: {note}", markup=False, highlight=False, style="yellow")
    console.print(f"report: {page}", markup=False, highlight=False, soft_wrap=True)


def main(config: DictConfig) -> None:
    """Build the objects that the config describes, ask, print, and write the page."""
    for name, example in (("document", "document=FILE"), ("question", 'question="..."')):
        if not str(config[name] or "").strip():
            raise VisarError(f'{name}: missing; expected {example} (python -m visar.ask document=FILE question="...")')
    selectors = chosen_selectors(config)
    if len(selectors) > 1:
        raise VisarError(f"selector: expected one, got {list(selectors)}; write selector=NAME")
    choices = HydraConfig.get().runtime.choices
    document = find_document(user_path(config, "document"))
    output = user_path(config, "output") if config.output else Path("runs/ask") / f"{document.id}.html"
    if output.is_dir():
        raise VisarError(f"output: {output} is a folder; expected a file to write, such as {output / 'pages.html'}")
    ((name, selector),) = selectors.items()
    chosen = instantiate(selector)
    if isinstance(chosen, Oracle):
        raise VisarError(
            f"selector: {name} needs to know the evidence pages, which a question asked here does not give"
        )
    settings = {"selector": name} | {group: str(choices[group]) for group in ("encoder", "ocr")}
    asking = Asking(
        encoder=instantiate(config.encoder),
        ocr=instantiate(config.ocr),
        selector=chosen,
        cache=user_path(config, "cache"),
        dpi=whole_number(config, "dpi"),
        leave_out_broken=true_or_false(config, "leave_out_broken"),
        settings=settings | {"dpi": str(config.dpi)},
    )
    console = Console(emoji=False)
    result = asking.ask(document, str(config.question), console)
    write_ask_page(output, result)
    _print_result(result, output, console)


if __name__ == "__main__":
    run_command(main, config="ask", literal=LITERAL_KEYS)
