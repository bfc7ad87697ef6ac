"""The data's part of a plan: rows, and the tokens of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conceptformer.backbones.protocol import InputProcessor
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.errors import DataError
from conceptformer.plan.pair_tokens import (
    LengthSummary,
    Pair,
    PairTokens,
    longest_pair,
    stated_pair,
    summarise,
    tokens_of_all,
    typical_pair,
)
from conceptformer.records import TrainingSet


@dataclass(frozen=True)
class StatedData:
    """What a plan supposes where the data are not at hand.

    Attributes:
        source: Where the figures come from, for the reader of the plan.
        image_size, longest_image_size: (width, height) in pixels of a typical page, and of one with the most tokens.
        query, longest_query: Tokens.
        concepts, concepts_p90, longest_concepts: Visual tokens under the boxes.
    """

    name: str
    source: str
    rows: int
    image_size: tuple[int, int]
    longest_image_size: tuple[int, int]
    query: int
    longest_query: int
    concepts: int
    concepts_p90: int
    longest_concepts: int


PAPER_DATA = StatedData(
    name="the paper's training set",
    source=(
        "rows as published; concept tokens' median and P90 from the paper's Figure 3a; pages of 1,200 visual tokens, "
        "1,280 at most (the pixel budget), and queries of 30 tokens, 256 at most, are assumed; so is the longest "
        "concept, a box over a whole page"
    ),
    rows=37_966,
    image_size=(840, 1120),
    longest_image_size=(896, 1120),
    query=30,
    longest_query=256,
    concepts=50,
    concepts_p90=224,
    longest_concepts=1280,
)


@dataclass(frozen=True)
class DataPlan:
    """The rows, and the tokens of each.

    Attributes:
        assumed: Where the figures come from if the data were not at hand; None if these are the data's own.
        refused: A line for each row or box that is left out.
        without_boxes: Rows; None where it is not known.
        lengths: Tokens by kind: visual, query, concept, text (in place of the concept), row (all of the page's
            sequence); a kind that no pair has is missing.
        typical, longest: Of the row with the median length; of the longest row with the longest query.
    """

    name: str
    assumed: str | None
    rows: int
    without_boxes: int | None
    refused: tuple[str, ...]
    lengths: Mapping[str, LengthSummary]
    typical: PairTokens
    longest: PairTokens


def plan_data(data: TrainingSet | StatedData, inputs: InputProcessor, concepts: ConceptSource) -> DataPlan:
    """Rows and tokens, counted or supposed.

    Raises:
        DataError: No row can be used.
    """
    return _stated(data, inputs, concepts) if isinstance(data, StatedData) else _counted(data, inputs, concepts)


def _counted(data: TrainingSet, inputs: InputProcessor, concepts: ConceptSource) -> DataPlan:
    tokens, refused = tokens_of_all(data.examples, inputs, concepts)
    if not tokens:
        raise DataError(f"{data.name}: none of its {len(data.examples)} rows can be used; the first: {refused[0]}")
    kinds: dict[str, Callable[[PairTokens], int]] = {
        "visual": lambda counted: counted.visual,
        "query": lambda counted: counted.query,
        "concept": lambda counted: counted.concepts,
        "text": lambda counted: counted.text,
        "row": lambda counted: counted.joint,
    }
    lengths = {kind: summarise(tokens, length) for kind, length in kinds.items()}
    boxes: dict[Pair, bool] = {(row.query_id, row.page.page_id): bool(row.boxes) for row in data.examples}
    return DataPlan(
        name=data.name,
        assumed=None,
        rows=len(tokens),
        without_boxes=sum(not boxes[pair] for pair in tokens),
        refused=(*data.refused, *refused),
        lengths={kind: summary for kind, summary in lengths.items() if summary is not None},
        typical=typical_pair(tokens),
        longest=longest_pair(tokens),
    )


def _stated(data: StatedData, inputs: InputProcessor, concepts: ConceptSource) -> DataPlan:
    typical, longest = (
        stated_pair(inputs, concepts, image_size=image_size, query_tokens=query, box_tokens=box_tokens)
        for image_size, query, box_tokens in (
            (data.image_size, data.query, data.concepts),
            (data.longest_image_size, data.longest_query, data.longest_concepts),
        )
    )
    lengths = {
        "visual": LengthSummary(typical.visual, None, longest.visual),
        "query": LengthSummary(typical.query, None, longest.query),
        "row": LengthSummary(typical.joint, None, longest.joint),
    }
    if typical.concepts:
        # A fixed length knows nothing of the boxes' own.
        p90 = data.concepts_p90 if typical.concepts == data.concepts else typical.concepts
        lengths["concept"] = LengthSummary(typical.concepts, p90, longest.concepts)
    if typical.text:
        lengths["text"] = LengthSummary(typical.text, None, longest.text)
    return DataPlan(data.name, data.source, data.rows, None, (), lengths, typical, longest)
