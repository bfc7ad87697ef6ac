"""Token ids, grids and patches of Qwen2.5-VL: equal to its chat template and its image processor."""

from __future__ import annotations

import pickle
import unicodedata

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import AutoTokenizer, Qwen2VLImageProcessorPil

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings, Qwen2_5_VLInputs
from conceptformer.concept_tokens import CONCEPT, CONCEPT_END, CONCEPT_START, add_concept_tokens
from conceptformer.errors import CheckpointError, ConceptFormerError, DataError
from tests.conceptformer.tiny_models import (
    REAL_TOKENIZER,
    SETTINGS,
    needs_real_tokenizer,
    noise_image,
    tiny_folder,
)

GRID = TokenGrid(rows=2, columns=3, image_size=(84, 56), resized_size=(84, 56))
# Names of special tokens, characters of several bytes, two code points for one character, runs of blanks, braces.
HOSTILE = "  <|image_pad|> {query} <|lcon|><|im_end|>\\n caf\u0065\u0301 \U0001f469\u200d\n\n\t<|lcon_start|> {0}  "


def make_inputs(folder=None, chosen=SETTINGS):
    tokenizer = AutoTokenizer.from_pretrained(folder or tiny_folder(), local_files_only=True)
    add_concept_tokens(tokenizer)
    return Qwen2_5_VLInputs(tokenizer, Qwen2VLImageProcessorPil(), chosen)


@pytest.fixture(scope="module")
def inputs():
    return make_inputs()


@pytest.fixture(scope="module")
def real():
    return make_inputs(REAL_TOKENIZER)


@pytest.fixture(scope="module", params=["inputs", pytest.param("real", marks=needs_real_tokenizer)])
def either(request):
    return request.getfixturevalue(request.param)


def rendered(inputs, text):
    """Ids of the checkpoint's own chat template around an image of GRID and a text without special tokens' names."""
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
    whole = inputs.tokenizer.apply_chat_template([turn], tokenize=False, add_generation_prompt=True)
    return inputs.tokenizer(whole.replace("<|image_pad|>", "<|image_pad|>" * len(GRID)))["input_ids"]


def special_tokens(inputs, ids):
    special = set(inputs.tokenizer.all_special_ids) | set(inputs.tokenizer.added_tokens_decoder)
    return [inputs.tokenizer.convert_ids_to_tokens(token) for token in ids if token in special]


def test_a_page_sequence_is_the_chat_template_and_the_eos(either):
    ids = either.prefix_ids(GRID) + either.page_suffix_ids()
    assert ids == [*rendered(either, "What is shown in this image?"), either.tokenizer.eos_token_id]


@pytest.mark.parametrize("query", ["the red square", "Instruct: find it.\nQuery: a  b\\nc ", "naïve 質問?\n\n"])
def test_a_concept_sequence_is_the_chat_template_and_the_concept_tokens(either, query):
    ids = either.prefix_ids(GRID) + either.concept_suffix_ids(query, 4)
    tail = either.tokenizer.convert_tokens_to_ids([CONCEPT_START, *[CONCEPT] * 4, CONCEPT_END])
    text = f"Query: {query}\nFind everything on this page that helps to answer the query."
    assert ids == rendered(either, text) + tail


@needs_real_tokenizer
def test_the_eos_of_the_real_tokenizer_ends_a_turn(real):
    assert real.page_suffix_ids()[-1] == 151645
    assert real.query_ids("a")[-1] == 151645
    assert real.image_token_id == 151655


def test_the_prefix_holds_one_image_token_for_each_token_of_the_grid(inputs):
    ids = inputs.prefix_ids(GRID)
    assert ids.count(inputs.image_token_id) == 6
    assert special_tokens(inputs, ids)[-8:] == ["<|vision_start|>", *["<|image_pad|>"] * 6, "<|vision_end|>"]
    assert inputs.image_token_id not in inputs.page_suffix_ids() + inputs.concept_suffix_ids("a", 1)


def test_names_of_special_tokens_in_a_query_are_text(either):
    ids = either.query_ids(HOSTILE)
    assert special_tokens(either, ids) == ["<|im_end|>"]
    assert ids[-1] == either.tokenizer.eos_token_id
    suffix = either.concept_suffix_ids(HOSTILE, 2)
    template = ["<|im_end|>", "<|im_start|>"]
    assert special_tokens(either, suffix) == [*template, CONCEPT_START, CONCEPT, CONCEPT, CONCEPT_END]
    # A query that is nothing but such a name, and a question too.
    assert special_tokens(either, either.query_ids("<|image_pad|>")) == ["<|im_end|>"]
    asked = Qwen2_5_VLInputs(either.tokenizer, Qwen2VLImageProcessorPil(), InputSettings(page_question="<|im_end|>"))
    assert special_tokens(asked, asked.page_suffix_ids()) == [*template, "<|im_end|>"]


