"""``python -m conceptformer.eval`` on folders of coloured pages, on drawn pages, and with a real checkpoint."""

from __future__ import annotations

import io
import json
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import pytrec_eval
import yaml

from conceptformer import eval as command
from conceptformer.adapters import LowRankAdaptation
from conceptformer.checkpoint import save_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.data.retrieval_files import write_retrieval_folder
from conceptformer.retrieval.evaluation import METRICS
from conceptformer.retrieval.run_files import read_qrels, read_run
from conceptformer.retriever import ConceptFormer
from tests.conceptformer.colour_pages import ColourRetriever, make_task
from tests.conceptformer.small_training import manifest_of, train_steps
from tests.conceptformer.tiny_models import tiny_backbone
from tests.visar.commands import Outcome
from visar.command_line import config_folder, run_command

COLOURS = ("retriever=colours",)
FILES = ("benchmark=files", "benchmark.folder=data", "cache=cache", "resampling.samples=100", "shard_items=5")
RESULTS = {"config.yaml", "identity.json", "metrics.json", "per_query.jsonl", "qrels.trec", "run.trec", "table.md"}


def run(*arguments: str, folder: Path, **environment: str) -> Outcome:
    """The command as if it had been started in ``folder``."""
    status, out, err = 0, io.StringIO(), io.StringIO()
    chosen = folder / "more" / "retriever" / "colours.yaml"
    chosen.parent.mkdir(parents=True, exist_ok=True)
    chosen.write_text("_target_: tests.conceptformer.colour_pages.ColourRetriever\nlog: null\n")
    more = "hydra.searchpath=[file://more]"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["conceptformer.eval", more, *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "")
        for name, value in environment.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                run_command(command.main, config="eval", literal=command.LITERAL_KEYS, package="conceptformer")
            except SystemExit as end:
                status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())


def rows_in(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "per_query.jsonl").read_text(encoding="utf-8").splitlines()]


def metrics_in(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


@pytest.fixture
def here(tmp_path) -> Path:
    """A folder with 23 pages and eight queries in ``data``."""
    write_retrieval_folder(tmp_path / "data", make_task(tmp_path / "data" / "images", 23))
    return tmp_path


# A whole run.


def test_a_run_leaves_its_seven_files_and_prints_its_figures(here):
    outcome = run(*FILES, *COLOURS, "output=out", folder=here)
    assert (outcome.status, outcome.err) == (0, "")
    out = here / "out"
    assert {path.name for path in out.iterdir()} == RESULTS
    assert {path.name for path in here.iterdir()} == {"data", "cache", "out", "more"}
    metrics = metrics_in(out)
    assert {name: metrics[name] for name in ("benchmark", "retriever", "queries", "pages", "refused", "left_out")} == {
        "benchmark": "data", "retriever": "colours", "queries": 8, "pages": 23, "refused": [], "left_out": []
    }  # fmt: skip
    assert metrics["retriever_fingerprint"] == ColourRetriever().fingerprint()
    lines = outcome.out.splitlines()
    assert "data, retriever colours: 8 queries, 23 pages" in lines and lines[-1] == "results: out"
    for name, title in zip(METRICS, ("recall@10", "nDCG@10", "MRR@10"), strict=True):
        value, interval = f"{metrics[name]['value']:.3f}", "[{low:.3f}, {high:.3f}]".format(**metrics[name])
        (line,) = (line for line in lines if f"│ {title}" in line)
        assert value in line and interval in line
        assert f"{value} {interval}" in (out / "table.md").read_text(encoding="utf-8")
    config = yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8"))
    assert config["benchmark"]["folder"] == "data" and config["depth"] == 100 and "hydra" not in config


def test_pytrec_eval_finds_the_same_figures_in_the_files(here):
    run(*FILES, *COLOURS, "output=out", folder=here)
    out = here / "out"
    with (out / "run.trec").open() as ranked, (out / "qrels.trec").open() as relevant:
        evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(relevant), {"recall.10", "ndcg_cut.10"})
        judged = evaluator.evaluate(pytrec_eval.parse_run(ranked))
    rows, metrics = rows_in(out), metrics_in(out)
    assert {row["query_id"] for row in rows} == set(judged)
    for ours, theirs in (("recall_at_10", "recall_10"), ("ndcg_at_10", "ndcg_cut_10")):
        for row in rows:
            assert row[ours] == pytest.approx(judged[row["query_id"]][theirs])
        assert metrics[ours]["value"] == pytest.approx(sum(one[theirs] for one in judged.values()) / len(judged))
    rankings = read_run(out / "run.trec")
    for row in rows:
        assert row["ranking"] == list(rankings[row["query_id"]].page_ids[:10])
        assert row["relevant"] == sorted(read_qrels(out / "qrels.trec")[row["query_id"]])
        assert len(rankings[row["query_id"]].page_ids) == 23


