"""Encoding documents: only what is missing, in several processes, past broken files."""

from __future__ import annotations

import os

import pytest
import torch
from PIL import Image

from tests.visar.hashed_encoder import HashedWords
from tests.visar.indexed_documents import calls, encoded, index, pdf, processes_used, stored_bytes, words
from visar.documents import DocumentReader
from visar.errors import VisarError
from visar.records import Document
from visar.store import EmbeddingStore


@pytest.fixture
def encoder(tmp_path) -> HashedWords:
    return HashedWords(tmp_path / "calls")


@pytest.fixture
def documents(tmp_path) -> list[Document]:
    return [pdf(tmp_path / f"{name}.pdf", words(name, pages)) for name, pages in {"apple": 3, "berry": 5}.items()]


def test_stored_pages_are_what_the_encoder_makes_of_them(tmp_path, documents, encoder):
    report = index(documents, encoder, tmp_path / "store")
    assert report.failures == ()
    assert report.page_counts == {"apple": 3, "berry": 5}
    assert report.encoded_pages == 8
    pages = EmbeddingStore(tmp_path / "store").read(report.keys["berry"])
    expected = [encoder.encode_query(text).vectors.half() for text in words("berry", 5)]
    assert [page.vectors.tolist() for page in pages] == [vectors.tolist() for vectors in expected]


def test_a_second_run_encodes_nothing_and_asks_no_document_for_its_pages(tmp_path, documents, encoder, monkeypatch):
    first = index(documents, encoder, tmp_path / "store")
    before = encoded(encoder)

    def asked(reader: DocumentReader) -> int:
        raise AssertionError("the document was asked how many pages it has")

    monkeypatch.setattr(DocumentReader, "page_count", property(asked))
    progress = []
    second = index(documents, encoder, tmp_path / "store", on_progress=lambda *counts: progress.append(counts))
    assert encoded(encoder) == before
    assert (second.keys, second.page_counts, second.encoded_pages) == (first.keys, first.page_counts, 0)
    assert progress == []


