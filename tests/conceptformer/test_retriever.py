"""The retriever: alone or in batches, from files or from memory, in training or not, the vectors are the same."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conceptformer.adapters import LowRankAdaptation
from conceptformer.checkpoint import save_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import CheckpointError, DataError
from conceptformer.retriever import ConceptFormer
from conceptformer.step.passes import embed_pages, embed_queries
from tests.conceptformer.small_training import manifest_of, train_steps
from tests.conceptformer.tiny_models import SETTINGS, tiny_backbone

QUERIES = ["red", "the blue circle on this page", "x", "what is shown? " * 8, "Ünïcode \\n stays", "red"]


@pytest.fixture(scope="module")
def retriever() -> ConceptFormer:
    return ConceptFormer(tiny_backbone(), "live")


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    """Seven pages of noise of different shapes, from 4 to 24 tokens."""
    generator = np.random.default_rng(5)
    sizes = [(56, 56), (200, 30), (90, 170), (300, 300), (31, 113), (170, 90), (60, 59)]
    return [Image.fromarray(generator.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def test_queries_and_pages_are_those_of_the_plain_passes_one_at_a_time(
    retriever: ConceptFormer, images: list[Image.Image]
) -> None:
    backbone = retriever.backbone
    with torch.no_grad():
        queries = [embed_queries(backbone, [backbone.inputs.query_ids(query)])[0] for query in QUERIES]
        pages = [embed_pages(backbone, [backbone.inputs.read_page(image)])[0] for image in images]
    assert abs(retriever.encode_queries(QUERIES) - torch.stack(queries).numpy()).max() < 1e-5
    assert abs(retriever.encode_pages(images) - torch.stack(pages).numpy()).max() < 1e-5


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_the_batch_size_changes_nothing_and_the_order_is_kept(
    retriever: ConceptFormer, images: list[Image.Image], batch_size: int
) -> None:
    queries, pages = retriever.encode_queries(QUERIES), retriever.encode_pages(images)
    assert abs(retriever.encode_queries(QUERIES, batch_size) - queries).max() < 1e-5
    assert abs(retriever.encode_pages(images, batch_size) - pages).max() < 1e-5
    assert abs(retriever.encode_pages(images[::-1], batch_size)[::-1] - pages).max() < 1e-5
    assert queries[0] == pytest.approx(queries[5], abs=1e-6)


def test_vectors_are_float32_of_length_one_and_differ_from_page_to_page(
    retriever: ConceptFormer, images: list[Image.Image]
) -> None:
    for vectors, count in ((retriever.encode_queries(QUERIES), 6), (retriever.encode_pages(images), 7)):
        assert vectors.dtype == np.float32
        assert vectors.shape == (count, 64)
        assert abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6
    # Noise on pages of seven shapes: seven vectors.
    assert len(np.unique(retriever.encode_pages(images).round(4), axis=0)) == 7


def test_an_empty_list_gives_no_row_of_the_right_width(retriever: ConceptFormer) -> None:
    for vectors in (retriever.encode_queries([]), retriever.encode_pages([])):
        assert vectors.shape == (0, 64)
        assert vectors.dtype == np.float32


def test_paths_bytes_and_images_not_yet_decoded_give_the_same_vectors(
    retriever: ConceptFormer, images: list[Image.Image], tmp_path: Path
) -> None:
    expected = retriever.encode_pages(images)
    paths = [tmp_path / f"{index}.png" for index in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        image.save(path)
    for given in (paths, [str(path) for path in paths], [path.read_bytes() for path in paths]):
        assert np.array_equal(retriever.encode_pages(given), expected)
    lazy = Image.open(paths[3])
    assert abs(retriever.encode_pages([lazy] * 9) - expected[3]).max() < 1e-5


def test_a_live_model_is_used_as_at_inference_and_left_as_it_was(images: list[Image.Image]) -> None:
    backbone = tiny_backbone()
    LowRankAdaptation(dropout=0.5).attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    train_steps(backbone, steps=1)
    backbone.model.visual.eval()  # a part that is frozen in evaluation mode stays so
    modes = [module.training for module in backbone.model.modules()]
    live = ConceptFormer(backbone, "live")
    assert np.array_equal(live.encode_pages(images), live.encode_pages(images))
    assert np.array_equal(live.encode_queries(QUERIES), live.encode_queries(QUERIES))
    assert [module.training for module in backbone.model.modules()] == modes
    assert len(set(modes)) == 2
    before = live.encode_queries(QUERIES)
    train_steps(backbone, steps=1)
    assert abs(live.encode_queries(QUERIES) - before).max() > 1e-3


def test_the_mode_comes_back_after_an_error_too(tmp_path: Path) -> None:
    backbone = tiny_backbone()
    backbone.model.train()
    Image.new("RGB", (60, 60)).save(tmp_path / "page.png")
    content = (tmp_path / "page.png").read_bytes()[:-40]
    with pytest.raises(DataError, match="damaged, truncated or not readable"):
        ConceptFormer(backbone, "live").encode_pages([content])
    assert backbone.model.training


def test_no_concept_token_is_used(retriever: ConceptFormer, images: list[Image.Image]) -> None:
    before = retriever.encode_queries(QUERIES), retriever.encode_pages(images)
    changed = tiny_backbone()
    rows = list(concept_token_ids(changed.inputs.tokenizer))
    with torch.no_grad():
        changed.model.get_input_embeddings().weight[rows] = float("nan")
    other = ConceptFormer(changed, "live")
    assert np.array_equal(other.encode_queries(QUERIES), before[0])
    assert np.array_equal(other.encode_pages(images), before[1])


def test_progress_counts_up_to_all(retriever: ConceptFormer, images: list[Image.Image]) -> None:
    seen: list[tuple[int, int]] = []
    retriever.encode_pages(images, 3, lambda done, total: seen.append((done, total)))
    retriever.encode_queries(QUERIES, 4, lambda done, total: seen.append((done, total)))
    assert seen == [(3, 7), (6, 7), (7, 7), (4, 6), (6, 6)]


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_named(retriever: ConceptFormer, query: str) -> None:
    with pytest.raises(DataError, match=r"query 1 \(counted from 0\): .*expected a text"):
        retriever.encode_queries(["red", query])


def test_bad_pages_are_named(retriever: ConceptFormer, tmp_path: Path) -> None:
    good = Image.new("RGB", (60, 60))
    (tmp_path / "text.png").write_text("no image")
    good.save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:60])
    cases = [
        (tmp_path / "text.png", r"text\.png: not an image"),
        (tmp_path / "missing.png", r"missing\.png: no such file"),
        (tmp_path / "cut.png", r"cut\.png: the image is damaged"),
        (b"", "0 bytes in memory: empty"),
        (Image.new("RGB", (60, 1)), None),
        (Image.new("RGB", (4000, 1)), r"page 1 \(counted from 0\): image of 4000 x 1 pixels"),
        (Image.new("L", (60, 60)), r"page 1 \(counted from 0\): image of mode L: expected RGB"),
    ]
    for page, message in cases:
        if message is None:
            assert retriever.encode_pages([good, page]).shape == (2, 64)
            continue
        with pytest.raises(DataError, match=message) as caught:
            retriever.encode_pages([good, page])
        assert "\n" not in str(caught.value)


def test_an_image_that_turns_out_damaged_when_it_is_decoded_is_named(retriever: ConceptFormer) -> None:
    stream = io.BytesIO()
    Image.effect_noise((80, 80), 50).convert("RGB").save(stream, "PNG")
    lazy = Image.open(io.BytesIO(stream.getvalue()[: stream.tell() // 2]))
    with pytest.raises(DataError, match=r"page 0 \(counted from 0\): the image is damaged"):
        retriever.encode_pages([lazy])


def test_a_batch_size_below_one_is_refused(retriever: ConceptFormer) -> None:
    with pytest.raises(ValueError, match="expected at least 1, got 0"):
        retriever.encode_queries(["red"], batch_size=0)


def checkpoint(folder: Path, seed_steps: int = 1) -> None:
    backbone, adaptation = tiny_backbone(), LowRankAdaptation(rank=2)
    adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    train_steps(backbone, seed_steps)
    save_checkpoint(folder, backbone, adaptation, manifest_of(backbone, adaptation))


def test_a_checkpoint_loads_as_the_retriever_that_was_trained(tmp_path: Path, images: list[Image.Image]) -> None:
    backbone, adaptation = tiny_backbone(), LowRankAdaptation()
    adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    train_steps(backbone)
    live = ConceptFormer(backbone, "live")
    save_checkpoint(tmp_path / "made", backbone, adaptation, manifest_of(backbone, adaptation))
    loaded = ConceptFormer.from_pretrained(str(tmp_path / "made"), device="cpu")
    assert loaded.name == "ConceptFormer"
    assert np.array_equal(loaded.encode_pages(images), live.encode_pages(images))
    assert np.array_equal(loaded.encode_queries(QUERIES), live.encode_queries(QUERIES))


def test_the_fingerprint_changes_with_weights_precision_and_prompts_and_with_nothing_else(tmp_path: Path) -> None:
    checkpoint(tmp_path / "one")
    checkpoint(tmp_path / "two", seed_steps=2)
    first = ConceptFormer.from_pretrained(tmp_path / "one", device="cpu")
    prints = {
        first.fingerprint(),
        ConceptFormer.from_pretrained(tmp_path / "two", device="cpu").fingerprint(),
        ConceptFormer.from_pretrained(tmp_path / "one", device="cpu", dtype="bfloat16").fingerprint(),
        ConceptFormer.from_adapter(tmp_path / "one", tiny_backbone(), device="cpu").fingerprint(),
        ConceptFormer.from_adapter(tmp_path / "two", tiny_backbone(), device="cpu").fingerprint(),
        ConceptFormer.from_adapter(
            tmp_path / "two", tiny_backbone(settings=type(SETTINGS)(max_pixels=20 * 28 * 28)), device="cpu"
        ).fingerprint(),
    }
    assert len(prints) == 6
    again = ConceptFormer.from_pretrained(tmp_path / "one", device="cpu", name="another name")
    assert again.fingerprint() == first.fingerprint()
    assert again.name == "another name"


def test_what_is_no_checkpoint_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no manifest.json"):
        ConceptFormer.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="neither a folder nor a hub name"):
        ConceptFormer.from_pretrained(tmp_path / "missing")


def test_one_text_or_page_in_place_of_a_list_is_refused():
    retriever = ConceptFormer(tiny_backbone(), fingerprint="")
    with pytest.raises(DataError, match="expected a list of texts, got one text: write \\['hello'\\]"):
        retriever.encode_queries("hello")
    with pytest.raises(DataError, match="expected a list of pages, got one page"):
        retriever.encode_pages("page.png")
