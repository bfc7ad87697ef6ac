"""The backbone computes what transformers' own forward pass computes, on pages of several sizes at once."""

from __future__ import annotations

import re

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence

from conceptformer.concept_tokens import concept_token_ids
from tests.conceptformer.tiny_models import noise_image, tiny_backbone

SIZES = ((100, 150), (150, 60), (30, 30), (112, 112))


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone()


@pytest.fixture(scope="module")
def pages(backbone):
    return [backbone.inputs.read_page(noise_image(*size, seed)) for seed, size in enumerate(SIZES)]


def joined(backbone, pages, suffixes):
    """Padded token ids [B, L], positions [3, B, L] and lengths of prefix and suffix sequences."""
    rows, places = [], []
    for page, suffix in zip(pages, suffixes, strict=True):
        prefix = backbone.inputs.prefix_ids(page.grid)
        positions, following = backbone.prefix_positions(prefix, page.grid)
        rest = torch.arange(following, following + len(suffix)).expand(3, -1)
        rows.append(torch.tensor(prefix + suffix))
        places.append(torch.cat([positions, rest], dim=1).T)
    ids = pad_sequence(rows, batch_first=True, padding_value=backbone.inputs.tokenizer.pad_token_id)
    return ids, pad_sequence(places, batch_first=True).permute(2, 0, 1), [len(row) for row in rows]


def embedded(backbone, pages, ids):
    pixels = torch.cat([page.pixels for page in pages])
    features = backbone.embed_images(pixels, [page.grid for page in pages])
    embeddings = backbone.embed_tokens(ids)
    return embeddings.masked_scatter(backbone.image_mask(ids)[..., None], features.to(embeddings.dtype))


def reference(backbone, pages, ids, lengths):
    """transformers' own forward pass over padded sequences."""
    return backbone.model(
        input_ids=ids,
        attention_mask=(torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]).int(),
        pixel_values=torch.cat([page.pixels for page in pages]),
        image_grid_thw=torch.tensor([[1, 2 * page.grid.rows, 2 * page.grid.columns] for page in pages]),
        mm_token_type_ids=(ids == backbone.model.config.image_token_id).int(),
    ).last_hidden_state


def within(states, lengths):
    return torch.cat([row[:length] for row, length in zip(states, lengths, strict=True)])


def suffixes(backbone):
    queries = {"red": 1, "a blue circle beside the square": 5, "x": 9, "what is on this page?": 2}
    return [backbone.inputs.concept_suffix_ids(query, slots) for query, slots in queries.items()]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_hidden_states_of_padded_page_and_concept_sequences_are_those_of_transformers(pages, attention):
    backbone = tiny_backbone(attention=attention)
    for endings in ([backbone.inputs.page_suffix_ids()] * len(pages), suffixes(backbone)):
        ids, positions, lengths = joined(backbone, pages, endings)
        assert len(set(lengths)) > 1
        states = backbone.hidden_states(embedded(backbone, pages, ids), positions, None)
        assert states.shape == (len(pages), max(lengths), backbone.hidden_size)
        theirs = reference(backbone, pages, ids, lengths)
        torch.testing.assert_close(within(states, lengths), within(theirs, lengths), rtol=0, atol=1e-5)


def test_positions_that_count_up_give_other_hidden_states(backbone, pages):
    ids, positions, lengths = joined(backbone, pages, suffixes(backbone))
    embeddings = embedded(backbone, pages, ids)
    states = backbone.hidden_states(embeddings, positions, None)
    counted = torch.arange(ids.shape[1]).expand(3, len(pages), -1)
    flat = backbone.hidden_states(embeddings, counted, None)
    assert (within(states, lengths) - within(flat, lengths)).abs().max() > 1e-3
    # Without the kinds of tokens transformers counts up too, and says nothing.
    silent = backbone.model(inputs_embeds=embeddings).last_hidden_state
    torch.testing.assert_close(silent, flat)


def test_positions_of_a_prefix_by_hand(backbone):
    grid = backbone.inputs.grid_of((56, 84))
    assert (grid.rows, grid.columns) == (3, 2)
    ids = backbone.inputs.prefix_ids(grid)
    start = ids.index(backbone.inputs.image_token_id)
    positions, following = backbone.prefix_positions(ids, grid)
    assert positions.dtype == torch.int64
    assert positions[:, :start].tolist() == [list(range(start))] * 3
    # Three rows of two tokens; the token behind them goes on from the larger side, 3.
    assert (positions[:, start : start + 6] - start).tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 2, 2],
        [0, 1, 0, 1, 0, 1],
    ]
    assert positions[:, start + 6].tolist() == [start + 3] * 3
    assert following == start + 4


