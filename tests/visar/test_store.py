"""Embeddings on disk: what is written comes back, under the key of all that made it."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.visar.stored_pages import FACTS, KEY, assert_equal_pages, files, filled, page
from visar.errors import EmbeddingError
from visar.records import PageEmbedding, QueryEmbedding
from visar.store import EmbeddingKey, EmbeddingStore
from visar.tensor_files import StoreError, StoreWarning

# Keys


def test_key_is_the_digest_of_its_canonical_json():
    facts = {**FACTS, "store format": 1}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    assert KEY.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"document": "another file"},
        {"encoder": {"class": "Hashed", "width": "8"}},
        {"needs": "image"},
        {"reading": {"ocr": "tesseract"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_changed_fact_gives_another_key(change):
    assert EmbeddingKey.of(**{**FACTS, **change}).digest != KEY.digest


def test_order_of_facts_does_not_change_the_key():
    turned = {**FACTS, "encoder": dict(reversed(FACTS["encoder"].items()))}
    assert EmbeddingKey.of(**turned) == KEY


def test_key_lies_beside_the_embeddings_for_people_to_read(tmp_path):
    store = filled(tmp_path)
    assert json.loads((store.folder(KEY) / "key.json").read_text()) == {**FACTS, "store format": 1}


# Pages and documents


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_pages_of_unequal_length_come_back_in_page_order(tmp_path, order):
    store = EmbeddingStore(tmp_path)
    pages = [page(number, rows) for number, rows in enumerate([2, 11, 3])]
    for number in order:
        store.write_page(KEY, number, pages[number])
    assert store.finish(KEY, 3) == []
    assert_equal_pages(store.read(KEY), pages)
    assert store.page_count(KEY) == 3


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.integers(1, 13), min_size=1, max_size=5), width=st.integers(1, 9))
def test_any_shape_comes_back(tmp_path, rows, width):
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    store = EmbeddingStore(tmp_path / "store")
    pages = [page(number, count, width) for number, count in enumerate(rows)]
    for number, embedding in enumerate(pages):
        store.write_page(KEY, number, embedding)
    assert store.finish(KEY, len(pages)) == []
    assert_equal_pages(store.read(KEY), pages)


def test_another_library_reads_the_same_vectors(tmp_path):
    store = filled(tmp_path)
    store.finish(KEY, 3)
    with safe_open(store.folder(KEY) / "document.safetensors", framework="numpy") as file:
        stacked = file.get_tensor("vectors")
    assert stacked.dtype == "float16"
    assert (stacked == torch.cat([page(number).vectors for number in range(3)]).numpy().astype("float16")).all()


def test_a_finished_document_is_one_file_and_the_same_bytes_each_time(tmp_path):
    first, second = filled(tmp_path / "a"), filled(tmp_path / "b")
    first.finish(KEY, 3)
    second.finish(KEY, 3)
    assert files(first) == ["document.safetensors", "key.json"]
    name = Path("document.safetensors")
    assert (first.folder(KEY) / name).read_bytes() == (second.folder(KEY) / name).read_bytes()


def test_missing_pages_shrink_with_each_page_written(tmp_path):
    store = EmbeddingStore(tmp_path)
    assert store.missing_pages(KEY, 3) == [0, 1, 2]
    store.write_page(KEY, 1, page(1))
    assert store.missing_pages(KEY, 3) == [0, 2]
    assert store.finish(KEY, 3) == [0, 2]
    assert store.page_count(KEY) is None
    store.write_page(KEY, 0, page(0))
    store.write_page(KEY, 2, page(2))
    assert store.missing_pages(KEY, 3) == []
    assert store.finish(KEY, 3) == []
    assert store.missing_pages(KEY, 3) == []


def test_reading_an_unfinished_document_is_a_clear_error(tmp_path):
    with pytest.raises(StoreError, match="expected the embeddings of a whole document"):
        filled(tmp_path).read(KEY)


def test_half_precision_keeps_unit_vectors_eight_times_finer_than_bfloat16():
    vectors = page(0, rows=1009, width=128).vectors
    half, brain = ((vectors - vectors.to(kind).float()).abs().max() for kind in (torch.float16, torch.bfloat16))
    assert half <= 2**-12  # half a step at 1/2 to 1
    assert 7 < brain / half < 9


def test_nan_is_kept_for_the_page_selection_to_judge_and_warned_of(tmp_path):
    store = EmbeddingStore(tmp_path)
    broken = page(0)
    broken.vectors[2, 1] = math.nan
    with pytest.warns(StoreWarning, match=r"page 0 \(0-based\) holds NaN or Inf"):
        store.write_page(KEY, 0, broken)
    store.finish(KEY, 1)
    assert store.read(KEY)[0].vectors.isnan().sum() == 1


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (PageEmbedding(torch.zeros(0, 7), torch.zeros(0, 4)), r"page 4 .*\[n, D\]"),
        (PageEmbedding(torch.ones(7), torch.zeros(7, 4)), r"page 4 .*\[n, D\]"),
        (PageEmbedding(torch.ones(3, 7, dtype=torch.int64), torch.zeros(3, 4)), "float vectors"),
        (PageEmbedding(torch.ones(3, 7), torch.zeros(2, 4)), r"boxes \[3, 4\]"),
        (PageEmbedding(torch.full((3, 7), 1e5), torch.zeros(3, 4)), r"length 1, got entries up to 1e\+05"),
    ],
)
def test_embeddings_that_cannot_be_kept_are_refused_by_page(tmp_path, embedding, message):
    store = EmbeddingStore(tmp_path)
    with pytest.raises(EmbeddingError, match=message):
        store.write_page(KEY, 4, embedding)
    assert not store.folder(KEY).exists()


def test_pages_of_two_widths_are_refused_and_stay(tmp_path):
    store = filled(tmp_path, pages=2)
    store.write_page(KEY, 2, page(2, width=5))
    with pytest.raises(EmbeddingError, match=r"one embedding width D, got \[5, 7\]"):
        store.finish(KEY, 3)
    assert store.missing_pages(KEY, 3) == []


# Questions

QUESTION = QueryEmbedding(torch.rand(3, 7), ("¿", "##qué", '"\n'), dropped_tokens=2)


def test_a_question_comes_back_exactly(tmp_path):
    store = EmbeddingStore(tmp_path)
    assert store.read_query({"model": "a"}, "¿qué?") is None
    store.write_query({"model": "a"}, "¿qué?", QUESTION)
    found = store.read_query({"model": "a"}, "¿qué?")
    assert torch.equal(found.vectors, QUESTION.vectors)
    assert (found.tokens, found.dropped_tokens) == (QUESTION.tokens, 2)


def test_a_question_belongs_to_its_text_and_encoder(tmp_path):
    store = EmbeddingStore(tmp_path)
    store.write_query({"model": "a"}, "who?", QUESTION)
    assert store.read_query({"model": "b"}, "who?") is None
    assert store.read_query({"model": "a"}, "who? ") is None


def test_a_damaged_question_is_made_anew(tmp_path):
    store = EmbeddingStore(tmp_path)
    store.write_query({}, "who?", QUESTION)
    (file,) = (tmp_path / "questions").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(StoreWarning, match="damaged"):
        assert store.read_query({}, "who?") is None
    store.write_query({}, "who?", QUESTION)
    assert torch.equal(store.read_query({}, "who?").vectors, QUESTION.vectors)
