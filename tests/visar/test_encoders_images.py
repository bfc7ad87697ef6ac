"""ColPali, ColQwen2.5 and ColModernVBERT on page images: tiny checkpoints, the classes of transformers as witness."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from tests.visar.tiny_checkpoints import (
    DIMENSION,
    page_image,
    save_colmodernvbert,
    save_colpali,
    save_colqwen,
)
from visar.encoders import Encoder, MultiVector, PageContent, multi_vector
from visar.errors import EmbeddingError, MissingExtraError
from visar.records import PageText

SAVE = {"colpali": save_colpali, "colqwen": save_colqwen, "colmodernvbert": save_colmodernvbert}
# Sizes that no processor has to resize (local), and odd ones.
LOCAL_SIZE = {"colpali": (32, 32), "colqwen": (40, 24), "colmodernvbert": (96, 64)}
ODD_SIZES = [(51, 66), (64, 40), (33, 33)]


def contents(*sizes: tuple[int, int]) -> list[PageContent]:
    return [PageContent(image=page_image(*size, seed=seed)) for seed, size in enumerate(sizes)]


@pytest.fixture(scope="module", params=list(SAVE))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def checkpoint(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind)
    return folder, SAVE[kind](folder)


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return MultiVector(checkpoint[0], needs="image", device="cpu")


def test_it_is_an_encoder_without_torchvision(encoder):
    assert isinstance(encoder, Encoder)
    encoder.encode_query("growth")
    assert "torchvision" not in sys.modules


@torch.no_grad()
def test_pages_equal_the_native_class_with_its_own_processor(kind, checkpoint, encoder):
    folder, model = checkpoint
    processor = AutoProcessor.from_pretrained(folder)
    for content in contents(*ODD_SIZES):
        inputs = processor.process_images([content.image])
        if kind == "colqwen":
            # transformers leaves positions out here; the last test of this file has the witness for them.
            is_image = (inputs["input_ids"] == processor.image_token_id).int()
            inputs["position_ids"], _ = model.vlm.get_rope_index(
                inputs["input_ids"], is_image, image_grid_thw=inputs["image_grid_thw"]
            )
        expected = model(**inputs).embeddings[0]
        (found,) = encoder.encode_pages([content])
        assert found.vectors.shape == (len(expected), DIMENSION)
        assert torch.allclose(found.vectors, expected, atol=1e-5)


@torch.no_grad()
def test_questions_equal_the_native_class_with_prefix_and_augmentation_tokens(checkpoint, encoder):
    folder, model = checkpoint
    inputs = AutoProcessor.from_pretrained(folder).process_queries(["what is the revenue"])
    found = encoder.encode_query("what is the revenue")
    assert torch.allclose(found.vectors, model(**inputs).embeddings[0], atol=1e-5)
    assert len(found.tokens) == len(found.vectors)
    augmentation = max(set(found.tokens), key=found.tokens.count)
    assert found.tokens.count(augmentation) == 10
    assert found.dropped_tokens == 0


def test_padding_is_removed_and_batches_do_not_matter(checkpoint, encoder):
    together = encoder.encode_pages(contents(*ODD_SIZES))
    single = MultiVector(checkpoint[0], needs="image", device="cpu", batch_size=1)
    for one, other in zip(together, single.encode_pages(contents(*ODD_SIZES)), strict=True):
        assert one.vectors.shape == other.vectors.shape
        assert torch.allclose(one.vectors, other.vectors, atol=1e-5)
        assert torch.equal(one.boxes.nan_to_num(-1), other.boxes.nan_to_num(-1))
    assert all(torch.allclose(page.vectors.norm(dim=1), torch.tensor(1.0), atol=1e-5) for page in together)


def test_a_vector_depends_on_the_pixels_inside_its_box_alone(kind, tmp_path):
    # Without attention layers nothing but the box's own pixels can reach a vector: a witness for order and place.
    SAVE[kind](tmp_path, layers=0)
    encoder = MultiVector(tmp_path, needs="image", device="cpu")
    width, height = LOCAL_SIZE[kind]
    image = page_image(width, height)
    (before,) = encoder.encode_pages([PageContent(image=image)])
    placed = (~before.boxes.isnan().any(dim=1)).nonzero().flatten().tolist()
    for vector in placed[:: max(1, len(placed) // 12)]:
        left, top, right, bottom = before.boxes[vector].tolist()
        box = (round(left * width), round(top * height), round(right * width), round(bottom * height))
        changed = image.copy()
        changed.paste((0, 255, 0), box)
        (after,) = encoder.encode_pages([PageContent(image=changed)])
        moved = (after.vectors - before.vectors).abs().amax(dim=1) > 1e-6
        assert moved[vector]
        overlaps = (
            (before.boxes[:, 0] < right - 1e-4)
            & (before.boxes[:, 2] > left + 1e-4)
            & (before.boxes[:, 1] < bottom - 1e-4)
            & (before.boxes[:, 3] > top + 1e-4)
        )
        if kind == "colmodernvbert":
            # The last four vectors see the whole page scaled down, with a filter that is wider than a cell.
            moved[placed[-4:]] = overlaps[placed[-4:]] = False
        assert torch.equal(moved, overlaps & ~before.boxes.isnan().any(dim=1))


def test_prompt_tokens_have_no_box(kind, encoder):
    (found,) = encoder.encode_pages(contents((32, 32)))
    nowhere = found.boxes.isnan().any(dim=1)
    assert nowhere.any()
    assert (~nowhere).any()
    assert found.boxes[~nowhere].min() == 0
    assert found.boxes[~nowhere].max() == 1


def test_a_token_too_few_gives_no_layout(encoder):
    model = encoder._load()
    features = model.image_features([page_image(40, 24)])
    assert model.boxes(features, 0) is not None
    first = model.is_image_token(features["input_ids"][0]).nonzero()[0]
    features["input_ids"][0, first] = model.tokenizer.pad_token_id
    assert model.boxes(features, 0) is None


def test_without_a_layout_boxes_are_nan(tmp_path):
    save_colpali(tmp_path)
    encoder = MultiVector(tmp_path, needs="image", device="cpu")
    # 32 pixels are no multiple of 5: the grid does not follow from what the processor put out.
    encoder._load().transformer.model.config.vlm_config.vision_config.patch_size = 5
    (found,) = encoder.encode_pages(contents((32, 32)))
    assert found.boxes.isnan().all()


def test_half_precision_comes_back_as_float32_of_length_one(checkpoint):
    encoder = MultiVector(checkpoint[0], needs="image", device="cpu", dtype="bfloat16")
    (found,) = encoder.encode_pages(contents((32, 32)))
    assert found.vectors.dtype == torch.float32
    assert torch.allclose(found.vectors.norm(dim=1), torch.tensor(1.0), atol=1e-5)
    assert encoder._load().transformer.model.dtype == torch.bfloat16


def test_what_the_network_makes_of_nan_is_not_hidden(checkpoint):
    encoder = MultiVector(checkpoint[0], needs="image", device="cpu")
    with torch.no_grad():
        encoder._load().transformer.model.embedding_proj_layer.bias[0] = float("nan")
    (found,) = encoder.encode_pages(contents((32, 32)))
    assert found.vectors.isnan().any()


def test_a_blank_page_still_has_vectors(encoder):
    (found,) = encoder.encode_pages([PageContent(image=Image.new("L", (60, 80), 255))])
    assert len(found.vectors) > 4
    assert found.vectors.isfinite().all()


def test_pickles_carry_settings_only(encoder):
    found = encoder.encode_query("growth")
    data = pickle.dumps(encoder)
    assert len(data) < 2000
    copy = pickle.loads(data)  # noqa: S301 (made a line above)
    assert torch.allclose(copy.encode_query("growth").vectors, found.vectors, atol=1e-6)


def test_the_fingerprint_follows_weights_and_dtype_but_not_batches(checkpoint, encoder, tmp_path):
    folder = checkpoint[0]
    usual = encoder.fingerprint()
    assert usual == MultiVector(folder, needs="image", batch_size=9).fingerprint()
    assert usual != MultiVector(folder, needs="image", dtype="bfloat16").fingerprint()
    assert {"torch", "transformers", "sentence-transformers"} <= set(usual)
    save_colpali(tmp_path, layers=0)
    assert MultiVector(tmp_path, needs="image").fingerprint()["weights"] != usual["weights"]


def test_the_rules_of_this_package_are_part_of_the_fingerprint(encoder, monkeypatch):
    before = encoder.fingerprint()
    monkeypatch.setattr(multi_vector, "RULES_VERSION", "other")
    assert encoder.fingerprint() == before | {"rules": "other"} != before


def test_a_full_gpu_is_one_line_that_says_what_to_do(checkpoint):
    encoder = MultiVector(checkpoint[0], needs="image", device="cpu")

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    encoder._load().transformer.model.embedding_proj_layer.register_forward_pre_hook(exhausted)
    expected = "^cpu ran out of memory; lower encoder.batch_size or set encoder.device=cpu$"
    for use in (lambda: encoder.encode_query("growth"), lambda: encoder.encode_pages(contents((32, 32)))):
        with pytest.raises(EmbeddingError, match=expected):
            use()


def test_a_question_with_halves_of_characters_is_one_line(encoder):
    with pytest.raises(EmbeddingError, match="^question: not valid text at character 4 "):
        encoder.encode_query("caf\udce9")


def test_a_page_without_its_image_is_an_error_that_names_it(encoder):
    with pytest.raises(EmbeddingError, match="page 1 of the batch has no image"):
        encoder.encode_pages([*contents((32, 32)), PageContent(text=PageText((), "none"))])


def test_a_blank_question_is_an_error(encoder):
    with pytest.raises(EmbeddingError, match="the question is empty"):
        encoder.encode_query(" \n")


def test_a_checkpoint_for_images_is_not_asked_for_text(checkpoint):
    with pytest.raises(EmbeddingError, match="reads page image, but needs is 'text'"):
        MultiVector(checkpoint[0], needs="text", device="cpu").encode_query("growth")


def test_a_missing_library_names_the_line_that_installs_it(checkpoint, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evidence-retrieval\[encoders\]'"):
        MultiVector(checkpoint[0], needs="image").encode_query("growth")


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_broken_checkpoint_is_one_line(checkpoint, tmp_path, broken):
    for path in checkpoint[0].iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[:200] if path.name == broken else content)
    with pytest.raises(EmbeddingError, match="cannot be (loaded as a multi-vector encoder|read)") as caught:
        MultiVector(tmp_path, needs="image", device="cpu").encode_query("growth")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"needs": "sound"}, "needs is 'sound'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"overlap": -1}, "overlap -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(EmbeddingError, match=message):
        MultiVector("some/model", **{"needs": "image", **settings})


@torch.no_grad()
def test_qwen_gets_positions_in_rows_and_columns(tmp_path):
    """The native ColQwen2 class passes no position ids on, so that a page would be one long line of patches."""
    model = save_colqwen(tmp_path)
    content = contents((56, 24))[0]
    (found,) = MultiVector(tmp_path, needs="image", device="cpu").encode_pages([content])
    inputs = AutoProcessor.from_pretrained(tmp_path).process_images([content.image])
    ids = inputs["input_ids"]
    # Qwen2.5-VL's own class, which works positions out when it is told which tokens are patches.
    backbone = AutoModel.from_config(model.config.vlm_config).eval()
    backbone.load_state_dict(model.vlm.state_dict())
    hidden = backbone(
        input_ids=ids,
        attention_mask=inputs["attention_mask"],
        pixel_values=inputs["pixel_values"].flatten(0, 1),
        image_grid_thw=inputs["image_grid_thw"],
        mm_token_type_ids=(ids == model.config.vlm_config.image_token_id).int(),
    ).last_hidden_state
    expected = torch.nn.functional.normalize(model.embedding_proj_layer(hidden[0]), dim=1)
    assert torch.allclose(found.vectors, expected, atol=1e-5)
    in_a_line = torch.arange(ids.shape[1]).expand(3, 1, -1)
    flat = model(**inputs, position_ids=in_a_line).embeddings[0]
    assert (flat - expected).abs().max() > 1e-3, "the test would not see the defect"