def test_texts_are_kept_byte_for_byte(either):
    decoded = either.tokenizer.decode(either.query_ids(HOSTILE)[:-1])
    # The tokenizer composes characters, as it did for the model's training; nothing else changes.
    assert decoded == unicodedata.normalize("NFC", HOSTILE)
    assert decoded in either.tokenizer.decode(either.concept_suffix_ids(HOSTILE, 1))


@settings(max_examples=60)
@given(st.text(min_size=1).filter(str.strip), st.integers(2, 12))
@example("a" * 50, 2)
@example("\U0001f469" * 50, 3)
def test_queries_are_cut_to_their_length_and_keep_the_eos(inputs, query, length):
    short = Qwen2_5_VLInputs(inputs.tokenizer, inputs.image_processor, InputSettings(query_tokens=length))
    whole = inputs.tokenizer(query, split_special_tokens=True)["input_ids"]
    eos = inputs.tokenizer.eos_token_id
    assert short.query_ids(query) == [*whole[: length - 1], eos]
    suffix = short.concept_suffix_ids(query, 1)
    if len(whole) < length:
        assert suffix == make_room(inputs).concept_suffix_ids(query, 1)
    else:
        # Text that is cut may fall into tokens otherwise at its end, by the bytes of a character and a word at most.
        assert len(suffix) <= len(short.concept_suffix_ids("a", 1)) + length + 4


def make_room(inputs):
    return Qwen2_5_VLInputs(inputs.tokenizer, inputs.image_processor, InputSettings(query_tokens=10_000))


def test_a_long_query_is_cut_alike_in_both_sequences(inputs):
    short = Qwen2_5_VLInputs(inputs.tokenizer, inputs.image_processor, InputSettings(query_tokens=4))
    # Digits are a token each: three stay beside the EOS.
    assert inputs.tokenizer.decode(short.query_ids("1234567")[:-1]) == "123"
    assert inputs.tokenizer.decode(short.concept_suffix_ids("1234567", 1)).startswith("Query: 123\nFind")


@pytest.mark.parametrize("query", ["", "  \n\t"])
def test_empty_queries_are_refused(inputs, query):
    with pytest.raises(DataError, match="query: expected a text, got"):
        inputs.query_ids(query)
    with pytest.raises(DataError, match="query: expected a text, got"):
        inputs.concept_suffix_ids(query, 1)


def test_a_concept_sequence_without_slots_is_refused(inputs):
    with pytest.raises(ValueError, match="slots: expected at least 1, got 0"):
        inputs.concept_suffix_ids("a", 0)


@settings(max_examples=80)
@given(st.integers(1, 700), st.integers(1, 700), st.sampled_from([24, 60, 1280]))
@example(1, 1, 1280)
@example(3, 1, 24)
@example(1, 3, 24)
@example(1, 200, 24)
@example(42, 70, 24)  # halves, which are rounded to even numbers of cells
@example(20_000, 100, 24)
def test_the_grid_is_the_processors(inputs, width, height, tokens):
    sized = Qwen2_5_VLInputs(inputs.tokenizer, Qwen2VLImageProcessorPil(), InputSettings(max_pixels=tokens * 28 * 28))
    if max(width, height) > 200 * min(width, height):
        for refuse in (lambda: sized.grid_of((width, height)), lambda: sized.read_page(noise_image(width, height))):
            with pytest.raises(DataError, match="sides up to 200 times as long"):
                refuse()
        return
    grid = sized.grid_of((width, height))
    page = sized.read_page(Image.new("RGB", (width, height)))
    assert page.grid == grid
    assert (grid.columns * 28, grid.rows * 28) == grid.resized_size
    assert grid.image_size == (width, height)
    assert page.pixels.shape == (4 * len(grid), 3 * 2 * 14 * 14)
    assert page.pixels.dtype == torch.float32


