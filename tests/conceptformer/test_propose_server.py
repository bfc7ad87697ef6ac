"""``conceptformer.propose`` at a server that fails in every way that servers do."""

from __future__ import annotations

import email.utils
import json
import time

import pytest

from tests.conceptformer import proposal_runs
from tests.conceptformer.proposal_runs import KEY, reply, rows_in, write_pairs
from tests.conceptformer.proposal_runs import run_main as run
from tests.conceptformer.proposal_server import BOX, running_server

GOOD = {"content": BOX}


process, server = proposal_runs.process, proposal_runs.server


def made(folder, name: str = "boxes") -> list[str]:
    return sorted(row["query_id"] for row in rows_in(folder, name))


def reasons(folder) -> dict[str, str]:
    return {row["query_id"]: row["reason"] for row in rows_in(folder, "boxes.failed")}


# Failures that pass: the call is made again.


def test_each_passing_failure_is_tried_again_and_counted(server, tmp_path):
    write_pairs(tmp_path, 7)
    passing = {
        "q0": {"status": 429},
        "q1": {"status": 500, "body": "<h1>Internal error</h1>"},
        "q2": {"status": 529},
        "q3": {"hang": 3.0},
        "q4": {"cut": "early"},
        "q5": {"cut": "late", "content": BOX},
        "q6": {"status": 408},
    }
    server.plan(by_query={marker: [step, GOOD] for marker, step in passing.items()})
    outcome = run(tmp_path, server, "api.timeout_seconds=1.5")
    assert (outcome.status, outcome.err) == (0, "")
    assert made(tmp_path) == [f"id{i}" for i in range(7)] and rows_in(tmp_path, "boxes.failed") == []
    asked = [request["query"] for request in server.log()]
    assert sorted(asked) == sorted(2 * list(passing))
    assert "calls: 14 (7 of them repeated); tokens: 7,000 in, 700 out" in outcome.out
    assert len(rows_in(tmp_path, "boxes.raw")) == 7


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_pause_that_the_server_asks_for_holds_for_all_calls(server, tmp_path, form):
    write_pairs(tmp_path, 20)
    until = time.time() + 3
    asked = "1.5" if form == "seconds" else email.utils.formatdate(until, usegmt=True)
    server.plan(by_query={"q0": [{"status": 429, "headers": {"Retry-After": asked}}, GOOD]}, default=[GOOD])
    assert run(tmp_path, server, "concurrency=1").status == 0
    log = server.log()
    # Pages are decoded by several threads: others may come before it.
    place = next(number for number, request in enumerate(log) if request["query"] == "q0")
    first, others = log[place], log[place + 1 :]
    assert len(log) == 21 and {request["query"] for request in others} > {"q0"}
    # A date has no parts of a second.
    least = 1.5 if form == "seconds" else int(until) - first["at"]
    assert min(request["at"] for request in others) - first["at"] >= least


def test_a_pause_that_is_too_long_ends_the_run_and_the_next_one_continues(server, tmp_path):
    write_pairs(tmp_path, 3)
    server.plan(by_query={"q1": [{"status": 503, "headers": {"Retry-After": "7200"}}, GOOD]}, default=[GOOD])
    outcome = run(tmp_path, server, "concurrency=1")
    assert outcome.status == 2 and "asks for a pause of 7,200 s" in outcome.error
    assert len(made(tmp_path)) < 3 and rows_in(tmp_path, "boxes.failed") == []
    assert run(tmp_path, server).status == 0
    assert made(tmp_path) == ["id0", "id1", "id2"]


def test_what_fails_each_time_is_listed_with_its_reason_and_the_next_run_asks_only_for_that(server, tmp_path):
    write_pairs(tmp_path, 4)
    server.plan(
        by_query={"q2": [{"status": 500, "body": '{"error": {"message": "no room"}}'}] * 3 + [GOOD]}, default=[GOOD]
    )
    outcome = run(tmp_path, server)
    assert outcome.status == 1 and outcome.err == ""
    assert "failed pairs: 1, listed in out/boxes.failed.jsonl" in outcome.out
    assert made(tmp_path) == ["id0", "id1", "id3"]
    (failure,) = rows_in(tmp_path, "boxes.failed")
    assert failure == {
        "format": "evidence-boxes-failed/1", "query_id": "id2", "page_id": "page2", "place": "pairs.jsonl:3",
        "reason": "the server answers 500: no room (3 tries)", "tries": 1,
    }  # fmt: skip
    before = len(server.log())
    outcome = run(tmp_path, server)
    assert (outcome.status, outcome.err) == (0, "")
    assert [request["query"] for request in server.log()[before:]] == ["q2"]
    assert made(tmp_path) == ["id0", "id1", "id2", "id3"] and not (tmp_path / "out" / "boxes.failed.jsonl").exists()


def test_a_request_that_is_refused_is_not_sent_again_in_the_same_run(server, tmp_path):
    write_pairs(tmp_path, 2)
    refusal = {"status": 400, "body": json.dumps({"error": {"message": "the image is unsafe"}})}
    server.plan(by_query={"q1": [refusal]}, default=[GOOD])
    assert run(tmp_path, server, "api.structured=false").status == 1
    assert reasons(tmp_path) == {"id1": "the server answers 400: the image is unsafe"}
    assert len(server.log()) == 2


