"""Small page images with evidence boxes, as they stand in a gallery of retrieval examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conceptformer.data.images import open_image
from conceptformer.records import Page, RetrievalTask
from conceptformer.report.examples import ExampleGroup, FoundPage, RetrievalExample
from visar.report.images import page_image

# In pixels and characters: a gallery of nine queries stays below a megabyte.
_LARGEST = (320, 440)
_BUDGET = 18_000


@dataclass(frozen=True)
class Thumbnail:
    """A page as it is shown.

    Attributes:
        uri: The image itself, as ``data:`` URI.
        boxes: Left, top, width and height of the evidence, in percent of the image.
        alternative: The picture in words.
    """

    found: FoundPage
    uri: str
    width: int
    height: int
    boxes: tuple[tuple[float, float, float, float], ...]
    alternative: str


@dataclass(frozen=True)
class ExampleCard:
    """A query and the thumbnails of its pages."""

    example: RetrievalExample
    thumbnails: tuple[Thumbnail, ...]


@dataclass(frozen=True)
class CardGroup:
    """The cards of a group of queries."""

    group: ExampleGroup
    cards: tuple[ExampleCard, ...]


def gallery(task: RetrievalTask, groups: Sequence[ExampleGroup]) -> tuple[CardGroup, ...]:
    """Open and shrink the pages that the examples show.

    Raises:
        DataError: A page image cannot be read.
    """
    pages = {page.page_id: page for page in task.pages}
    return tuple(CardGroup(group, tuple(_card(task, pages, example) for example in group.examples)) for group in groups)


def _card(task: RetrievalTask, pages: Mapping[str, Page], example: RetrievalExample) -> ExampleCard:
    thumbnails = tuple(_thumbnail(task, pages[found.page_id], example, found) for found in example.found)
    return ExampleCard(example, thumbnails)


def _thumbnail(task: RetrievalTask, page: Page, example: RetrievalExample, found: FoundPage) -> Thumbnail:
    image = open_image(page.image)
    image.thumbnail(_LARGEST)
    uri, width, height = page_image(image, _BUDGET)
    boxes = tuple(
        (100 * box.left, 100 * box.top, 100 * (box.right - box.left), 100 * (box.bottom - box.top))
        for box in task.boxes.get((example.query_id, page.page_id), ())
    )
    told = f"Page {page.page_id}, rank {found.rank}"
    if found.relevant:
        told += f", relevant, {len(boxes)} evidence {'box' if len(boxes) == 1 else 'boxes'} drawn"
    return Thumbnail(found, uri, width, height, boxes, told)
