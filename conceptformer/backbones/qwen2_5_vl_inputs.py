"""Text and page images to what Qwen2.5-VL reads: token ids, patches and their grid.

The chat turns follow the model's own template: a system turn, a user turn that begins with the image, and the start of
the assistant's turn. They are spelled out here instead of rendered from the checkpoint's template, since hub revisions
differ in where they keep it and some hold one for text only; a test compares the two token by token.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from PIL import Image
from transformers import PreTrainedTokenizerBase, Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from conceptformer.backbones.protocol import PageInput, TokenGrid
from conceptformer.concept_tokens import CONCEPT_TOKENS, concept_token_ids
from conceptformer.errors import CheckpointError, ConceptFormerError, DataError

_QUERY_PLACE = "{query}"
_IMAGE_START, _IMAGE, _IMAGE_END = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"
_BEFORE_IMAGE = f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{_IMAGE_START}"
_ANSWER = "<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class InputSettings:
    """How queries and pages are worded and how large they may get. Checkpoints hold these values.

    Attributes:
        min_pixels, max_pixels: Pages are resized, their shape kept, to a number of pixels in this range.
        query_tokens: Longest query, in tokens with its EOS.
        page_question: What the user turn of a page sequence asks after the image.
        concept_turn: What the user turn of a concept sequence says after the image, with ``{query}`` once in it.
    """

    min_pixels: int = 4 * 28 * 28
    max_pixels: int = 1280 * 28 * 28
    query_tokens: int = 256
    page_question: str = "What is shown in this image?"
    concept_turn: str = "Query: {query}\nFind everything on this page that helps to answer the query."

    def __post_init__(self) -> None:
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ConceptFormerError(
                f"pixels: expected 0 < min_pixels <= max_pixels, got min {self.min_pixels} and max {self.max_pixels}"
            )
        if self.query_tokens < 2:
            raise ConceptFormerError(f"query_tokens: expected room for a token and the EOS, got {self.query_tokens}")
        if self.concept_turn.count(_QUERY_PLACE) != 1:
            raise ConceptFormerError(f"concept_turn: expected {_QUERY_PLACE} once in it, got {self.concept_turn!r}")


class Qwen2_5_VLInputs:
    """The input processor of Qwen2.5-VL; see :class:`conceptformer.backbones.protocol.InputProcessor`.

    Attributes:
        tokenizer: Holds the concept tokens.
        settings: Wording and sizes.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        image_processor: Qwen2VLImageProcessorPil,
        settings: InputSettings,
    ) -> None:
        """Tokenise what all sequences share.

        Raises:
            CheckpointError: The tokenizer lacks a token that the sequences need.
        """
        self.tokenizer = tokenizer
        self.settings = settings
        self.image_processor = image_processor
        image_processor.size = {"shortest_edge": settings.min_pixels, "longest_edge": settings.max_pixels}
        _require_special_tokens(tokenizer)
        self.image_token_id, self._image_end = tokenizer.convert_tokens_to_ids([_IMAGE, _IMAGE_END])
        self._before_image = self._template_ids(_BEFORE_IMAGE)
        self._answer = self._template_ids(_ANSWER)
        self._page_suffix = [*self._text_ids(settings.page_question), *self._answer, tokenizer.eos_token_id]

    @property
    def cell(self) -> int:
        """Pixels of the resized image along each side of a visual token."""
        return self.image_processor.patch_size * self.image_processor.merge_size

    def grid_of(self, image_size: tuple[int, int]) -> TokenGrid:
        """The grid that an image of this (width, height) will get.

        Raises:
            DataError: An empty image, or one more than 200 times as long as it is wide.
        """
        return page_grid(image_size, self.settings, self.cell)

    def read_page(self, image: Image.Image) -> PageInput:
        """Resize, normalise and cut an RGB image into patches.

        Raises:
            DataError: The image is not RGB or has a shape that the model cannot take.
        """
        if image.mode != "RGB":
            raise DataError(f"image of mode {image.mode}: expected RGB; convert it (transparent parts over white)")
        expected = self.grid_of(image.size)
        output = self.image_processor(images=[image], return_tensors="pt")
        _, patch_rows, patch_columns = output["image_grid_thw"][0].tolist()
        merge, patch = self.image_processor.merge_size, self.image_processor.patch_size
        grid = TokenGrid(
            patch_rows // merge, patch_columns // merge, image.size, (patch_columns * patch, patch_rows * patch)
        )
        if grid != expected:
            raise DataError(
                f"image of {image.width} x {image.height} pixels: expected {len(expected)} tokens in "
                f"{expected.rows} rows, the image processor made {len(grid)} in {grid.rows}; use the version of "
                "transformers that this package asks for"
            )
        return PageInput(output["pixel_values"].to(torch.float32), grid)

    def query_ids(self, query: str) -> list[int]:
        """Tokens of a query, EOS last, at most ``query_tokens`` long.

        Raises:
            DataError: The query is empty.
        """
        return [*self._text_ids(_checked(query))[: self.settings.query_tokens - 1], self.tokenizer.eos_token_id]

    def prefix_ids(self, grid: TokenGrid) -> list[int]:
        """Tokens from the start of the system turn to the token that closes the image, which is in it."""
        return [*self._before_image, *[self.image_token_id] * len(grid), self._image_end]

    def page_suffix_ids(self) -> list[int]:
        """The question, the start of the assistant's turn, EOS."""
        return list(self._page_suffix)

    def concept_suffix_ids(self, query: str, slots: int) -> list[int]:
        """The query in its wording, the start of the assistant's turn, and the concept tokens as its content.

        A query longer than ``query_tokens`` is cut as in :meth:`query_ids`.

        Raises:
            DataError: The query is empty.
            ValueError: ``slots`` is below 1.
        """
        if slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        turn = self.settings.concept_turn.replace(_QUERY_PLACE, self._cut(_checked(query)))
        start, concept, end = concept_token_ids(self.tokenizer)
        return [*self._text_ids(turn), *self._answer, start, *[concept] * slots, end]

    def describe(self) -> dict[str, object]:
        """The settings by name: ``InputSettings(**described)`` makes them again."""
        return asdict(self.settings)

    def _template_ids(self, text: str) -> list[int]:
        """Tokens of our own wording, in which the names of special tokens stand for them."""
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=False)["input_ids"]

    def _text_ids(self, text: str) -> list[int]:
        """Tokens of anybody's text, in which the names of special tokens are text like any other."""
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]

    def _cut(self, query: str) -> str:
        """The beginning of a query, as many tokens as :meth:`query_ids` keeps; a character cut in two is kept whole."""
        encoded = self.tokenizer(
            query, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
        )
        kept = self.settings.query_tokens - 1
        if len(encoded["input_ids"]) <= kept:
            return query
        return query[: encoded["offset_mapping"][kept - 1][1]]


