"""Vectors on disk: what the retriever gave, made once, and pages that cannot be encoded."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conceptformer.data.images import open_image
from conceptformer.errors import DataError
from conceptformer.records import Page
from conceptformer.retrieval.encoding import Encoding, encode_pages, encode_queries
from tests.conceptformer.colour_pages import ColourRetriever, draw, encoding, in_memory, make_pages, png, silent
from tests.conceptformer.encoded_pages import assert_same, directly, lines, made, shards
from visar.tensor_files import StoreWarning

COUNT = 17


@pytest.fixture
def pages(tmp_path) -> list[Page]:
    return make_pages(tmp_path / "pages", COUNT)


# What is made.


@pytest.mark.parametrize(
    "changes", [{}, {"shard_items": 1}, {"shard_items": 100, "batch_pages": 7}, {"batch_pages": 1}]
)
@pytest.mark.parametrize("held", [list, in_memory])
def test_the_vectors_are_the_retrievers_own_in_corpus_order(tmp_path, pages, changes, held):
    encoded = encode_pages(held(pages), ColourRetriever(), encoding(tmp_path / "cache", **changes), silent)
    assert_same(made(encoded), directly(pages))
    assert encoded.left_out == {}


def test_queries_are_encoded_in_their_order_and_once(tmp_path):
    queries = {f"q{number}": f"Instruct: x\\nQuery: red {number}\n blue" for number in range(COUNT)}
    log = tmp_path / "log"
    for _ in range(2):
        encoded = encode_queries(queries, ColourRetriever(log), encoding(tmp_path / "cache"), silent)
        expected = dict(zip(queries, ColourRetriever().encode_queries(list(queries.values())), strict=True))
        assert_same(made(encoded), expected)
    changed = {**queries, "q4": "green"}
    np.testing.assert_array_equal(
        made(encode_queries(changed, ColourRetriever(log), encoding(tmp_path / "cache"), silent))["q4"],
        ColourRetriever().encode_queries(["green"])[0],
    )


def test_progress_counts_every_page_once_batch_by_batch(tmp_path, pages):
    seen: list[tuple[int, int]] = []
    for changes in ({"batch_pages": 3}, {}):
        encode_pages(pages, ColourRetriever(), encoding(tmp_path, **changes), lambda *progress: seen.append(progress))
    # Shards of five pages; those that are there already count at once.
    first = [0, 3, 5, 8, 10, 13, 15, 17]
    assert seen == [(done, 17) for done in (*first, 0, 5, 10, 15, 17)]


def test_progress_counts_queries_batch_by_batch(tmp_path):
    seen: list[tuple[int, int]] = []
    queries = {f"q{number}": f"red {number}" for number in range(7)}
    encode_queries(queries, ColourRetriever(), encoding(tmp_path), lambda *progress: seen.append(progress))
    assert seen == [(3, 7), (5, 7), (7, 7)]


class Lazy(Sequence[Page]):
    """A corpus that reads a page when it is asked for, and knows how many of those it gave are still held."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = pages
        self._given: list[weakref.ref[Page]] = []
        self.most = 0

    def __len__(self) -> int:
        return len(self._pages)

    def __getitem__(self, place: int) -> Page:
        (page,) = in_memory([self._pages[place]])
        self._given = [given for given in self._given if given() is not None] + [weakref.ref(page)]
        self.most = max(self.most, len(self._given))
        return page


def test_pages_are_read_one_after_the_other_and_not_kept(tmp_path, pages):
    lazy = Lazy(pages)
    encoded = encode_pages(lazy, ColourRetriever(), encoding(tmp_path, shard_items=100, batch_pages=3), silent)
    assert_same(made(encoded), directly(pages))
    assert 1 <= lazy.most <= 2


