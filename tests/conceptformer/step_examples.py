"""Training pairs on small pages of noise: of several sizes, with boxes that overlap, with one box, with none."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

from conceptformer.backbones.protocol import InputProcessor
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.records import EvidenceBox, Page, TrainingExample
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.batches import make_batch, read_example
from tests.conceptformer.tiny_models import noise_image

# No edge of a box lies on an edge of a token, so that no rounding decides what it covers.
OVERLAPPING = (EvidenceBox(0.05, 0.1, 0.45, 0.55, "a legend"), EvidenceBox(0.3, 0.35, 0.95, 0.7, "the blue bar"))
SMALL = (EvidenceBox(0.3, 0.3, 0.4, 0.4),)
WIDE = (EvidenceBox(0.02, 0.6, 0.97, 0.9, "a row"),)


def example(
    number: int,
    size: tuple[int, int],
    query: str,
    boxes: Sequence[EvidenceBox] = (),
    others: Sequence[str] = (),
) -> TrainingExample:
    """The pair ``number``: query q0 on page p0, and so on."""
    content = io.BytesIO()
    noise_image(*size, seed=number).save(content, "PNG")
    page = Page(f"p{number}", content.getvalue())
    return TrainingExample(f"q{number}", query, page, size, tuple(boxes), tuple(others))


def mixed() -> list[TrainingExample]:
    """Five pairs; the second and the last have no boxes, and the last is the longest page of them."""
    return [
        example(0, (100, 150), "the red square", OVERLAPPING),
        example(1, (150, 60), "a circle"),
        example(2, (60, 60), "what is on this page? the blue circle beside the square", SMALL),
        example(3, (112, 84), "x", WIDE),
        example(4, (84, 196), "find everything"),
    ]


def without_boxes(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    return [replace(one, boxes=()) for one in examples]


def batch_of(examples: Sequence[TrainingExample], inputs: InputProcessor, concepts: ConceptSource) -> TrainingBatch:
    return make_batch([read_example(one, inputs, concepts) for one in examples])
