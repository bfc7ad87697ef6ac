"""How many tokens training pairs have, from image sizes, boxes and texts alone; no page is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conceptformer.backbones.protocol import InputProcessor, TokenGrid
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox, Page, TrainingExample

Pair = tuple[str, str]
"""Query id and page id."""

_LONGEST_SHOWN = 3


@dataclass(frozen=True)
class PairTokens:
    """Tokens of one training pair, as the language model sees them.

    Attributes:
        grid: Visual tokens of the page.
        query: Of the query sequence, with its EOS.
        prefix: From the start of the chat turn to the end of the image, the visual tokens in it.
        page_suffix, concept_suffix: After the prefix in the page and in the concept sequence; the latter is 0 where the
            pair has no concept.
        concepts: Of the concept suffix, those at ``<|lcon|>``.
        text: Of a text that stands for the concept; 0 without one.
    """

    grid: TokenGrid
    query: int
    prefix: int
    page_suffix: int
    concept_suffix: int
    concepts: int = 0
    text: int = 0

    @property
    def visual(self) -> int:
        """Visual tokens."""
        return len(self.grid)

    @property
    def page(self) -> int:
        """Length of the page sequence."""
        return self.prefix + self.page_suffix

    @property
    def joint(self) -> int:
        """Length of the row with both suffixes."""
        return self.page + self.concept_suffix


@dataclass(frozen=True)
class LengthSummary:
    """One kind of tokens over many pairs.

    Attributes:
        median, p90: The smallest length that at least half, and nine tenths, of the pairs do not exceed; the latter is
            None where it is not known.
        longest: (query id, page id) of the longest, longest first.
    """

    median: int
    p90: int | None
    maximum: int
    longest: tuple[Pair, ...] = ()


def tokens_of(example: TrainingExample, inputs: InputProcessor, concepts: ConceptSource) -> PairTokens:
    """Count the tokens of a pair.

    Raises:
        DataError: The query is empty, or the image has a shape that the model cannot take.
    """
    grid = inputs.grid_of(example.image_size)
    concept = concepts.prepare(example, grid, inputs)
    return PairTokens(
        grid=grid,
        query=len(inputs.query_ids(example.query)),
        prefix=len(inputs.prefix_ids(grid)),
        page_suffix=len(inputs.page_suffix_ids()),
        concept_suffix=len(concept.suffix_ids),
        concepts=concept.slots,
        text=len(concept.text_ids),
    )


def tokens_of_all(
    examples: Sequence[TrainingExample], inputs: InputProcessor, concepts: ConceptSource
) -> tuple[dict[Pair, PairTokens], tuple[str, ...]]:
    """Count the tokens of many pairs.

    Returns:
        By (query id, page id), and one line for each pair that cannot be used, with its reason.
    """
    counted, refused = {}, []
    for example in examples:
        pair = (example.query_id, example.page.page_id)
        try:
            counted[pair] = tokens_of(example, inputs, concepts)
        except DataError as error:
            refused.append(f"query {pair[0]}, page {pair[1]}: {error}")
    return counted, tuple(refused)


def stated_pair(
    inputs: InputProcessor,
    concepts: ConceptSource,
    *,
    image_size: tuple[int, int],
    query_tokens: int,
    box_tokens: int,
) -> PairTokens:
    """A pair of about these lengths, for plans without data.

    Args:
        image_size: (width, height) of the page in pixels.
        query_tokens: Of the query sequence with its EOS; cut where the inputs cut it.
        box_tokens: Visual tokens under the evidence boxes, which lie within the page.

    Raises:
        DataError: The model cannot take an image of this shape, or the page has fewer visual tokens.
    """
    grid = inputs.grid_of(image_size)
    if box_tokens > len(grid):
        raise DataError(
            f"a box over {box_tokens} tokens on a page of {len(grid)}: expected no more; state fewer, or a larger page"
        )
    # One word more at a time: how many tokens a word has is the tokenizer's business.
    words = 1
    while len(inputs.query_ids(" page" * (words + 1))) <= query_tokens and words < query_tokens:
        words += 1
    example = TrainingExample(
        query_id="stated",
        query=" page" * words,
        page=Page("stated", b""),
        image_size=image_size,
        boxes=_boxes_over(box_tokens, grid),
    )
    return tokens_of(example, inputs, concepts)


def _boxes_over(tokens: int, grid: TokenGrid) -> tuple[EvidenceBox, ...]:
    """Boxes that cover this many visual tokens: whole rows from the top, and the rest beside each other below."""
    rows, rest = divmod(tokens, grid.columns)
    # Half a cell inside the last one, so that rounding cannot reach the next.
    bottom, right = (rows - 0.5) / grid.rows, (rest - 0.5) / grid.columns
    below = EvidenceBox(0.0, (rows + 0.25) / grid.rows, right, (rows + 0.75) / grid.rows, "page")
    return (EvidenceBox(0.0, 0.0, 1.0, bottom, "page"),) * (rows > 0) + (below,) * (rest > 0)


def summarise(tokens: Mapping[Pair, PairTokens], length: Callable[[PairTokens], int]) -> LengthSummary | None:
    """Median, 90th percentile and maximum of one kind of tokens, over the pairs that have any; None if none has."""
    lengths = {pair: number for pair, counted in tokens.items() if (number := length(counted))}
    if not lengths:
        return None
    median, p90 = np.percentile(list(lengths.values()), (50, 90), method="inverted_cdf")
    longest = sorted(lengths, key=lambda pair: (-lengths[pair], pair))[:_LONGEST_SHOWN]
    return LengthSummary(int(median), int(p90), max(lengths.values()), tuple(longest))


def typical_pair(tokens: Mapping[Pair, PairTokens]) -> PairTokens:
    """The pair whose row has the median length."""
    ordered = sorted(tokens.values(), key=lambda counted: counted.joint)
    return ordered[(len(ordered) - 1) // 2]


def longest_pair(tokens: Mapping[Pair, PairTokens]) -> PairTokens:
    """The pair with the longest row, and the longest query of all; what a batch can at most come to."""
    longest = max(tokens.values(), key=lambda counted: counted.joint)
    return replace(
        longest,
        query=max(counted.query for counted in tokens.values()),
        text=max(counted.text for counted in tokens.values()),
    )