def test_several_processes_share_a_long_document_and_store_the_same_bytes_as_one(tmp_path, documents, encoder):
    documents = [*documents, pdf(tmp_path / "long.pdf", words("long", 24))]
    index(documents, encoder, tmp_path / "one")
    assert processes_used(encoder) == {os.getpid()}
    encoder.calls.unlink()
    slow = HashedWords(encoder.calls, seconds=0.1)
    progress = []
    report = index(documents, slow, tmp_path / "two", processes=2, on_progress=lambda *counts: progress.append(counts))
    assert list(report.page_counts) == ["apple", "berry", "long"]
    assert stored_bytes(tmp_path / "one") == stored_bytes(tmp_path / "two")
    of_long_document = [line.split() for line in calls(slow) if " long" in line]
    assert len(of_long_document) == 24
    assert len({process for process, _, _ in of_long_document}) == 2
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert {int(threads) for _, _, threads in of_long_document} == {max(1, cores // 2)}
    assert os.getpid() not in processes_used(slow)
    assert progress[0] == (0, 32) and progress[-1] == (32, 32)
    assert progress == sorted(progress)


def test_progress_is_told_after_each_batch(tmp_path, documents, encoder):
    progress = []
    index(documents, encoder, tmp_path / "store", on_progress=lambda *counts: progress.append(counts))
    assert sorted(set(progress)) == [(0, 8), (2, 8), (4, 8), (5, 8), (7, 8), (8, 8)]
    assert progress == sorted(progress)


# What makes a key


def test_another_setting_of_the_encoder_is_another_key(tmp_path, documents, encoder):
    first = index(documents, encoder, tmp_path / "store")
    second = index(documents, HashedWords(encoder.calls, width=5), tmp_path / "store")
    assert second.encoded_pages == 8
    assert set(first.keys.values()).isdisjoint(second.keys.values())


def test_changed_content_is_another_key_and_the_other_document_is_kept(tmp_path, documents, encoder):
    first = index(documents, encoder, tmp_path / "store")
    pdf(tmp_path / "berry.pdf", words("cherry", 5))
    second = index(documents, encoder, tmp_path / "store")
    assert second.encoded_pages == 5
    assert second.keys["apple"] == first.keys["apple"]
    assert second.keys["berry"] != first.keys["berry"]


def test_a_renamed_file_keeps_its_embeddings(tmp_path, documents, encoder):
    index(documents, encoder, tmp_path / "store")
    moved = (tmp_path / "berry.pdf").rename(tmp_path / "other.pdf")
    report = index([Document("other", (moved,))], encoder, tmp_path / "store")
    assert report.encoded_pages == 0
    assert report.page_counts == {"other": 5}


def test_resolution_counts_for_images(tmp_path, documents):
    encoder = HashedWords(tmp_path / "calls", needs="image")
    index(documents[:1], encoder, tmp_path / "store", dpi=72)
    index(documents[:1], encoder, tmp_path / "store", dpi=36)
    index(documents[:1], encoder, tmp_path / "store", dpi=72)
    assert encoded(encoder) == ["150x100"] * 3 + ["300x200"] * 3


def test_documents_of_equal_content_are_encoded_once(tmp_path, encoder):
    twins = [pdf(tmp_path / f"{name}.pdf", words("same", 3)) for name in ("one", "two")]
    report = index(twins, encoder, tmp_path / "store")
    assert report.keys["one"] == report.keys["two"]
    assert report.page_counts == {"one": 3, "two": 3}
    assert report.encoded_pages == 3


def test_folders_of_images_are_documents_too(tmp_path):
    files = tuple(tmp_path / f"{number}.png" for number in range(3))
    for number, file in enumerate(files):
        Image.new("RGB", (30, 20), (90 * number, 10, 200)).save(file)
    encoder = HashedWords(tmp_path / "calls", needs="image")
    report = index([Document("scan", files)], encoder, tmp_path / "store")
    pages = EmbeddingStore(tmp_path / "store").read(report.keys["scan"])
    assert len(pages) == 3
    assert not torch.equal(pages[0].vectors, pages[2].vectors)


# Broken documents and pages


def test_a_broken_document_is_listed_and_the_others_are_encoded(tmp_path, documents, encoder):
    (tmp_path / "junk.pdf").write_bytes(b"no PDF at all")
    unlikely = pdf(tmp_path / "unlikely.pdf", [*words("good", 3), "Unlikely text that the encoder refuses to embed"])
    missing = Document("missing", (tmp_path / "missing.pdf",))
    junk = Document("junk", (tmp_path / "junk.pdf",))
    progress = []
    report = index(
        [junk, documents[0], unlikely, missing, documents[1]],
        encoder,
        tmp_path / "store",
        on_progress=lambda *counts: progress.append(counts),
    )
    assert report.page_counts == {"apple": 3, "berry": 5}
    assert [failure.document_id for failure in report.failures] == ["junk", "unlikely", "missing"]
    assert all("\n" not in failure.reason for failure in report.failures)
    assert "pages 2 to 3 (0-based): the word Unlikely" in report.failures[1].reason
    assert progress[0] == (0, 12) and progress[-1] == (10, 10)


def test_a_failed_document_keeps_its_pages_for_the_next_run(tmp_path, encoder):
    texts = [*words("good", 4), "Mortal is the word on this last page of the document"]
    document = pdf(tmp_path / "mortal.pdf", [*texts, "Unlikely text that the encoder refuses to embed"])
    encoder.calls.with_name("scar").touch()
    assert index([document], encoder, tmp_path / "store").encoded_pages == 4
    assert encoded(encoder)[-4:] == ["good0", "good1", "good2", "good3"]
    encoder.calls.unlink()
    index([document], encoder, tmp_path / "store")
    assert encoded(encoder) == ["Mortal", "Unlikely"]


def test_a_file_that_changes_during_the_run_is_not_stored_under_its_old_key(tmp_path, documents, encoder):
    def change(done: int, total: int) -> None:
        if done == 5:  # berry, the longer one, comes first
            pdf(tmp_path / "apple.pdf", words("changed", 3))

    report = index(documents, encoder, tmp_path / "store", on_progress=change)
    assert [failure.document_id for failure in report.failures] == ["apple"]
    assert "changed while the run was on" in report.failures[0].reason
    assert index(documents, encoder, tmp_path / "store").encoded_pages == 3


@pytest.mark.parametrize("options", [{"processes": 0}, {"batch_pages": 0}])
def test_numbers_below_one_are_refused(tmp_path, documents, encoder, options):
    with pytest.raises(VisarError, match="expected 1 or more, got 0"):
        index(documents, encoder, tmp_path / "store", **options)


def test_two_documents_of_one_id_are_refused(tmp_path, documents, encoder):
    with pytest.raises(VisarError, match=r"distinct ids, got \['apple'\]"):
        index([documents[0], Document("apple", documents[1].files)], encoder, tmp_path / "store")