def test_no_more_than_two_batches_of_images_are_open(tmp_path, pages, monkeypatch):
    opened: list[weakref.ref[Image.Image]] = []
    most = 0

    def counted(source: Path | bytes) -> Image.Image:
        nonlocal most
        image = open_image(source)
        opened.append(weakref.ref(image))
        most = max(most, sum(one() is not None for one in opened))
        return image

    monkeypatch.setattr("conceptformer.retrieval.encoding.open_image", counted)
    encode_pages(pages, ColourRetriever(seconds=0.002), encoding(tmp_path, shard_items=100, batch_pages=3), silent)
    assert len(opened) == COUNT and 3 <= most <= 6


# What is found again.


def test_a_second_run_encodes_nothing(tmp_path, pages):
    log = tmp_path / "log"
    for held in (pages, in_memory(pages)):
        encoded = encode_pages(held, ColourRetriever(log), encoding(tmp_path / "cache", batch_pages=4), silent)
        assert_same(made(encoded), directly(pages))
    assert len(lines(log)) == COUNT


@pytest.mark.parametrize("damage", ["removed", "cut", "flipped", "of another corpus"])
def test_a_shard_that_is_gone_or_damaged_is_made_anew_and_no_other(tmp_path, pages, damage):
    log = tmp_path / "log"
    path = shards(encode_pages(pages, ColourRetriever(), encoding(tmp_path), silent))[1]
    if damage == "removed":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "flipped":
        content = bytearray(path.read_bytes())
        content[-9] ^= 4
        path.write_bytes(content)
    else:
        other = shards(encode_pages(pages[1:], ColourRetriever(), encoding(tmp_path), silent))[1]
        path.write_bytes(other.read_bytes())
    if damage == "removed":
        encoded = encode_pages(pages, ColourRetriever(log), encoding(tmp_path), silent)
    else:
        with pytest.warns(StoreWarning, match="made anew"):
            encoded = encode_pages(pages, ColourRetriever(log), encoding(tmp_path), silent)
    assert_same(made(encoded), directly(pages))
    assert len(lines(log)) == 5


def test_what_changes_a_vector_changes_the_folder(tmp_path, pages):
    first = encode_pages(pages, ColourRetriever(), encoding(tmp_path), silent).vectors.path
    changes = [
        (pages[::-1], ColourRetriever()),
        (pages[:-1], ColourRetriever()),
        ([Page("other", pages[0].image), *pages[1:]], ColourRetriever()),
        (pages, ColourRetriever(weight=0.2)),
    ]
    folders = {encode_pages(some, retriever, encoding(tmp_path), silent).vectors.path for some, retriever in changes}
    assert len(folders | {first}) == 5
    draw(40)[0].save(pages[3].image)
    encoded = encode_pages(pages, ColourRetriever(), encoding(tmp_path), silent)
    assert encoded.vectors.path != first
    assert_same(made(encoded), directly(pages))


# What cannot be encoded.


