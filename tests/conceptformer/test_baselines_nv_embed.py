"""NV-Embed's network from the release's names, against its formula written out and against transformers."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from conceptformer.baselines import DenseText, NvEmbed, PageTextReader
from conceptformer.baselines.nv_embed_model import NvEmbedConfig, NvEmbedModel
from conceptformer.errors import CheckpointError
from conceptformer.retrieval.evaluation import evaluate_retrieval
from tests.conceptformer.coded_pages import CodedReader, coded_task
from tests.conceptformer.colour_pages import encoding
from tests.conceptformer.tiny_text_checkpoints import HEAD_SIZE, HEADS, mistral, save_nv_embed
from visar.significance import Resampling

PROMPT = "Instruct: given a query, retrieve\nQuery: "
TEXTS = ["bees store honey", "whales", "", "revenue rose to forty million what do bees"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "nv-embed"
    save_nv_embed(path)
    return path


def embedder(folder: Path, **changes: object) -> NvEmbed:
    settings = {
        "revision": None,
        "query_prompt": PROMPT,
        "max_length": 60,
        "dtype": "float32",
        "batch_size": 3,
        "device": "cpu",
    }
    return NvEmbed(folder, **{**settings, **changes})


def norm(rows: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = rows - rows.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def pooled_slowly(folder: Path, states: np.ndarray, kept: list[int]) -> np.ndarray:
    """Latent attention state by state and head by head, then the mean over ``kept``."""
    weights = {
        name.removeprefix("latent_attention_model."): tensor.double().numpy()
        for name, tensor in load_file(folder / "model.safetensors").items()
        if name.startswith("latent_attention_model.")
    }
    attention, feed = "cross_attend_blocks.0", "cross_attend_blocks.1"
    latents = norm(weights["latents"], weights, f"{attention}.norm_context")
    keys, values = np.split(latents @ weights[f"{attention}.fn.to_kv.weight"].T, 2, axis=1)
    results = []
    for state in states:
        query = norm(state, weights, f"{attention}.norm") @ weights[f"{attention}.fn.to_q.weight"].T
        seen = []
        for head in range(HEADS):
            part = slice(head * HEAD_SIZE, (head + 1) * HEAD_SIZE)
            scores = np.exp(keys[:, part] @ query[part] / math.sqrt(HEAD_SIZE))
            seen.append((scores / scores.sum()) @ values[:, part])
        state = state + np.concatenate(seen) @ weights[f"{attention}.fn.to_out.weight"].T
        wide = norm(state, weights, f"{feed}.norm") @ weights[f"{feed}.fn.net.0.weight"].T
        value, gate = np.split(wide + weights[f"{feed}.fn.net.0.bias"], 2)
        gate = gate * np.array([0.5 * (1 + math.erf(one / math.sqrt(2))) for one in gate])
        state = state + (value * gate) @ weights[f"{feed}.fn.net.2.weight"].T + weights[f"{feed}.fn.net.2.bias"]
        results.append(state)
    mean = np.mean([results[place] for place in kept], axis=0)
    return mean / np.linalg.norm(mean)


def states_seeing_all(ids: list[int]) -> np.ndarray:
    """Mistral with eager attention over an additive mask of zeros: every token sees every other."""
    network = mistral()
    network.set_attn_implementation("eager")
    with torch.no_grad():
        output = network(torch.tensor([ids]), attention_mask=torch.zeros(1, 1, len(ids), len(ids)), use_cache=False)
    return output.last_hidden_state[0].double().numpy()


def expected(folder: Path, text: str, prompt: str = "", max_length: int = 60) -> np.ndarray:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = [1, *tokenizer(prompt + text, add_special_tokens=False)["input_ids"][: max_length - 2], 2]
    # The blank behind the prompt belongs to the word that follows.
    skipped = 1 + len(tokenizer(prompt.rstrip(), add_special_tokens=False)["input_ids"]) if prompt else 0
    return pooled_slowly(folder, states_seeing_all(ids), list(range(skipped, len(ids))))


def test_embeddings_are_those_of_the_formula(folder):
    made = embedder(folder)
    for texts, vectors, prompt in (
        (TEXTS, made.embed_texts(TEXTS), ""),
        (TEXTS, made.embed_queries(TEXTS), PROMPT),
    ):
        assert vectors.dtype == np.float32
        for text, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, expected(folder, text, prompt), atol=3e-6)


def test_each_token_sees_those_behind_it(folder):
    """The first state changes with the last token; with Mistral's own causal mask it would not."""
    model = NvEmbedModel.from_pretrained(folder)
    ids, mask = torch.tensor([[1, 20, 30, 40, 50, 60, 2], [1, 20, 30, 40, 50, 61, 2]]), torch.ones(2, 7).bool()
    first = torch.zeros(2, 7).bool()
    first[:, 0] = True
    with torch.no_grad():
        one, other = model(ids, mask, first)
        causal = model.embedding_model(ids, use_cache=False).last_hidden_state[:, 0]
    assert torch.equal(causal[0], causal[1]) and not torch.allclose(one, other, atol=1e-4)


