"""One step's embeddings, losses and gradients, however they are computed, are those of the plain form."""

from __future__ import annotations

import pytest
import torch

from conceptformer.adapters import LowRankAdaptation
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.data.images import open_image
from conceptformer.step.passes import SharedPrefix, embed_pages, embed_queries
from tests.conceptformer import plain_step
from tests.conceptformer.step_cases import (
    CASES,
    assert_close_gradients,
    assert_like_the_plain_form,
    gradients,
    model_of,
    models_of,
    step,
)
from tests.conceptformer.step_examples import batch_of, mixed
from tests.conceptformer.tiny_models import tiny_backbone


@pytest.fixture(scope="module")
def backbone() -> Qwen2_5_VL:
    return tiny_backbone()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_losses_and_gradients_are_those_of_the_plain_form(backbone, case):
    assert_like_the_plain_form(models_of(backbone, case), case)


def test_a_batch_of_one_has_the_embeddings_of_the_plain_form(backbone):
    """Its losses are zero, with a single candidate: the sum of all three, weighed at random, stands for them."""
    case = CASES["dynamic length"]
    weights = torch.randn(3, backbone.hidden_size, generator=torch.Generator().manual_seed(2))
    examples = mixed()[:1]
    models = models_of(backbone, case)
    plain = torch.cat([torch.stack(part) for part in plain_step.embeddings(backbone, examples, case.plain)])
    expected = gradients(models[0], (plain * weights).sum())
    batch = batch_of(examples, backbone.inputs, case.concepts)
    for model in models:
        assert step(model, batch).total.abs() < 1e-6
        found = model(batch)
        found = torch.cat((found.query, found.page, found.concept))
        torch.testing.assert_close(found, plain, rtol=0, atol=2e-6)
        assert_close_gradients(gradients(model, (found * weights).sum()), expected, 1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_gradient_checkpointing_and_eager_attention_change_nothing(attention):
    case = CASES["visual slots"]
    backbone = tiny_backbone(attention=attention)
    models = models_of(backbone, case)
    assert_like_the_plain_form(models, case)
    calls = []
    backbone.model.language_model.layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append("language"))
    backbone.model.visual.blocks[1].mlp.register_forward_pre_hook(lambda *_: calls.append("vision"))
    batch = batch_of(mixed(), backbone.inputs, case.concepts)
    expected = [gradients(model, step(model, batch).total) for model in models]
    without = sorted(calls)
    backbone.model.train()
    for model, plain in zip(models, expected, strict=True):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        assert_close_gradients(gradients(model, step(model, batch).total), plain, 1e-5)
    # Every layer of both towers once more on the way back.
    assert sorted(calls) == sorted([*without, *without, *without])


@pytest.mark.parametrize(("name", "rows"), [("dynamic length", 2), ("end state", 3)])
def test_low_rank_matrices_and_the_concept_tokens_rows_get_the_gradients_of_the_plain_form(name, rows):
    backbone = tiny_backbone()
    trained = LowRankAdaptation(rank=2, alpha=4, dropout=0).attach(
        backbone, concept_token_ids(backbone.inputs.tokenizer)
    )
    generator = torch.Generator().manual_seed(5)
    for own_name, parameter in backbone.model.named_parameters():
        # They begin as zeros, and the other half's gradients would be zero too.
        if "lora_B" in own_name:
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    models = models_of(backbone, CASES[name])
    models[0].activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    backbone.model.train()
    assert_like_the_plain_form(models, CASES[name])
    reached = {own_name for own_name, parameter in backbone.model.named_parameters() if parameter.grad is not None}
    assert reached == set(trained.names)
    (table,) = (value for own_name, value in backbone.model.named_parameters() if "trainable_tokens_delta" in own_name)
    # No slot sees the end token: only where its own state is read does its row learn anything.
    assert (table.grad.abs().amax(dim=1) > 1e-6).sum() == rows


def test_queries_and_pages_are_embedded_at_inference_as_in_training(backbone):
    examples = mixed()
    case = CASES["dynamic length"]
    batch = batch_of(examples, backbone.inputs, case.concepts)
    with torch.no_grad():
        trained = model_of(backbone, case, SharedPrefix())(batch)
        queries = embed_queries(backbone, [backbone.inputs.query_ids(one.query) for one in examples])
        read = [backbone.inputs.read_page(open_image(one.page.image)) for one in examples]
        pages = embed_pages(backbone, read)
    assert queries.dtype == pages.dtype == torch.float32
    torch.testing.assert_close(queries, trained.query, rtol=0, atol=2e-6)
    torch.testing.assert_close(pages, trained.page, rtol=0, atol=2e-6)
    torch.testing.assert_close(trained.page.norm(dim=1), torch.ones(5), rtol=0, atol=1e-6)