def broken_corpus(pages: Sequence[Page], tmp_path: Path) -> tuple[list[Page], dict[str, str]]:
    """Pages that cannot be read for four reasons, some of them side by side, and what is said of them."""
    content = pages[4].image.read_bytes()
    bad = {
        3: (tmp_path / "pages" / "none.png", "cannot be read"),
        4: (content[: len(content) // 2], "the image"),
        10: (b"no image", "not an image"),
        11: (png(draw(1, width=1)[0]), "an image of 1 x 21 pixels is too narrow"),
    }
    corpus = [Page(page.page_id, bad[place][0]) if place in bad else page for place, page in enumerate(pages)]
    return corpus, {f"page {place}": reason for place, (_, reason) in bad.items()}


def test_a_page_that_cannot_be_read_stops_the_run_and_is_named(tmp_path, pages):
    corpus, reasons = broken_corpus(pages, tmp_path)
    for place in (3, 4, 10, 11):
        alone = [corpus[place] if number == place else page for number, page in enumerate(pages)]
        with pytest.raises(DataError, match=f"^page 'page {place}': .*{reasons[f'page {place}']}") as raised:
            encode_pages(alone, ColourRetriever(), encoding(tmp_path), silent)
        assert "\n" not in str(raised.value) and "skip" in str(raised.value)


@pytest.mark.parametrize("changes", [{}, {"batch_pages": 5}, {"shard_items": 1}, {"shard_items": 2}])
def test_pages_that_cannot_be_read_are_left_out_and_listed(tmp_path, pages, changes):
    corpus, reasons = broken_corpus(pages, tmp_path)
    log = tmp_path / "log"
    settings = encoding(tmp_path / "cache", skip_bad_pages=True, **changes)
    for _ in range(2):
        encoded = encode_pages(corpus, ColourRetriever(log), settings, silent)
        assert_same(made(encoded), directly([page for page in corpus if page.page_id not in reasons]))
        assert list(encoded.left_out) == list(reasons)
        for page_id, reason in reasons.items():
            assert reason in encoded.left_out[page_id] and "\n" not in encoded.left_out[page_id]
    assert len(lines(log)) == COUNT - 4
    with pytest.raises(DataError, match="^page 'page 3'"):
        encode_pages(corpus, ColourRetriever(), encoding(tmp_path / "cache", **changes), silent)


class Broken(ColourRetriever):
    """Gives a wrong vector for the white page."""

    def encode_pages(self, images):
        vectors = super().encode_pages(images)
        white = vectors[:, 1] > 0.99
        vectors[white, 0] = np.nan
        return vectors

    def encode_queries(self, queries):
        return super().encode_queries(queries)[1:]


def test_nan_is_never_kept_and_never_a_skipped_page(tmp_path, pages):
    corpus = [*pages[:12], Page("white", png(Image.new("RGB", (9, 9), "white"))), *pages[12:]]
    with pytest.raises(DataError, match="^page 'white': its vector holds NaN or Inf"):
        encode_pages(corpus, Broken(), encoding(tmp_path, skip_bad_pages=True), silent)
    kept = list(tmp_path.glob("pages/*/shard-*"))
    assert sorted(path.name for path in kept) == ["shard-00000.safetensors", "shard-00001.safetensors"]


def test_a_retriever_that_gives_another_number_of_vectors_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"query vectors: expected shape \[2, D\], got \[1, 11\]"):
        encode_queries({"a": "red", "b": "blue"}, Broken(), encoding(tmp_path), silent)


class Meddling(ColourRetriever):
    """Draws over the file ``log`` while the run is on."""

    def encode_pages(self, images):
        draw(30)[0].save(self.log)
        return ColourRetriever().encode_pages(images)


def test_an_image_that_changes_during_the_run_stops_it(tmp_path, pages):
    with pytest.raises(DataError, match="^page 'page 16': the image changed while the run was on; run again"):
        encode_pages(pages, Meddling(pages[16].image), encoding(tmp_path, skip_bad_pages=True), silent)


def test_ids_that_come_twice_are_refused(tmp_path, pages):
    with pytest.raises(DataError, match="18 pages have 17 different ids"):
        encode_pages([*pages, pages[2]], ColourRetriever(), encoding(tmp_path), silent)


@pytest.mark.parametrize("name", ["shard_items", "batch_pages", "batch_queries"])
def test_settings_below_one_are_refused(tmp_path, name):
    with pytest.raises(DataError, match=f"{name}: expected a whole number of at least 1, got 0"):
        encoding(tmp_path, **{name: 0})
    assert isinstance(encoding(tmp_path, **{name: 1}), Encoding)


def test_ids_may_hold_any_sign(tmp_path, pages):
    ids = ['a "b"', "ü/\u2028", "\udce9", "c\\d"]
    corpus = [Page(page_id, page.image) for page_id, page in zip(ids, pages, strict=False)]
    assert list(made(encode_pages(corpus, ColourRetriever(), encoding(tmp_path), silent))) == ids