# Replies that cannot be used: another one is asked for.


def test_unreadable_replies_are_asked_for_again_a_bounded_number_of_times(server, tmp_path):
    write_pairs(tmp_path, 8)
    unreadable = {
        "q0": ({"body": "<!doctype html>"}, "the answer is no JSON: '<!doctype html>'; check api.base_url"),
        "q1": ({"content": "I see no page."}, "no JSON object in the reply: 'I see no page.'"),
        "q2": ({"content": '{"bboxes": []}'}, "the JSON object has no key 'boxes'; its keys: 'bboxes'"),
        "q3": (reply([60, 80, 10, 20]), "no box can be used: box 1 (60, 80, 10, 20): empty or turned round; expected"),
        "q4": (reply([20, 20, 20, 80]), "no box can be used: box 1 (20, 20, 20, 80): empty or turned round; expected"),
        "q5": (reply([200, 20, 300, 80]), "no box can be used: box 1 (200, 20, 300, 80): outside the page"),
        "q6": ({"size": 5_000_000}, "the answer is longer than 1,000,000 bytes and was cut off"),
        "q7": ({"content": BOX[:-9], "finish_reason": "length"}, "the reply was cut off at its greatest length"),
    }  # fmt: skip
    server.plan(by_query={marker: [step, step, step, GOOD] for marker, (step, _) in unreadable.items()})
    outcome = run(tmp_path, server)
    assert outcome.status == 1 and rows_in(tmp_path) == []
    found = reasons(tmp_path)
    for marker, (_, reason) in unreadable.items():
        assert found[marker.replace("q", "id")].startswith(reason)
        assert found[marker.replace("q", "id")].endswith("(the last of 3 replies)")
    assert sorted(request["query"] for request in server.log()) == sorted(3 * list(unreadable))
    raw = rows_in(tmp_path, "boxes.raw")
    assert len(raw) == 24 and all(row["unreadable"] for row in raw)
    # What was cut off is not kept in full.
    assert len((tmp_path / "out" / "boxes.raw.jsonl").read_bytes()) < 100_000
    assert run(tmp_path, server).status == 0
    assert len(rows_in(tmp_path)) == 8


def test_a_second_reply_that_can_be_used_is_used(server, tmp_path):
    write_pairs(tmp_path, 1)
    server.plan(default=[{"content": "Hm."}, {"content": f"So:\n```json\n{BOX}\n```", "reasoning": "let me see"}])
    assert run(tmp_path, server).status == 0
    (row,), raw = rows_in(tmp_path), rows_in(tmp_path, "boxes.raw")
    assert row["boxes"] == [[10, 20, 60, 80]] and row["labels"] == ["a table"]
    assert [(one["ask"], one["unreadable"] is None) for one in raw] == [(1, False), (2, True)]
    assert (raw[1]["content"], raw[1]["reasoning"], raw[1]["tokens"]) == (
        f"So:\n```json\n{BOX}\n```",
        "let me see",
        [1000, 100],
    )


def test_boxes_are_clipped_or_dropped_and_counted_and_the_file_is_a_file_of_training_rows(server, tmp_path):
    write_pairs(tmp_path, 2)
    mixed = reply(
        [10, 20, 60, 80], [90, 140, 120, 160.5], [60, 80, 10, 20], ["a", 1, 2, 3], [101, 0, 110, 9], [1.5, 2, 3, 4]
    )
    server.plan(by_query={"q0": [mixed], "q1": [reply()]})
    outcome = run(tmp_path, server)
    assert (outcome.status, outcome.err) == (0, "")
    assert "rows made in this run: 2, of these without boxes: 1; boxes: 3\n" in outcome.out
    assert "boxes cut off at the edge of the page: 1; boxes dropped: 3" in outcome.out
    assert "pairs.jsonl:1: box 3 (60, 80, 10, 20): empty or turned round" in outcome.out
    row = next(row for row in rows_in(tmp_path) if row["query_id"] == "id0")
    assert row["boxes"] == [[10, 20, 60, 80], [90, 140, 100, 150], [1.5, 2, 3, 4]]
    assert row["labels"] == ["thing 0", "thing 1", "thing 5"]
    raw = next(row for row in rows_in(tmp_path, "boxes.raw") if row["query_id"] == "id0")
    assert len(raw["dropped"]) == 3 and raw["clipped"] == [
        "box 2 (90, 140, 120, 160.5): reaches beyond the page of 100 x 150 pixels"
    ]