def test_the_same_command_again_encodes_nothing_and_writes_the_same(here):
    arguments = (*FILES, *COLOURS, "output=out", "retriever.log=log")
    run_files = []
    for _ in range(2):
        assert run(*arguments, folder=here).status == 0
        run_files.append({path.name: path.read_bytes() for path in (here / "out").iterdir()})
    assert run_files[0] == run_files[1]
    assert len((here / "log").read_text().splitlines()) == 23 + 8


def test_processes_of_torchrun_share_the_pages_and_the_first_writes(here):
    arguments = (*FILES, *COLOURS, "output=out", "patience_seconds=1")
    second = run(*arguments, folder=here, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1")
    assert (second.status, second.out, second.err) == (0, "", "")
    assert not (here / "out").exists()
    names = [path.name for path in sorted((here / "cache" / "pages").glob("*/shard-*"))]
    assert names == ["shard-00001.safetensors", "shard-00003.safetensors"]
    first = run(*arguments, "retriever.log=log", folder=here, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0")
    assert first.status == 0
    # Of 23 pages in five shards 13 are the first one's, and five queries in the first of two shards.
    assert len((here / "log").read_text().splitlines()) == 13 + 5
    assert {path.name for path in (here / "out").iterdir()} == RESULTS


def test_drawn_pages_are_the_default_and_queries_need_their_page(tmp_path):
    """Drawn pages hold nothing that a finder of plain colours could be sure of: only that all is counted."""
    small = ("benchmark.drawing.pages=40", "benchmark.drawing.held_out_pages=12", "resampling.samples=100")
    outcome = run("cache=cache", *small, *COLOURS, folder=tmp_path)
    assert outcome.status == 0, outcome.err
    out = tmp_path / "runs" / "conceptformer" / "eval" / "drawn-held_out" / "colours"
    metrics = metrics_in(out)
    assert (metrics["benchmark"], metrics["queries"], metrics["pages"]) == ("held_out", 12, 12)
    assert {path.name for path in (tmp_path / "cache").iterdir()} >= {"drawn", "pages", "queries"}
    assert all(len(row["ranking"]) == 10 and len(row["relevant"]) == 1 for row in rows_in(out))


def test_a_checkpoint_of_the_trainer_is_evaluated(here, monkeypatch):
    monkeypatch.chdir(here)
    backbone, adaptation = tiny_backbone(), LowRankAdaptation(rank=2)
    adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    train_steps(backbone)
    save_checkpoint(here / "made" / "retriever", backbone, adaptation, manifest_of(backbone, adaptation))
    outcome = run(*FILES, "checkpoint=made/retriever", "device=cpu", folder=here)
    assert outcome.status == 2 and "device" in outcome.error
    outcome = run(*FILES, "checkpoint=made/retriever", "retriever.device=cpu", folder=here)
    assert (outcome.status, outcome.err) == (0, "")
    out = here / "runs" / "conceptformer" / "eval" / "files-data" / "made-retriever"
    retriever = ConceptFormer.from_pretrained("made/retriever", device="cpu")
    assert metrics_in(out)["retriever_fingerprint"] == retriever.fingerprint()
    row = rows_in(out)[2]
    query = retriever.encode_queries([row["query"]])[0]
    page = retriever.encode_pages([here / "data" / "images" / f"{row['ranking'][0].split()[1]}.png"])[0]
    assert row["scores"][0] == pytest.approx(float(query @ page), abs=1e-5)


# Bad input.


def test_bad_rows_and_pages_stop_the_run_or_are_listed(here):
    with (here / "data" / "queries.jsonl").open("a") as file:
        file.write('{"query_id": "lost", "query": "red", "relevant": ["page 99"]}\n')
        file.write('{"query_id": "empty", "query": "", "relevant": ["page 1"]}\n')
    page = here / "data" / "images" / "4.png"
    content = bytearray(page.read_bytes())
    content[content.index(b"IDAT") + 8] ^= 0xFF  # the header stays whole
    page.write_bytes(content)
    refused = run(*FILES, *COLOURS, "output=out", folder=here)
    assert "queries.jsonl:9: relevant pages that are not in the corpus" in refused.error
    assert not (here / "out" / "metrics.json").exists()
    outcome = run(*FILES, *COLOURS, "output=out", "skip_bad_rows=true", folder=here)
    assert outcome.status == 0, outcome.err
    metrics = metrics_in(here / "out")
    assert len(metrics["refused"]) == 2 and "page 99" in metrics["refused"][0]
    assert len(metrics["left_out"]) == 1 and metrics["left_out"][0].startswith("page 4: ")
    assert (metrics["pages"], metrics["queries"]) == (22, 8)
    for text in (outcome.out, (here / "out" / "table.md").read_text(encoding="utf-8")):
        assert metrics["left_out"][0][:40] in text and "refused" in text.lower()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("benchmark=files", "benchmark.folder=data"), "checkpoint: expected the folder of a trained retriever"),
        (
            (),
            "(python -m conceptformer.train +exp=tiny makes one), or choose a retriever without one, such as retr",
        ),
        (("checkpoint=none",), "checkpoint: none: no such folder; expected one, or a name on the hub and its commit"),
        (("checkpoint=made/it", "retriever.revision=main"), "checkpoint: made/it: no such folder; expected one, or a"),
        (("benchmark=files", *COLOURS), "benchmark.folder: expected a folder with pages.jsonl and queries.jsonl"),
        (("benchmark=files", "benchmark.folder=none", *COLOURS), "none/pages.jsonl"),
        (("benchmark=nothing",), "nothing"),
        ((*FILES, *COLOURS, "depth=5"), "depth: expected a whole number of at least 10, got 5"),
        ((*FILES, *COLOURS, "batch_pages=0"), "batch_pages: expected a whole number of at least 1, got 0"),
        ((*FILES, *COLOURS, "skip_bad_rows=maybe"), "skip_bad_rows: expected true or false, got 'maybe'"),
        ((*FILES, *COLOURS, "resampling.samples=0"), "resampling.samples"),
        ((*FILES, *COLOURS, "output=data/pages.jsonl"), "choose another output folder"),
        (("data",), "expected key=value"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(here, arguments, said):
    outcome = run(*arguments, "cache=cache", folder=here) if arguments != ("data",) else run("data", folder=here)
    assert outcome.status == 2 and said in outcome.error


def test_help_says_what_can_be_chosen(tmp_path):
    outcome = run("--help", folder=tmp_path)
    assert outcome.status == 0
    for said in ("checkpoint=FOLDER", "skip_bad_rows: false", "torchrun", "run.trec"):
        assert said in outcome.out
    for group in ("benchmark", "retriever"):
        options = sorted(path.stem for path in (config_folder("conceptformer") / group).glob("*.yaml"))
        assert f" {group}: {', '.join(options)} " in f"{' '.join(outcome.out.split())} "
    assert [path.name for path in tmp_path.iterdir()] == ["more"]