def test_neither_padding_nor_the_batch_changes_an_embedding(folder):
    together = embedder(folder, batch_size=4).embed_queries(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embedder(folder, batch_size=1).embed_queries([text])[0], vector, atol=2e-6)


def test_long_texts_are_cut_in_front_of_their_end_and_counted(folder):
    long = " ".join(["honey"] * 40)
    made = embedder(folder, max_length=30)
    np.testing.assert_allclose(made.embed_texts([long])[0], expected(folder, long, max_length=30), atol=3e-6)
    assert made.too_long([long, "bees"], queries=False) == 1
    assert made.too_long([], queries=False) == 0
    # The instruction alone fills it: only the end of the sequence is left to be pooled.
    cut = embedder(folder, max_length=8)
    assert cut.too_long(["bees"], queries=True) == 1
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = [1, *tokenizer(PROMPT, add_special_tokens=False)["input_ids"][:6], 2]
    np.testing.assert_allclose(
        cut.embed_queries(["bees"])[0], pooled_slowly(folder, states_seeing_all(ids), [7]), atol=3e-6
    )


def test_the_code_of_the_checkpoint_is_never_run(folder):
    assert "SystemExit" in (folder / "modeling_nvembed.py").read_text()
    embedder(folder).load()


def test_sizes_that_a_config_does_not_say_are_those_of_the_release():
    config = NvEmbedConfig(text_config={"hidden_size": 8})
    assert (config.latents, config.heads, config.head_size) == (512, 8, 4096)


@pytest.mark.parametrize("missing", ["latent_attention_model.latents", "embedding_model.layers.1.mlp.up_proj.weight"])
def test_a_missing_weight_is_refused_instead_of_made_up(tmp_path, missing):
    save_nv_embed(tmp_path / "gap", without=missing)
    with pytest.raises(CheckpointError, match=f"1 are missing .*{missing}"):
        embedder(tmp_path / "gap").load()


def test_a_weight_of_unknown_use_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "more")
    weights = load_file(copy / "model.safetensors") | {"latent_attention_model.more": torch.zeros(2)}
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="1 are left over .*more"):
        embedder(copy).load()


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"max_length": 0}, "embedder.max_length"), ({"batch_size": 0}, "embedder.batch_size"), ({"dtype": "x"}, "dtype")],
)
def test_settings_that_make_no_sense_are_refused(folder, changes, said):
    with pytest.raises(CheckpointError, match=said):
        embedder(folder, **changes)


def test_the_fingerprint_changes_with_every_setting_and_with_the_weights(folder, tmp_path):
    changes = [{}, {"query_prompt": ""}, {"max_length": 9}, {"dtype": "float16"}]
    prints = [json.dumps(embedder(folder, **one).fingerprint()) for one in changes]
    save_nv_embed(tmp_path / "other", without="latent_attention_model.latents")
    prints.append(json.dumps(embedder(tmp_path / "other").fingerprint()))
    assert len(set(prints)) == 5
    assert json.dumps(embedder(folder, batch_size=1, device=None).fingerprint()) == prints[0]


def test_pages_are_ranked_by_it(folder, tmp_path):
    reader = PageTextReader(CodedReader(), processes=1)
    made = DenseText(name="NV", embedder=embedder(folder), page_text=reader, question_only=True)
    task = coded_task({"a": "bees", "b": "whales", "blank": ""}, {"q": "whales"}, {"q": ["b"]})
    found = evaluate_retrieval(
        task, made, encoding(tmp_path), depth=10, resampling=Resampling(samples=10, seed=0)
    )  # fmt: skip
    assert sorted(found.rows[0]["ranking"]) == ["a", "b", "blank"]