def page_grid(image_size: tuple[int, int], settings: InputSettings, cell: int = 28) -> TokenGrid:
    """The grid that an image of this (width, height) will get; what it takes is no more than the settings.

    Args:
        cell: Pixels of the resized image along each side of a visual token.

    Raises:
        DataError: An empty image, or one more than 200 times as long as it is wide.
    """
    width, height = image_size
    if min(width, height) < 1:
        raise DataError(f"image of {width} x {height} pixels: expected at least one pixel; replace or leave it out")
    try:
        resized_height, resized_width = smart_resize(height, width, cell, settings.min_pixels, settings.max_pixels)
    except ValueError as error:
        raise DataError(
            f"image of {width} x {height} pixels: Qwen2.5-VL takes sides up to 200 times as long as each other; "
            "cut the image into parts or leave it out"
        ) from error
    rows, columns = resized_height // cell, resized_width // cell
    return TokenGrid(rows, columns, (width, height), (resized_width, resized_height))


def _checked(query: str) -> str:
    if not query.strip():
        raise DataError(f"query: expected a text, got {query!r}; leave such rows out")
    return query


def _require_special_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    names = ("<|im_start|>", "<|im_end|>", _IMAGE_START, _IMAGE, _IMAGE_END, *CONCEPT_TOKENS)
    vocabulary = tokenizer.get_vocab()
    missing = [name for name in names if name not in vocabulary]
    if missing or tokenizer.eos_token_id is None:
        lacking = ", ".join(missing) or "an EOS token"
        raise CheckpointError(f"tokenizer: expected that of Qwen2.5-VL, this one lacks {lacking}; check its folder")