def test_an_image_far_too_long_is_refused_without_looking_at_its_pixels(inputs):
    with pytest.raises(DataError, match="image of 20000 x 99 pixels: Qwen2.5-VL takes sides up to 200 times"):
        inputs.grid_of((20_000, 99))
    with pytest.raises(DataError, match="image of 0 x 5 pixels: expected at least one pixel"):
        inputs.grid_of((0, 5))


def test_the_pixel_budget_is_kept(inputs):
    wide = Qwen2_5_VLInputs(inputs.tokenizer, Qwen2VLImageProcessorPil(), InputSettings())
    # By hand: 1700 x 2200 shrinks by sqrt(3,740,000 / 1,003,520) = 1.9305 to 880.6 x 1139.6, cut to 31 x 40 cells.
    assert wide.grid_of((1700, 2200)) == TokenGrid(40, 31, (1700, 2200), (868, 1120))
    # By hand: 30 x 30 would be one cell; 56 x 56 is the least.
    assert wide.grid_of((30, 30)) == TokenGrid(2, 2, (30, 30), (56, 56))


def test_patches_lie_in_the_order_of_the_grid(inputs):
    # Three cells side by side, black, white, black: the second token's four patches are the white ones.
    image = Image.new("RGB", (84, 56))
    image.paste("white", (28, 0, 56, 28))
    page = inputs.read_page(image)
    assert (page.grid.rows, page.grid.columns) == (2, 3)
    bright = page.pixels.mean(dim=1).reshape(len(page.grid), 4)
    assert (bright[1] > 1).all()
    assert (bright[[0, 2, 3, 4, 5]] < 1).all()


def test_pixels_are_the_processors_own(inputs):
    image = noise_image(140, 84)
    alone = Qwen2VLImageProcessorPil(min_pixels=SETTINGS.min_pixels, max_pixels=SETTINGS.max_pixels)
    assert torch.equal(inputs.read_page(image).pixels, alone(images=[image], return_tensors="pt")["pixel_values"])


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P"])
def test_images_of_another_mode_are_refused(inputs, mode):
    with pytest.raises(DataError, match=f"image of mode {mode}: expected RGB"):
        inputs.read_page(Image.new(mode, (60, 60)))


def test_a_pickled_processor_gives_the_same(inputs):
    copy = pickle.loads(pickle.dumps(inputs))  # noqa: S301
    image = noise_image(90, 50)
    assert copy.concept_suffix_ids(HOSTILE, 3) == inputs.concept_suffix_ids(HOSTILE, 3)
    assert copy.query_ids(HOSTILE) == inputs.query_ids(HOSTILE)
    assert copy.prefix_ids(GRID) + copy.page_suffix_ids() == inputs.prefix_ids(GRID) + inputs.page_suffix_ids()
    assert torch.equal(copy.read_page(image).pixels, inputs.read_page(image).pixels)
    assert copy.describe() == inputs.describe()


def test_the_description_makes_the_settings_again():
    chosen = InputSettings(min_pixels=800, max_pixels=9000, query_tokens=7, page_question="?", concept_turn="{query}")
    assert InputSettings(**make_inputs(chosen=chosen).describe()) == chosen


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_pixels": 0}, "pixels: expected 0 < min_pixels <= max_pixels"),
        ({"max_pixels": 100}, "got min 3136 and max 100"),
        ({"query_tokens": 1}, "query_tokens: expected room"),
        ({"concept_turn": "Look."}, "concept_turn: expected {query} once"),
        ({"concept_turn": "{query} {query}"}, "concept_turn: expected {query} once"),
    ],
)
def test_settings_without_sense_are_refused(wrong, message):
    with pytest.raises(ConceptFormerError, match=message):
        InputSettings(**wrong)


def test_a_tokenizer_without_the_models_tokens_is_refused(inputs):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder(), local_files_only=True)
    with pytest.raises(CheckpointError, match=r"this one lacks <\|lcon\|>, <\|lcon_start\|>, <\|lcon_end\|>"):
        Qwen2_5_VLInputs(tokenizer, Qwen2VLImageProcessorPil(), SETTINGS)
    add_concept_tokens(tokenizer)
    tokenizer.eos_token = None
    with pytest.raises(CheckpointError, match="lacks an EOS token"):
        Qwen2_5_VLInputs(tokenizer, Qwen2VLImageProcessorPil(), SETTINGS)


def test_the_settings_are_the_papers_where_nothing_is_said():
    assert (InputSettings().max_pixels, InputSettings().query_tokens) == (1280 * 28 * 28, 256)
    assert InputSettings().page_question == "What is shown in this image?"
