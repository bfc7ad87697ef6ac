"""``python -m conceptformer.propose``: bad input, the key that must not be written, and its configs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from conceptformer import propose as command
from tests.conceptformer import proposal_runs
from tests.conceptformer.proposal_runs import KEY, arguments, content_of, rows_in, run, run_main, write_pairs
from tests.conceptformer.proposal_server import BOX, USAGE
from tests.visar.commands import environment
from visar.command_line import config_folder, run_command

CONFIGS = config_folder("conceptformer")


process, server = proposal_runs.process, proposal_runs.server


# Bad input.


def test_pairs_that_cannot_be_asked_for_are_listed_at_once_and_not_sent(server, tmp_path):
    good = {"query_id": "id0", "query": "What is q0?", "page_id": "page0", "image": "pages/0.png"}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text.png").write_text("no image")
    (tmp_path / "data").joinpath("text.png").replace(tmp_path / "text.png")
    (tmp_path / "data").rmdir()
    more = [
        good,
        {**good, "query": "Another q0?", "page_id": "new"},
        {**good, "query_id": "new", "image": "pages/1.png"},
        {**good, "query_id": "empty", "query": " "},
        {**good, "query_id": "missing", "page_id": "p1", "image": "pages/none.png"},
        {**good, "query_id": "text", "page_id": "p2", "image": "../text.png"},
        {**good, "query_id": "torn", "page_id": "p3", "image": "../torn.png"},
        {**good, "query_id": 7},
        {**good, "extra": 1},
        "no json",
        '{"query_id": "half \\ud83d", "query": "x", "page_id": "p4", "image": "y"}',
    ]
    write_pairs(tmp_path, 2, more=more)
    (tmp_path / "torn.png").write_bytes((tmp_path / "data" / "pages" / "0.png").read_bytes()[:2000])
    outcome = run_main(tmp_path, server)
    assert outcome.status == 1
    assert sorted(request["query"] for request in server.log()) == ["q0", "q1"]
    failed = {row["place"]: row for row in rows_in(tmp_path, "boxes.failed")}
    told = {
        3: "the same query and page as pairs.jsonl:1",
        4: "another text of this query than in pairs.jsonl:1",
        5: "another image of this page than in pairs.jsonl:1",
        6: "query is ' '; expected a text that is not empty",
        7: "data/pages/none.png: no such file",
        8: "text.png: not an image that can be read",
        9: "torn.png: the image is damaged, truncated or not readable",
        10: "query_id is 7; expected a text",
        11: "keys: unknown 'extra'",
        12: "expected a JSON object in UTF-8",
        13: "half of a character",
    }
    assert set(failed) == {f"pairs.jsonl:{line}" for line in told}
    for line, reason in told.items():
        assert reason in failed[f"pairs.jsonl:{line}"]["reason"]
        assert failed[f"pairs.jsonl:{line}"]["tries"] == 0
    assert failed["pairs.jsonl:7"]["query_id"] == "missing" and failed["pairs.jsonl:12"]["query_id"] is None
    # Corrected, they are no failures any more.
    pairs = tmp_path / "data" / "pairs.jsonl"
    pairs.write_bytes(b"".join(pairs.read_bytes().splitlines(keepends=True)[:2]))
    assert run_main(tmp_path, server).status == 0
    assert not (tmp_path / "out" / "boxes.failed.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["pairs=none.jsonl"], "none.jsonl: no such file"),
        (["pairs=null"], "pairs: expected a file; write pairs=PAIRS.jsonl"),
        (["pairs="], "pairs: expected a file; write pairs=PAIRS.jsonl"),
        (["out="], "out: expected a file"),
        (["out=data/pairs.jsonl"], "out: data/pairs.jsonl is the file of pairs"),
        (["out=data"], "out: data: expected a file name that ends in .jsonl"),
        (["out=data/some.jsonl"], "some.jsonl: cannot be written (Is a directory); choose another file"),
        (["frame=null"], "frame: expected what the model states boxes in"),
        (["frame=pixels"], "the frame is stated as 'pixels'; expected 'absolute'"),
        (["api.base_url="], "api.base_url: expected the address"),
        (["concurrency=0"], "concurrency: expected a whole number of at least 1, got 0"),
        (["budget.calls=none"], "budget.calls is 'none'"),
        (["api.key_env=NO_SUCH_KEY"], "NO_SUCH_KEY is not set in the environment"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_leaves_the_pairs_alone(tmp_path, more, told):
    pairs = write_pairs(tmp_path, 1).read_bytes()
    (tmp_path / "data" / "some.jsonl").mkdir()
    outcome = run(tmp_path, "http://127.0.0.1:9/v1", *more)
    assert outcome.status == 2 and told in outcome.error
    assert (tmp_path / "data" / "pairs.jsonl").read_bytes() == pairs


def test_an_empty_file_of_pairs_is_an_error(tmp_path):
    write_pairs(tmp_path, 0)
    assert "expected pairs, one JSON object per line" in run_main(tmp_path, "http://127.0.0.1:9/v1").error


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda row: [{**row, "query": "Another question?"}], "asked with another text of query 'id0'"),
        (lambda row: [row, row], "boxes.jsonl:2: the same query and page as boxes.jsonl:1"),
        (lambda row: [{**row, "format": "evidence-boxes/9"}], "its format is 'evidence-boxes/9'"),
        (lambda row: [{"query_id": "a"}], "boxes.jsonl:1: keys: no 'format'"),
        (lambda row: ["text", row], "boxes.jsonl:1: 'text'; expected a JSON object"),
    ],
)
def test_a_file_of_something_else_is_not_added_to(server, tmp_path, change, told):
    write_pairs(tmp_path, 1)
    run_main(tmp_path, server)
    path = tmp_path / "out" / "boxes.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in change(rows_in(tmp_path)[0])))
    before = path.read_bytes()
    outcome = run_main(tmp_path, server)
    assert outcome.status == 2 and told in outcome.error and path.read_bytes() == before


def test_without_the_sdk_the_line_that_installs_it_is_shown(tmp_path, monkeypatch):
    write_pairs(tmp_path, 1)
    monkeypatch.setitem(sys.modules, "openai", None)
    outcome = run_main(tmp_path, "http://127.0.0.1:9/v1")
    assert "needs the package 'openai': pip install 'evidence-retrieval[api]'" in outcome.error


def test_help_explains_the_settings(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["conceptformer.propose", "--help"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")
    with pytest.raises(SystemExit, match="0"):
        run_command(command.main, config="propose", literal=command.LITERAL_KEYS, package="conceptformer")
    told = capsys.readouterr().out.partition("Choices:")[0]
    for setting in ("asks", "stop_after_failures", "image.max_pixels", "image.side_multiple", "image.format"):
        assert f"... {setting}=" in told


def test_one_try_and_one_reply_are_told_as_one(server, tmp_path):
    write_pairs(tmp_path, 2)
    server.plan(by_query={"q0": [{"status": 500}]}, default=[{"content": "Hm."}])
    assert run_main(tmp_path, server, "retry.attempts=1", "asks=1").status == 1
    reasons = {row["query_id"]: row["reason"] for row in rows_in(tmp_path, "boxes.failed")}
    assert reasons["id0"].endswith(" (1 try)") and reasons["id1"] == "no JSON object in the reply: 'Hm.'"


# The key.


def test_the_key_is_written_nowhere_even_if_the_server_says_it(server, tmp_path):
    write_pairs(tmp_path, 4)
    server.plan(
        by_query={
            "q0": [{"body": f"<html>{KEY}</html>"}],
            "q1": [{"status": 400, "body": json.dumps({"error": {"message": f"bad key {KEY}"}})}],
            "q2": [{"content": BOX.replace("a table", KEY), "reasoning": KEY, "usage": USAGE}],
            "q3": [{"status": 500, "body": KEY}],
        }
    )
    outcome = run_main(tmp_path, server)
    assert outcome.status == 1 and len(rows_in(tmp_path, "boxes.failed")) == 3
    assert rows_in(tmp_path)[0]["labels"] == ["[key]"]
    server.plan(key="another")
    refused = run_main(tmp_path, server)
    assert refused.status == 2 and server.log()[0]["key"] == KEY
    for text in (outcome.out, outcome.err, refused.out, refused.err):
        assert KEY not in text
    assert not [name for name, content in content_of(tmp_path).items() if KEY.encode() in content]


def test_without_a_key_a_server_that_needs_none_is_asked_without_it(server, tmp_path):
    write_pairs(tmp_path, 1)
    assert run_main(tmp_path, server, "api.key_env=null", key=None).status == 0
    assert server.log()[0]["key"] == "none"


# The command in a process of its own.


def test_the_command_runs_as_people_start_it(server, tmp_path):
    write_pairs(tmp_path, 2)
    server.plan(by_query={"q1": [{"content": "Hm."}]}, default=[{"content": BOX}])
    command = [sys.executable, "-m", "conceptformer.propose", *arguments(server)]
    given = {**environment(), "OPENAI_API_KEY": KEY, "NO_PROXY": "127.0.0.1", "OPENAI_LOG": "debug"}
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "failed pairs: 1, listed in out/boxes.failed.jsonl:\n" in done.stdout
    assert "pairs.jsonl:2: no JSON object in the reply: 'Hm.' (the last of 3 replies)" in done.stdout
    assert KEY not in done.stdout + done.stderr
    # Nothing else is left in the folder it was started in.
    assert sorted(os.listdir(tmp_path)) == ["data", "out"]


@pytest.mark.parametrize("path", sorted((CONFIGS / "api").glob("*.yaml")), ids=lambda path: path.stem)
def test_each_file_of_the_group_api_makes_an_endpoint(path):
    own = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("propose", overrides=[f"api={path.stem}", "api.base_url=http://localhost/v1"])
    assert config.frame == own.get("frame") and (config.frame is None) == (path.stem == "any")
    assert config.api.model == own.get("api", {}).get("model")
    config.api.model = config.api.model or "any"
    assert instantiate(config.api, _convert_="all").model == config.api.model
    assert instantiate(config.image).side_multiple == own.get("image", {}).get("side_multiple", 1)