def test_positions_with_a_wrong_number_of_axes_are_refused(backbone):
    embeddings = torch.zeros(2, 5, backbone.hidden_size)
    for shape in ((2, 5), (1, 2, 5), (4, 2, 5), (3, 2, 4)):
        with pytest.raises(ValueError, match=r"positions: expected shape \[3, 2, 5\]"):
            backbone.hidden_states(embeddings, torch.zeros(shape, dtype=torch.long), None)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_causal_mask_and_none_are_equal(pages, attention):
    backbone = tiny_backbone(attention=attention)
    ids, positions, _ = joined(backbone, pages, suffixes(backbone))
    embeddings = embedded(backbone, pages, ids)
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril().expand(len(ids), 1, -1, -1)
    masked = backbone.hidden_states(embeddings, positions, causal)
    torch.testing.assert_close(masked, backbone.hidden_states(embeddings, positions, None), rtol=0, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_token_that_is_masked_changes_nothing_and_one_that_is_not_does(pages, attention):
    backbone = tiny_backbone(attention=attention)
    ids, positions, _ = joined(backbone, pages[:2], suffixes(backbone)[:2])
    embeddings = embedded(backbone, pages[:2], ids)
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril().repeat(2, 1, 1, 1)
    mask[:, :, 20:, 15] = False
    before = backbone.hidden_states(embeddings, positions, mask)
    changed = embeddings.clone()
    changed[:, 15] += 1
    after = backbone.hidden_states(changed, positions, mask)
    assert torch.equal(before[:, :15], after[:, :15])
    assert (before[:, 16] - after[:, 16]).abs().max() > 1e-4
    # Tokens 16 to 19 saw it and are seen by those that follow.
    mask[:, :, 20:, 15:20] = False
    before = backbone.hidden_states(embeddings, positions, mask)
    assert torch.equal(before[:, 20:], backbone.hidden_states(changed, positions, mask)[:, 20:])


def test_image_features_are_those_of_transformers_for_each_page_alone(backbone, pages):
    together = backbone.embed_images(torch.cat([page.pixels for page in pages]), [page.grid for page in pages])
    assert together.shape == (sum(len(page.grid) for page in pages), backbone.hidden_size)
    alone = [
        backbone.model.get_image_features(
            page.pixels, image_grid_thw=torch.tensor([[1, 2 * page.grid.rows, 2 * page.grid.columns]])
        ).pooler_output[0]
        for page in pages
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-6)


def test_features_come_in_the_order_of_token_indices(backbone):
    # One cell of a grey page is painted: of all tokens its own changes most.
    grey = noise_image(112, 140)
    grey.paste("grey", (0, 0, *grey.size))
    painted = grey.copy()
    painted.paste("white", (56, 84, 84, 112))
    before, after = (backbone.inputs.read_page(image) for image in (grey, painted))
    assert (before.grid.rows, before.grid.columns) == (5, 4)
    difference = backbone.embed_images(after.pixels, [after.grid]) - backbone.embed_images(before.pixels, [before.grid])
    assert difference.norm(dim=1).argmax().item() == 3 * 4 + 2


def test_gradients_reach_vision_tower_and_table(pages):
    backbone = tiny_backbone()
    ids, positions, lengths = joined(backbone, pages, suffixes(backbone))
    states = backbone.hidden_states(embedded(backbone, pages, ids), positions, None)
    torch.stack([row[length - 1] for row, length in zip(states, lengths, strict=True)]).square().sum().backward()
    without = [name for name, weight in backbone.model.named_parameters() if weight.grad is None]
    assert without == []
    assert backbone.model.visual.patch_embed.proj.weight.grad.abs().max() > 0
    _, concept, _ = concept_token_ids(backbone.inputs.tokenizer)
    assert backbone.model.language_model.embed_tokens.weight.grad[concept].abs().max() > 0


def test_bfloat16_runs_and_stays_near_float32(backbone, pages):
    half = tiny_backbone(dtype="bfloat16")
    ids, positions, lengths = joined(backbone, pages, suffixes(backbone))
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril().expand(len(ids), 1, -1, -1)
    exact = within(backbone.hidden_states(embedded(backbone, pages, ids), positions, None), lengths)
    for mask in (None, causal):
        states = half.hidden_states(embedded(half, pages, ids), positions, mask)
        assert states.dtype == torch.bfloat16
        assert torch.nn.functional.cosine_similarity(within(states, lengths).float(), exact).min() > 0.995


def test_the_regular_expression_finds_all_of_the_language_model_and_nothing_else(backbone):
    names = {name for name, _ in backbone.model.named_modules()}
    matched = {name for name in names if re.fullmatch(backbone.language_modules, name)}
    assert matched == {name for name in names if name.startswith("language_model.")}
    assert "language_model.layers.1.mlp.up_proj" in matched
    assert "visual.blocks.1.mlp.up_proj" in names - matched


def test_adapters_and_trainable_rows_work_in_place(pages):
    backbone = tiny_backbone()
    ids, positions, _ = joined(backbone, pages, suffixes(backbone))
    before = backbone.hidden_states(embedded(backbone, pages, ids), positions, None)
    new_rows = list(concept_token_ids(backbone.inputs.tokenizer))
    get_peft_model(
        backbone.model,
        LoraConfig(
            target_modules=rf"(?={backbone.language_modules}$).*\.(q_proj|down_proj)",
            trainable_token_indices={backbone.token_table: new_rows},
        ),
    )
    after = backbone.hidden_states(embedded(backbone, pages, ids), positions, None)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)
    after.square().sum().backward()
    touched = {name for name, weight in backbone.model.named_parameters() if weight.grad is not None}
    assert any("trainable_tokens_delta" in name for name in touched)
    assert not any(name.startswith("visual.") for name in touched)


def test_patches_as_a_product_of_matrices_are_what_the_convolution_gives():
    convolution = tiny_backbone().model.visual.patch_embed.proj
    pixels = torch.randn(7, convolution.in_channels, *convolution.kernel_size)
    expected = torch.nn.Conv3d.forward(convolution, pixels).flatten(1)
    assert torch.allclose(convolution(pixels), expected, atol=1e-5)
