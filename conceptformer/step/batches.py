"""Training examples to batches: what is read in the data loader's workers, and laid out there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from conceptformer.backbones.protocol import InputProcessor, PageInput
from conceptformer.concepts.protocol import ConceptInput, ConceptSource
from conceptformer.data.images import open_image
from conceptformer.losses import page_key
from conceptformer.records import TrainingExample
from conceptformer.step.batch import PADDING, TrainingBatch


@dataclass(frozen=True)
class ReadExample:
    """One example as token ids and pixels."""

    example: TrainingExample
    page: PageInput
    query_ids: list[int]
    prefix_ids: list[int]
    page_suffix_ids: list[int]
    concept: ConceptInput


class RowSize(NamedTuple):
    """A row of a batch before its page is opened."""

    tokens: int
    has_concept: bool


def read_example(example: TrainingExample, inputs: InputProcessor, concepts: ConceptSource) -> ReadExample:
    """Open the page image and make all token ids.

    Raises:
        DataError: The image cannot be read, or has a shape that the model cannot take.
    """
    page = inputs.read_page(open_image(example.page.image))
    return ReadExample(
        example=example,
        page=page,
        query_ids=inputs.query_ids(example.query),
        prefix_ids=inputs.prefix_ids(page.grid),
        page_suffix_ids=inputs.page_suffix_ids(),
        concept=concepts.prepare(example, page.grid, inputs),
    )


def row_size(example: TrainingExample, inputs: InputProcessor, concepts: ConceptSource) -> RowSize:
    """What the example's row will be, from the image's size alone.

    Raises:
        DataError: The model cannot take an image of this shape.
    """
    grid = inputs.grid_of(example.image_size)
    concept = concepts.prepare(example, grid, inputs)
    tokens = len(inputs.prefix_ids(grid)) + len(inputs.page_suffix_ids()) + len(concept.suffix_ids)
    return RowSize(tokens, concept.exists)


def pad(rows: Sequence[Sequence[int]], filler: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of ids as one tensor [B, longest] and their lengths [B]."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max()) if len(rows) else 0), filler)
    for row, target in zip(rows, ids, strict=True):
        target[: len(row)] = torch.tensor(row, dtype=torch.long)
    return ids, lengths


def make_batch(examples: Sequence[ReadExample]) -> TrainingBatch:
    """Lay examples out as one batch."""
    # Padding is never looked at: any id will do that is no image's.
    filler = examples[0].page_suffix_ids[-1]
    query_ids, query_lengths = pad([example.query_ids for example in examples], filler)
    text_ids, text_lengths = pad([example.concept.text_ids for example in examples], filler)
    parts = [(example.prefix_ids, example.page_suffix_ids, example.concept.suffix_ids) for example in examples]
    joint_ids, _ = pad([[*prefix, *page, *concept] for prefix, page, concept in parts], filler)
    lengths = torch.tensor([[len(part) for part in row] for row in parts])
    segments, _ = pad([[kind for kind, part in enumerate(row) for _ in part] for row in parts], PADDING)
    concept_lengths = lengths[:, 2]
    slots = torch.zeros(len(examples), int(concept_lengths.max()), dtype=torch.bool)
    for row, example in zip(slots, examples, strict=True):
        row[example.concept.first_slot : example.concept.first_slot + example.concept.slots] = True
    records = [example.example for example in examples]
    return TrainingBatch(
        pairs=tuple((record.query_id, record.page.page_id) for record in records),
        query_ids=query_ids,
        query_lengths=query_lengths,
        pixels=torch.cat([example.page.pixels for example in examples]),
        grids=tuple(example.page.grid for example in examples),
        joint_ids=joint_ids,
        segments=segments,
        prefix_lengths=lengths[:, 0],
        suffix_lengths=lengths[:, 1],
        concept_lengths=concept_lengths,
        slots=slots,
        patch_index=tuple(torch.tensor(example.concept.patch_index, dtype=torch.long) for example in examples),
        text_ids=text_ids,
        text_lengths=text_lengths,
        has_concept=torch.tensor([example.concept.exists for example in examples]),
        page_keys=torch.tensor([page_key(record.page.page_id) for record in records]),
        other_keys=pad([[page_key(name) for name in record.other_positives] for record in records], -1)[0],
    )
