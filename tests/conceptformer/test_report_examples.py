"""Which held-out queries a report shows, what was found for them, and their pictures."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conceptformer.data.images import open_image
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox, Page, RetrievalTask
from conceptformer.report.examples import ExampleGroup, retrieval_examples
from conceptformer.report.thumbnails import gallery
from tests.conceptformer.colour_pages import ColourRetriever, make_task, png

# Each of seven colours marks several pages: some queries find theirs first, others do not.
PAGES = 41


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> RetrievalTask:
    task = make_task(tmp_path_factory.mktemp("pages"), PAGES)
    # Colours that are not on the page.
    lost = {"lost": "violet", "lost too": "violet yellow"}
    relevant = dict.fromkeys(lost, frozenset({"page 0", "page 14"}))
    return replace(task, queries={**task.queries, **lost}, relevant={**task.relevant, **relevant})


@pytest.fixture(scope="module")
def groups(task: RetrievalTask) -> tuple[ExampleGroup, ...]:
    return retrieval_examples(task, ColourRetriever(), 2)


def plain_order(task: RetrievalTask, query: str) -> list[tuple[str, float]]:
    """All pages for a query and their scores, one page and one query at a time."""
    retriever = ColourRetriever()
    vector = retriever.encode_queries([query])[0].astype(float)
    scores = [float(vector @ retriever.encode_pages([open_image(page.image)])[0].astype(float)) for page in task.pages]
    order = sorted(range(len(scores)), key=lambda place: (-np.float32(scores[place]), place))
    return [(task.pages[place].page_id, scores[place]) for place in order]


def plain_rank(task: RetrievalTask, query_id: str) -> int:
    order = [page_id for page_id, _ in plain_order(task, task.queries[query_id])]
    return 1 + min(order.index(page_id) for page_id in task.relevant[query_id])


def test_queries_are_grouped_by_rank_and_the_first_ones_shown(task, groups) -> None:
    ranks = {query_id: plain_rank(task, query_id) for query_id in task.queries}
    expected = [
        [query_id for query_id, rank in ranks.items() if rank == 1],
        [query_id for query_id, rank in ranks.items() if 1 < rank <= 10],
        [query_id for query_id, rank in ranks.items() if rank > 10],
    ]
    assert all(expected), "the case has lost its point: a group is empty"
    assert [group.queries for group in groups] == [len(names) for names in expected]
    shown = [[example.query_id for example in group.examples] for group in groups]
    assert shown == [names[:2] for names in expected]
    assert all(example.rank == ranks[example.query_id] for group in groups for example in group.examples)


def test_pages_stand_in_the_order_found_and_the_relevant_one_is_always_there(task, groups) -> None:
    for example in (example for group in groups for example in group.examples):
        order = plain_order(task, example.query)
        for page in example.found:
            page_id, score = order[page.rank - 1]
            assert (page.page_id, page.score) == (page_id, pytest.approx(score, abs=1e-6))
            assert page.relevant == (page_id in task.relevant[example.query_id])
        first = [page.rank for page in example.found]
        assert first == ([1, 2, 3, 4, 5] if example.rank <= 5 else [1, 2, 3, 4, 5, example.rank])
        assert example.query == task.queries[example.query_id]


def test_progress_counts_pages(task) -> None:
    seen: list[tuple[int, int]] = []
    retrieval_examples(task, ColourRetriever(), 1, lambda done, total: seen.append((done, total)))
    assert seen == [(32, PAGES), (PAGES, PAGES)]


def test_no_examples_are_asked_for(task) -> None:
    groups = retrieval_examples(task, ColourRetriever(), 0)
    assert [group.examples for group in groups] == [(), (), ()]
    assert sum(group.queries for group in groups) == len(task.queries)


def test_a_corpus_of_one_page() -> None:
    page = Page("only", png(Image.new("RGB", (12, 21), "red")))
    task = RetrievalTask("one", {"q": "red"}, (page,), {"q": frozenset({"only"})})
    first, *others = retrieval_examples(task, ColourRetriever(), 3)
    assert [found.page_id for found in first.examples[0].found] == ["only"]
    assert [group.queries for group in others] == [0, 0]


def test_a_damaged_page_is_named(task, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(DataError, match=r"broken\.png"):
        retrieval_examples(replace(task, pages=(*task.pages, Page("broken", broken))), ColourRetriever(), 1)


# Thumbnails.


def decoded(uri: str) -> Image.Image:
    head, content = uri.split(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_thumbnails_are_the_pages_with_the_evidence_on_the_relevant_one(task, groups) -> None:
    query_id = groups[0].examples[0].query_id
    (page_id, *_) = sorted(task.relevant[query_id])
    boxes = (EvidenceBox(0.25, 0.5, 0.75, 0.625), EvidenceBox(0.0, 0.0, 1.0, 0.125))
    shown = gallery(replace(task, boxes={(query_id, page_id): boxes}), groups)
    assert [len(part.cards) for part in shown] == [len(group.examples) for group in groups]
    for part in shown:
        for card in part.cards:
            for thumbnail in card.thumbnails:
                marked = (card.example.query_id, thumbnail.found.page_id) == (query_id, page_id)
                assert thumbnail.boxes == (((25, 50, 50, 12.5), (0, 0, 100, 12.5)) if marked else ())
                assert thumbnail.alternative.startswith(f"Page {thumbnail.found.page_id}, rank {thumbnail.found.rank}")
                assert ("relevant" in thumbnail.alternative) == thumbnail.found.relevant
                number = int(thumbnail.found.page_id.split()[1])
                original = np.asarray(open_image(task.pages[number].image), dtype=float)
                picture = np.asarray(decoded(thumbnail.uri), dtype=float)
                assert picture.shape == original.shape == (thumbnail.height, thumbnail.width, 3)
                assert abs(picture.mean(axis=(0, 1)) - original.mean(axis=(0, 1))).max() < 12


@pytest.mark.parametrize("size", [(900, 1300), (20_000, 7), (3, 9000), (1, 1)])
def test_pages_of_any_shape_become_small(size: tuple[int, int]) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    task = RetrievalTask("one", {"q": "red"}, (Page("p", png(image)),), {"q": frozenset({"p"})})
    example = retrieval_examples(replace(task, pages=(Page("p", png(Image.new("RGB", (9, 9)))),)), ColourRetriever(), 1)
    thumbnail = gallery(task, example)[0].cards[0].thumbnails[0]
    picture = decoded(thumbnail.uri)
    assert picture.size == (thumbnail.width, thumbnail.height)
    assert 1 <= thumbnail.width <= 320 and 1 <= thumbnail.height <= 440
    assert len(thumbnail.uri) < 40_000
