"""Runs of proposals that end at once: the reason comes before the work, and nothing without a use is left behind."""

from __future__ import annotations

import base64
import fcntl
import io
import os
import subprocess
import sys

import pytest
from PIL import Image

from conceptformer.proposals.row_file import RowFile
from tests.conceptformer import proposal_runs
from tests.conceptformer.proposal_runs import arguments, content_of, reply, rows_in, run, run_main, write_pairs
from tests.conceptformer.proposal_server import BOX
from tests.visar.commands import ROOT, environment
from visar.tensor_files import StoreError

process, server = proposal_runs.process, proposal_runs.server

DEAD = "http://127.0.0.1:9/v1"


# Nothing is left behind.


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([f"api.base_url={DEAD}"], "cannot be reached"),
        (["api.model=another"], "no model 'another', or no such address"),
        # A budget that is smaller than the number of calls under way hides no reason.
        (["api.model=another", "budget.calls=1"], "no model 'another', or no such address"),
        (["api.key_env=OTHER_KEY"], "the key was refused"),
        (["api.key_env=EMPTY_KEY"], "EMPTY_KEY is not set in the environment, or empty"),
        (["api.base_url=http://\u2603.example/v1"], "no connection can be set up"),
    ],
)
def test_no_file_is_left_and_none_is_named(server, tmp_path, monkeypatch, more, told):
    write_pairs(tmp_path, 20)
    server.plan(key=proposal_runs.KEY, model="some/model-1")
    monkeypatch.setenv("OTHER_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("EMPTY_KEY", " \n")
    before = content_of(tmp_path)
    outcome = run_main(tmp_path, server, *more)
    assert outcome.status == 2 and told in outcome.error
    assert content_of(tmp_path) == before
    assert "boxes.jsonl" not in outcome.out and "rows made" not in outcome.out


def test_rows_of_an_earlier_run_are_kept_and_counted(server, tmp_path):
    write_pairs(tmp_path, 5)
    run_main(tmp_path, server, "budget.calls=2")
    before = content_of(tmp_path)
    outcome = run_main(tmp_path, DEAD)
    assert outcome.status == 2 and content_of(tmp_path) == before
    assert outcome.out.endswith("pairs with a row in out/boxes.jsonl: 2 of 5\n")


def test_an_empty_file_of_somebody_else_stays(tmp_path):
    write_pairs(tmp_path, 5)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "boxes.jsonl").touch()
    assert run_main(tmp_path, DEAD).status == 2
    assert os.listdir(tmp_path / "out") == ["boxes.jsonl"]


def test_where_no_image_can_be_used_there_is_only_the_list_of_failures(server, tmp_path):
    write_pairs(tmp_path, 2)
    for page in (tmp_path / "data" / "pages").iterdir():
        page.unlink()
    outcome = run_main(tmp_path, server)
    assert outcome.status == 1 and server.log() == []
    assert "failed pairs: 2, listed in out/boxes.failed.jsonl:\npairs.jsonl:1: " in outcome.out
    assert "calls: " not in outcome.out and "with a row" not in outcome.out
    assert os.listdir(tmp_path / "out") == ["boxes.failed.jsonl"]


def test_an_empty_file_is_removed_by_its_maker_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path):
        with pytest.raises(StoreError, match="another process is writing this file"):
            RowFile(path)
        assert path.exists()
    assert not path.exists()
    with RowFile(path) as file:
        file.append({"a": 1})
    RowFile(path).close()
    assert path.read_bytes() == b'{"a": 1}\n'
    path.write_bytes(b"")
    RowFile(path).close()
    assert path.exists()