# What no further call can mend.


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"key": "another"}, "(the server answers 401: Incorrect API key provided: [key]); correct what OPENAI_API_K"),
        ({"model": "another"}, "no model 'some/model-1', or no such address (the server answers 404: The model "),
        ({"default": [{"status": 403}]}, "the key was refused (the server answers 403"),
        ({"default": [{"status": 402}]}, "the account has no credit left"),
        ({"default": [{"status": 429, "body": '{"error": {"code": "insufficient_quota"}}'}]}, "no credit left"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_model_ends_the_run_at_once(server, tmp_path, plan, told):
    write_pairs(tmp_path, 40)
    server.plan(**plan)
    outcome = run(tmp_path, server, "concurrency=4")
    assert outcome.status == 2 and told in outcome.error and KEY not in outcome.error
    # Those that were under way, and once more without structured output, if it may be about that.
    assert len(server.log()) <= 8
    assert rows_in(tmp_path) == [] and rows_in(tmp_path, "boxes.failed") == []


def test_a_server_that_is_down_ends_the_run_at_once(tmp_path):
    write_pairs(tmp_path, 40)
    outcome = run(tmp_path, "http://127.0.0.1:9/v1", "retry.first_wait_seconds=3600", "retry.longest_wait_seconds=3600")
    assert outcome.status == 2
    assert outcome.error.startswith("http://127.0.0.1:9/v1: cannot be reached (the connection failed")
    assert rows_in(tmp_path, "boxes.failed") == []


def test_a_server_that_goes_down_ends_the_run_after_the_tries_and_nothing_is_lost(tmp_path):
    write_pairs(tmp_path, 9)
    with running_server() as server:
        url = server.url
        server.plan()
        assert run(tmp_path, url, "budget.calls=4").status == 2
    outcome = run(tmp_path, url)
    assert outcome.status == 2 and "cannot be reached" in outcome.error
    assert len(rows_in(tmp_path)) == 4


def test_many_failures_in_a_row_end_the_run(server, tmp_path):
    write_pairs(tmp_path, 40)
    server.plan(default=[{"status": 500}])
    outcome = run(tmp_path, server, "concurrency=1", "stop_after_failures=5", "retry.attempts=2")
    assert outcome.status == 2 and outcome.error.startswith(
        "5 pairs in a row have failed, the last: the server answers 500"
    )
    # The next call may be under way when the fifth pair fails.
    assert 10 <= len(server.log()) <= 11 and len(rows_in(tmp_path, "boxes.failed")) == 5
    # They do not keep the others from their turn.
    failing = {query_id.replace("id", "q"): [{"status": 500}] for query_id in reasons(tmp_path)}
    server.plan(by_query=failing, default=[GOOD])
    assert run(tmp_path, server, "concurrency=1", "stop_after_failures=5", "retry.attempts=2").status == 2
    assert len(rows_in(tmp_path)) == 35


# Structured output.


def test_output_is_asked_for_by_schema_and_in_the_stated_way(server, tmp_path):
    write_pairs(tmp_path, 1)
    assert run(tmp_path, server, "api.extra_body={enable_thinking: false}", "api.max_tokens=77").status == 0
    (request,) = server.log()
    body = request["body"]
    schema = body["response_format"]["json_schema"]["schema"]
    assert body["response_format"]["type"] == "json_schema" and set(schema["required"]) == {"think", "boxes"}
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("some/model-1", 0.2, 77)
    assert body["enable_thinking"] is False and request["key"] == KEY


def test_a_server_without_structured_output_is_asked_without_it_from_then_on(server, tmp_path):
    write_pairs(tmp_path, 6)
    server.plan(format_refused=True)
    outcome = run(tmp_path, server, "concurrency=1")
    assert outcome.status == 0 and len(rows_in(tmp_path)) == 6
    warning = "warning: the server refuses structured output (the server answers 400: response_format is not supported)"
    assert outcome.err.count(warning) == 1
    assert ["response_format" in request["body"] for request in server.log()] == [True, *6 * [False]]


# Pace.


def test_so_many_calls_are_under_way_as_were_asked_for(server, tmp_path):
    write_pairs(tmp_path, 40)
    server.plan(default=[{**GOOD, "seconds": 0.3}])
    assert run(tmp_path, server, "concurrency=11").status == 0
    assert server.most_open() == 11


def test_budgets_end_the_run_cleanly_and_the_next_run_continues(server, tmp_path):
    write_pairs(tmp_path, 9)
    prices = ("price.input=2", "price.output=10")
    outcome = run(tmp_path, server, "budget.calls=4", *prices)
    assert outcome.status == 2
    assert outcome.error.startswith("the budget of 4 calls is spent; pairs left: 5; the same command continues")
    assert "calls: 4; tokens: 4,000 in, 400 out; cost so far: 0.0120" in outcome.out
    assert len(server.log()) == len(rows_in(tmp_path)) == 4 and rows_in(tmp_path, "boxes.failed") == []
    outcome = run(tmp_path, server, "budget.tokens=1500", "concurrency=1")
    assert outcome.error.startswith("the budget of 1,500 tokens is spent; pairs left: 3")
    assert len(rows_in(tmp_path)) == 6
    assert run(tmp_path, server).status == 0
    assert len(server.log()) == len(made(tmp_path)) == len(set(made(tmp_path))) == 9


def test_doubts_about_the_frame_are_said_once(server, tmp_path):
    write_pairs(tmp_path, 61)
    server.plan(default=[reply([50, 50, 900, 950])])
    outcome = run(tmp_path, server)
    assert outcome.status == 0
    assert outcome.err.count("warning: the boxes may be in another frame than frame=absolute") == 1
