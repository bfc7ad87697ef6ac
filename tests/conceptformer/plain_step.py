"""A training step once more, in its plain form, the tests' witness: for each pair a call of transformers' own model for
the query, another for the page and a third for the concept, one sequence at a time, without padding, masks or positions
of ours; the vision tower runs in every call that has an image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from conceptformer.backbones.protocol import PageInput, TokenGrid
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.data.images import open_image
from conceptformer.records import TrainingExample

ConceptOf = Callable[[Qwen2_5_VL, TrainingExample, PageInput], "torch.Tensor | None"]
"""The concept of a pair [D], not normalised; None where it has none."""


def states(
    backbone: Qwen2_5_VL, ids: Sequence[int], page: PageInput | None = None, replaced: dict | None = None
) -> torch.Tensor:
    """Last hidden states [L, D]. ``replaced`` holds input embeddings by their places."""
    tokens = torch.tensor([list(ids)])
    options = {}
    if page is not None:
        options = {
            "pixel_values": page.pixels,
            "image_grid_thw": image_grid(page.grid),
            "mm_token_type_ids": (tokens == backbone.model.config.image_token_id).int(),
        }
    if replaced:
        embeddings = backbone.model.get_input_embeddings()(tokens).clone()
        for place, embedding in replaced.items():
            embeddings[0, place] = embedding
        options["inputs_embeds"] = embeddings
    return backbone.model(input_ids=tokens, **options).last_hidden_state[0]


def image_grid(grid: TokenGrid) -> torch.Tensor:
    """In patches, two to a token along each side."""
    return torch.tensor([[1, 2 * grid.rows, 2 * grid.columns]])


def image_features(backbone: Qwen2_5_VL, page: PageInput) -> torch.Tensor:
    return backbone.model.get_image_features(page.pixels, image_grid(page.grid)).pooler_output[0]


def covered(example: TrainingExample, grid: TokenGrid) -> list[int]:
    """Each token that shares area with a box, box after box."""
    return [
        row * grid.columns + column
        for box in example.boxes
        for row in range(grid.rows)
        for column in range(grid.columns)
        if row < box.bottom * grid.rows and box.top * grid.rows < row + 1
        if column < box.right * grid.columns and box.left * grid.columns < column + 1
    ]


def latent(
    *, fixed: int | None = None, visual: bool = False, end_state: bool = False, union: bool = False
) -> ConceptOf:
    """The paper's concepts and their variants."""

    def concept_of(backbone: Qwen2_5_VL, example: TrainingExample, page: PageInput) -> torch.Tensor | None:
        boxed = covered(example, page.grid)
        boxed = sorted(set(boxed)) if union else boxed
        if not boxed:
            return None
        slots = fixed or len(boxed)
        ids = backbone.inputs.prefix_ids(page.grid) + backbone.inputs.concept_suffix_ids(example.query, slots)
        token = backbone.inputs.tokenizer.convert_tokens_to_ids("<|lcon|>")
        places = [place for place, number in enumerate(ids) if number == token]
        assert len(places) == slots
        features = image_features(backbone, page).detach() if visual else None
        replaced = {place: features[number] for place, number in zip(places, boxed, strict=True)} if visual else {}
        hidden = states(backbone, ids, page, replaced)
        return hidden[-1] if end_state else sum(hidden[place] for place in places) / slots

    return concept_of


def text(backbone: Qwen2_5_VL, example: TrainingExample, page: PageInput) -> torch.Tensor | None:
    labels = [box.label for box in example.boxes if box.label.strip()]
    return states(backbone, backbone.inputs.query_ids("\n".join(labels)))[-1] if labels else None


def vision(backbone: Qwen2_5_VL, example: TrainingExample, page: PageInput) -> torch.Tensor | None:
    boxed = covered(example, page.grid)
    return sum(image_features(backbone, page)[number] for number in boxed) / len(boxed) if boxed else None


def nothing(backbone: Qwen2_5_VL, example: TrainingExample, page: PageInput) -> None:
    return None


def normalised(vector: torch.Tensor) -> torch.Tensor:
    return vector / vector.pow(2).sum().sqrt()


def embeddings(
    backbone: Qwen2_5_VL,
    examples: Sequence[TrainingExample],
    concept_of: ConceptOf,
    projection: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor | None]]:
    """Queries, pages and concepts, [D] each."""
    queries, pages, concepts = [], [], []
    for example in examples:
        page = backbone.inputs.read_page(open_image(example.page.image))
        prefix = backbone.inputs.prefix_ids(page.grid)
        queries.append(normalised(states(backbone, backbone.inputs.query_ids(example.query))[-1]))
        pages.append(normalised(states(backbone, prefix + backbone.inputs.page_suffix_ids(), page)[-1]))
        concept = concept_of(backbone, example, page)
        if concept is not None and projection is not None:
            concept = projection @ concept
        concepts.append(None if concept is None else normalised(concept))
    return queries, pages, concepts


def log_distribution(anchor: torch.Tensor, pages: Sequence[torch.Tensor], temperature: float) -> torch.Tensor:
    """Eq. 4, its logarithm."""
    scores = torch.stack([anchor @ page for page in pages]) / temperature
    return scores - scores.exp().sum().log()


def losses(
    queries: Sequence[torch.Tensor],
    pages: Sequence[torch.Tensor],
    concepts: Sequence[torch.Tensor | None],
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """InfoNCE (Eq. 5) and alignment (Eq. 16)."""
    contrast = [-log_distribution(query, pages, temperature)[row] for row, query in enumerate(queries)]
    alignment = []
    for query, concept in zip(queries, concepts, strict=True):
        if concept is not None:
            teacher = log_distribution(query, pages, temperature).detach()
            alignment.append((teacher.exp() * (teacher - log_distribution(concept, pages, temperature))).sum())
    mean = sum(alignment) / len(alignment) if alignment else torch.zeros(())
    return sum(contrast) / len(contrast), mean