def test_a_file_that_was_put_in_the_place_of_an_empty_one_is_not_removed(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowFile(path):
        path.unlink()
        path.write_bytes(b"")
    assert path.exists()


def test_no_row_goes_into_a_file_that_was_removed_between_its_opening_and_its_locking(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    first, lock = [RowFile(path)], fcntl.flock

    def lock_late(file: int, how: int) -> None:
        if first:
            first.pop().close()  # removes the file that is being opened below
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with RowFile(path) as second:
        second.append({"a": 1})
    assert path.read_bytes() == b'{"a": 1}\n'


# What every call needs is looked for first.


def test_a_missing_key_is_found_before_images_are_looked_at(server, tmp_path):
    write_pairs(tmp_path, 3)
    (tmp_path / "data" / "pages" / "1.png").unlink()  # would be listed as a failure
    outcome = run_main(tmp_path, server, key=None)
    assert outcome.error.startswith(
        "OPENAI_API_KEY is not set in the environment, or empty; set it to the key for http"
    )
    assert outcome.out == "" and not (tmp_path / "out" / "boxes.failed.jsonl").exists()


def test_a_missing_package_is_found_before_images_are_looked_at(tmp_path):
    write_pairs(tmp_path, 3)
    (tmp_path / "data" / "pages" / "1.png").unlink()
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "openai.py").write_text("raise ImportError('there is no such package')\n")
    paths = os.pathsep.join([str(tmp_path / "without"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "conceptformer.propose", *arguments(DEAD)],
        cwd=tmp_path, env={**environment(), "PYTHONPATH": paths, "OPENAI_API_KEY": "k"}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: asking a proposer needs the package 'openai': pip install")
    assert os.listdir(tmp_path / "out") == []


def test_an_address_without_sense_is_found_before_the_pairs_are_read(tmp_path):
    outcome = run(tmp_path, "http://local host:8000/v1", "pairs=none.jsonl")
    assert outcome.error.startswith("api.base_url is 'http://local host:8000/v1'; expected the address")


def test_a_proxy_that_cannot_be_used_is_one_line(tmp_path, monkeypatch):
    write_pairs(tmp_path, 1)
    monkeypatch.setenv("ALL_PROXY", "pigeon://127.0.0.1:1080")
    outcome = run_main(tmp_path, DEAD)
    assert outcome.status == 2 and outcome.error.startswith(f"{DEAD}: no connection can be set up (Unknown scheme")
    assert "such as ALL_PROXY" in outcome.error


# Files that are not meant.


def test_a_file_without_any_pair_is_told_by_its_first_row(tmp_path):
    write_pairs(tmp_path, 0, more=["query,image", "Which?,a.png"])
    outcome = run_main(tmp_path, DEAD)
    assert outcome.status == 2 and "none in 2 rows, the first: pairs.jsonl:1: expected a JSON object" in outcome.error
    assert not (tmp_path / "out").exists()


def test_the_list_of_failures_is_no_file_of_pairs(server, tmp_path):
    write_pairs(tmp_path, 1)
    server.plan(default=[{"content": "Hm."}])
    assert run_main(tmp_path, server).status == 1
    before = content_of(tmp_path)
    outcome = run_main(tmp_path, server, "pairs=out/boxes.failed.jsonl")
    assert outcome.status == 2 and "expected the file of pairs that it was made from" in outcome.error
    assert content_of(tmp_path) == before


# What is asked for, and what is said of it.


def test_of_several_pages_that_answer_only_the_one_of_the_row_is_asked_for(server, tmp_path):
    others = {"query_id": "both", "query": "Where is q9?", "image": "pages/1.png", "page_id": "page1"}
    write_pairs(tmp_path, 2, more=[{**others, "other_positives": ["page0", "nowhere"]}])
    assert run_main(tmp_path, server, "image.format=png").status == 0
    (request,) = (request for request in server.log() if request["query"] == "q9")
    parts = request["body"]["messages"][1]["content"]
    (sent,) = (part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    picture = Image.open(io.BytesIO(base64.b64decode(sent.split(",")[1])))
    assert picture.tobytes() == Image.open(tmp_path / "data" / "pages" / "1.png").tobytes()
    (row,) = (row for row in rows_in(tmp_path) if row["query_id"] == "both")
    assert row["page_id"] == "page1" and row["other_positives"] == ["page0", "nowhere"]
    assert len(server.log()) == len(rows_in(tmp_path)) == 3


def test_the_counts_of_a_run_and_of_the_file_are_told_apart(server, tmp_path):
    write_pairs(tmp_path, 6, more=["no json"])
    server.plan(by_query={"q1": [reply()], "q2": [{"content": "Hm."}]}, default=[{"content": BOX}])
    outcome = run_main(tmp_path, server, "budget.calls=3", "concurrency=1", "image.format=png")
    assert outcome.status == 2
    unreadable = sum(row["unreadable"] is not None for row in rows_in(tmp_path, "boxes.raw"))
    made = rows_in(tmp_path)
    assert len(made) + unreadable == 3
    assert outcome.out.endswith(f"pairs with a row in out/boxes.jsonl: {len(made)} of 7\n")
    assert outcome.error.startswith(f"the budget of 3 calls is spent; pairs left: {6 - len(made)};")
    outcome = run_main(tmp_path, server)
    assert outcome.status == 1
    new, without = rows_in(tmp_path)[len(made) :], sum(not row["boxes"] for row in rows_in(tmp_path)[len(made) :])
    assert f"rows made in this run: {len(new)}, of these without boxes: {without}; boxes: " in outcome.out
    assert "replies that could not be used: 3\n" in outcome.out and "failed pairs: 2, listed in" in outcome.out
    assert outcome.out.endswith("pairs with a row in out/boxes.jsonl: 5 of 7\n")


def test_a_spent_budget_says_what_the_calls_met(server, tmp_path):
    write_pairs(tmp_path, 9)
    server.plan(default=[{"status": 500, "body": '{"error": {"message": "no room"}}'}])
    outcome = run_main(tmp_path, server, "budget.calls=2", "concurrency=1", "retry.attempts=9")
    assert outcome.error.startswith(
        "the budget of 2 calls is spent (the last call failed: the server answers 500: no room); pairs left: 9;"
    )
    server.plan(default=[{"content": "Hm."}])
    outcome = run_main(tmp_path, server, "budget.calls=1")
    assert "replies that could not be used: 1, the first: pairs.jsonl:" in outcome.out
    assert ": no JSON object in the reply: 'Hm.'\n" in outcome.out


def test_boxes_of_an_earlier_run_in_another_frame_are_not_kept_in_silence(server, tmp_path):
    write_pairs(tmp_path, 3)
    server.plan(by_query={"q0": [reply()]}, default=[{"content": BOX}])
    assert run_main(tmp_path, server).status == 0
    outcome = run_main(tmp_path, server, "frame=relative1000")
    assert "prompt_version '1', frame 'absolute') are kept: 2; remove them from the file" in outcome.err
    assert run_main(tmp_path, server).err == ""
