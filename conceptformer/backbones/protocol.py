"""What the trainer needs of a vision-language model; all that differs between models stands behind these two protocols.

A page sequence and a concept sequence of the same page begin with the same tokens, the prefix: everything up to the end
of the image. What follows is the page suffix or the concept suffix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from PIL import Image
from torch import nn
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenGrid:
    """The visual tokens of a page.

    Attributes:
        rows, columns: Of tokens as the language model sees them; token index = row * columns + column.
        image_size: (width, height) in pixels of the page's own image.
        resized_size: (width, height) in pixels of the image that the vision tower sees.
    """

    rows: int
    columns: int
    image_size: tuple[int, int]
    resized_size: tuple[int, int]

    def __len__(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class PageInput:
    """A page ready for the vision tower.

    Attributes:
        pixels: [patches, values] float32, the processor's own output.
        grid: Read off the processor's output and checked against :meth:`InputProcessor.grid_of`.
    """

    pixels: torch.Tensor
    grid: TokenGrid


class InputProcessor(Protocol):
    """Text and images to token ids and pixels. Lives in data-loader workers, holds no weights, can be pickled."""

    tokenizer: PreTrainedTokenizerBase

    def grid_of(self, image_size: tuple[int, int]) -> TokenGrid:
        """The grid that an image of this (width, height) will get, without looking at pixels.

        Raises:
            DataError: The model cannot take an image of this shape.
        """

    def read_page(self, image: Image.Image) -> PageInput:
        """Resize, normalise and cut an image into patches.

        Raises:
            DataError: The model cannot take an image of this shape.
        """

    def query_ids(self, query: str) -> list[int]:
        """Tokens of a query, EOS last, at most ``query_tokens`` long; the text is cut, the EOS stays."""

    def prefix_ids(self, grid: TokenGrid) -> list[int]:
        """Tokens from the start of the chat turn to the end of the image, one image token for each visual token."""

    def page_suffix_ids(self) -> list[int]:
        """Tokens after the prefix in the page sequence, EOS last."""

    def concept_suffix_ids(self, query: str, slots: int) -> list[int]:
        """Tokens after the prefix in the concept sequence: the query, ``<|lcon_start|>``, ``slots`` times ``<|lcon|>``,
        ``<|lcon_end|>`` last."""

    def describe(self) -> dict[str, object]:
        """Prompts, pixel budget and lengths, as the manifest of a checkpoint holds them (JSON values)."""


class Backbone(Protocol):
    """A vision-language model without its output head. Tensors lie on the model's device.

    Attributes:
        inputs: The matching processor.
        model: The transformers model; LoRA changes it in place.
        hidden_size: D.
        position_axes: Axes of rotary positions: 3 for Qwen2.5-VL, 1 for most models.
        language_modules: Regular expression that full-matches the names, within ``model``, of modules of the language
            model and of no other part.
        token_table: Name, within ``model``, of the module that embeds token ids.
    """

    inputs: InputProcessor
    model: nn.Module
    hidden_size: int
    position_axes: int
    language_modules: str
    token_table: str

    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """[...] token ids to [..., D] input embeddings."""

    def embed_images(self, pixels: torch.Tensor, grids: Sequence[TokenGrid]) -> torch.Tensor:
        """The vision tower and its projection, once for all pages of a batch.

        Args:
            pixels: The pages' ``PageInput.pixels`` one after the other.

        Returns:
            [sum of len(grid), D], page after page, in the order of token indices.
        """

    def image_mask(self, ids: torch.Tensor) -> torch.Tensor:
        """[...] token ids to a mask of the places where image features belong."""

    def prefix_positions(self, ids: Sequence[int], grid: TokenGrid) -> tuple[torch.Tensor, int]:
        """Rotary positions of a prefix, and the position of the token that follows it.

        Returns:
            [axes, len(ids)] int64, and the next position; tokens after it count up by one on
            every axis.
        """

    def hidden_states(
        self, embeddings: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """States of the last layer after the final norm.

        Args:
            embeddings: [B, L, D].
            positions: [axes, B, L].
            mask: [B, 1, L, L], True where a token (third axis) may see another (fourth axis); None for causal
                attention over right-padded sequences, which the fast kernels do by themselves.

        Returns:
            [B, L, D] in the model's dtype.
        """

    def describe(self) -> dict[str, object]:
        """Class, name or folder, and revision of the weights, as the manifest holds them (JSON values)."""
