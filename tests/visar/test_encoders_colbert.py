"""ColBERTv2 on page text: a tiny checkpoint in Stanford's layout, sentence-transformers itself as the witness."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import MultiVectorEncoder

from tests.visar.tiny_checkpoints import DIMENSION, page_image, save_colbert
from visar.encoders import Encoder, MultiVector, PageContent, checkpoints
from visar.errors import EmbeddingError
from visar.records import PageText, Word

SHORT = "describe the image . what is the revenue of the company"
LONG = " ".join(["growth market energy policy a b c d . e f images"] * 9)


def page(text: str) -> PageContent:
    words = tuple(Word(word, (i / 1000, 0.1, (i + 1) / 1000, 0.2)) for i, word in enumerate(text.split()))
    return PageContent(text=PageText(words, "text layer"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colbert")
    save_colbert(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder):
    return MultiVector(folder, needs="text", overlap=6, device="cpu")


@pytest.fixture(scope="module")
def witness(folder):
    return MultiVectorEncoder(str(folder), device="cpu")


def test_a_page_that_fits_equals_the_librarys_own_encoding(encoder, witness):
    assert isinstance(encoder, Encoder)
    (found,) = encoder.encode_pages([page(SHORT)])
    assert torch.allclose(found.vectors, witness.encode_document(SHORT), atol=1e-6)
    # [CLS] and the document marker in front, [SEP] behind; the full stop, word 3, is not scored.
    lefts = [-1 if left != left else round(left * 1000) for left in found.boxes[:, 0].tolist()]
    assert lefts == [-1, -1, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, -1]


def test_a_question_equals_the_librarys_own_encoding_with_its_expansion(encoder, witness):
    found = encoder.encode_query("what is the revenue")
    assert torch.allclose(found.vectors, witness.encode_query("what is the revenue"), atol=1e-6)
    assert found.tokens == ("[CLS]", "[unused0]", "what", "is", "the", "revenue", "[SEP]", *["[MASK]"] * 5)
    assert found.dropped_tokens == 0


def test_a_question_too_long_is_cut_and_counted(encoder, witness):
    question = "what is the revenue of the company describe the image a b c"
    found = encoder.encode_query(question)
    assert torch.allclose(found.vectors, witness.encode_query(question), atol=1e-6)
    # 12 places, 3 of them for markers, and 13 words.
    assert found.dropped_tokens == 4


def test_nothing_of_a_long_page_is_lost(encoder, witness):
    (found,) = encoder.encode_pages([page(LONG)])
    words = LONG.split()
    scored = [number for number, word in enumerate(words) if word != "." for _ in range(1 + (word == "images"))]
    lefts = [round(left * 1000) for left in found.boxes[2:-1, 0].tolist()]
    assert lefts == scored
    assert len(witness.encode_document(LONG)) < 24 < len(found.vectors), "the library cuts at 24 tokens"
    assert found.boxes[[0, 1, -1]].isnan().all()


def test_tokens_of_a_long_page_come_from_the_window_around_them(encoder, witness):
    (found,) = encoder.encode_pages([page(LONG)])
    words = LONG.split()
    # 24 tokens less 3 markers leave windows of 21, 15 apart; "images" are two tokens.
    tokens = [word for word in words for _ in range(1 + (word == "images"))]
    window = witness.encode_document(" ".join(tokens[15:36]).replace("images images", "images"))
    kept = [i for i, word in enumerate(tokens) if word != "."]
    # Token 25 lies in the middle of the second window.
    inside = [i for i in kept if 15 <= i < 36]
    ours = found.vectors[2 + kept.index(25)]
    assert torch.allclose(ours, window[2 + inside.index(25)], atol=1e-6)


def test_batch_size_and_neighbours_do_not_change_a_page(folder, encoder):
    pages = [page(LONG), page(""), page(SHORT), page("growth")]
    single = MultiVector(folder, needs="text", overlap=6, device="cpu", batch_size=1)
    for one, other in zip(encoder.encode_pages(pages), single.encode_pages(pages), strict=True):
        assert torch.allclose(one.vectors, other.vectors, atol=1e-5)
        assert torch.equal(one.boxes.nan_to_num(-1), other.boxes.nan_to_num(-1))


def test_a_page_without_text_has_the_vectors_of_its_markers(encoder):
    (found,) = encoder.encode_pages([page("")])
    assert found.vectors.shape == (3, DIMENSION)
    assert found.boxes.isnan().all()


def test_a_page_whose_text_was_not_read_is_an_error_that_names_it(encoder):
    with pytest.raises(EmbeddingError, match="page 0 of the batch has no text"):
        encoder.encode_pages([PageContent(image=page_image(8, 8))])


def test_an_overlap_that_leaves_no_room_is_refused(folder):
    with pytest.raises(EmbeddingError, match="overlap is 21, but a window of this encoder holds 21 tokens"):
        MultiVector(folder, needs="text", overlap=21, device="cpu").encode_pages([page(LONG)])


def test_a_checkpoint_of_the_librarys_own_format_gives_the_same(folder, encoder, witness, tmp_path):
    witness.save_pretrained(str(tmp_path))
    saved = MultiVector(tmp_path, needs="text", overlap=6, device="cpu")
    (one,), (other,) = encoder.encode_pages([page(LONG)]), saved.encode_pages([page(LONG)])
    assert torch.allclose(one.vectors, other.vectors, atol=1e-6)


def test_a_model_without_projection_is_refused_instead_of_given_a_random_one():
    """MultiVectorEncoder would add a random projection and mention it in a log at level INFO."""
    with pytest.raises(EmbeddingError, match="has neither a projection"):
        MultiVector(checkpoints.packaged_minilm(), needs="text", device="cpu").encode_query("growth")


def test_a_checkpoint_for_text_is_not_asked_for_images(folder):
    with pytest.raises(EmbeddingError, match="reads page text, but needs is 'image'"):
        MultiVector(folder, needs="image", device="cpu").encode_query("growth")


def test_the_overlap_is_part_of_the_fingerprint(folder, encoder):
    assert MultiVector(folder, needs="text", overlap=5).fingerprint() != encoder.fingerprint()
