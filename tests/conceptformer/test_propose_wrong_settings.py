"""Runs with a frame, a key or a model that is wrong: said early, and for few calls."""

from __future__ import annotations

import asyncio
import json

import pytest

from conceptformer.box_files.rows import read_box_file
from conceptformer.data.training_files import read_training_rows
from conceptformer.proposals import first_call
from conceptformer.proposals.first_call import FirstCall
from tests.conceptformer import proposal_runs
from tests.conceptformer.proposal_runs import reply, rows_in, write_pairs
from tests.conceptformer.proposal_runs import run_main as run
from tests.conceptformer.proposal_server import BOX

process, server = proposal_runs.process, proposal_runs.server

# Of a page of 100 x 150 pixels: in thousandths, and thus beyond the page in pixels.
BEYOND = reply([50, 50, 900, 950])
DOUBT = "warning: the boxes may be in another frame than frame=absolute"


# Another frame than the boxes are in.


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_frame_that_most_of_four_replies_leave_is_doubted(server, tmp_path, concurrency):
    write_pairs(tmp_path, 6)
    server.plan(by_query={"q0": [reply([5, 5, 90, 90])], "q1": [reply()]}, default=[BEYOND])
    outcome = run(tmp_path, server, f"concurrency={concurrency}")
    assert outcome.status == 0 and outcome.err.count(DOUBT) == 1
    assert "80% of the replies name places beyond the page in that frame, and all fit frame=relative1000" in outcome.err


def test_a_few_boxes_beyond_the_page_raise_no_doubt(server, tmp_path):
    write_pairs(tmp_path, 9)
    server.plan(by_query={f"q{i}": [BEYOND] for i in range(4)}, default=[{"content": BOX}])
    assert run(tmp_path, server).err == ""


def test_three_replies_are_too_few_for_a_doubt(server, tmp_path):
    write_pairs(tmp_path, 3)
    server.plan(default=[BEYOND])
    assert run(tmp_path, server).err == ""


def test_boxes_just_beyond_the_page_raise_no_doubt(server, tmp_path):
    write_pairs(tmp_path, 9)
    server.plan(default=[reply([50, 50, 104, 157])])
    assert run(tmp_path, server).err == ""


def test_a_doubt_is_said_where_the_run_ends_with_an_error_too(server, tmp_path):
    write_pairs(tmp_path, 9)
    # Outside the page, so that there is no row.
    server.plan(default=[reply([500, 500, 900, 950])])
    outcome = run(tmp_path, server, "stop_after_failures=4", "concurrency=1")
    assert outcome.status == 2 and outcome.error.startswith("4 pairs in a row have failed")
    assert outcome.err.count(DOUBT) == 1


def test_replies_that_cannot_stand_in_the_frame_end_the_run_after_three_and_are_not_asked_for_again(server, tmp_path):
    write_pairs(tmp_path, 18)
    server.plan(by_query={"q1": [reply()], "q2": [{"content": "Hm."}]}, default=[reply([50, 50, 700, 880])])
    outcome = run(tmp_path, server, "frame=relative", "concurrency=1", "image.format=png", "asks=2")
    assert outcome.status == 2
    assert outcome.error.startswith(
        "frame=relative fits none of the first 3 pairs with boxes, the last: the frame is stated as 'relative' (0 to "
        "1) but a number is 880; likelier 'relative1000' (0 to 1000): correct the frame, then run the same command"
    )
    wrong = [row["query_id"] for row in rows_in(tmp_path, "boxes.raw") if "the frame is" in str(row["unreadable"])]
    assert len(wrong) == len(set(wrong)) == 3
    # Those, the next one, which may be under way, the page without boxes, and the unreadable reply twice.
    assert 3 <= len(server.log()) <= 3 + 1 + 1 + 2
    assert all(row["boxes"] == [] for row in rows_in(tmp_path))
    assert run(tmp_path, server, "frame=relative1000").status == 1
    assert {row["query_id"] for row in rows_in(tmp_path, "boxes.failed")} == {"id2"}


def test_where_the_frame_fits_other_pairs_the_run_goes_on(server, tmp_path):
    write_pairs(tmp_path, 12)
    wrong = [reply([0.1, 0.1, 0.5, 0.5])]
    server.plan(by_query={f"q{i}": wrong for i in range(6, 12)}, default=[{"content": BOX}])
    whole = (tmp_path / "data" / "pairs.jsonl").read_bytes()
    (tmp_path / "data" / "pairs.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:6]))
    assert run(tmp_path, server).status == 0
    (tmp_path / "data" / "pairs.jsonl").write_bytes(whole)
    # What fits may be of an earlier run.
    outcome = run(tmp_path, server, "stop_after_failures=99")
    assert outcome.status == 1 and "failed pairs: 6, listed in" in outcome.out
    assert len(server.log()) == 12


# What became of boxes stays in the file.


def test_a_row_says_how_many_boxes_were_cut_off_and_dropped_and_training_reads_it(server, tmp_path):
    write_pairs(tmp_path, 2)
    server.plan(by_query={"q0": [reply([10, 20, 120, 80], [60, 80, 10, 20], [5, 5, 5, 9])]}, default=[{"content": BOX}])
    assert run(tmp_path, server).status == 0
    rows = {row["query_id"]: row for row in rows_in(tmp_path)}
    assert (rows["id0"]["clipped"], rows["id0"]["dropped"]) == (1, 2)
    assert not {"clipped", "dropped"} & set(rows["id1"])
    found = read_box_file(tmp_path / "out" / "boxes.jsonl").pairs
    assert {row.query_id: row.lost_before for row in found} == {"id0": (1, 2), "id1": (0, 0)}
    training = read_training_rows(tmp_path / "out" / "boxes.jsonl", skip_bad_rows=False)
    assert [len(example.boxes) for example in training.examples] == [1, 1]


# Rows of no pair.


def test_rows_that_belong_to_no_pair_are_said(server, tmp_path):
    pairs = write_pairs(tmp_path, 3)
    assert run(tmp_path, server).status == 0
    lines = pairs.read_text().splitlines(keepends=True)
    pairs.write_text("".join([*lines[:2], lines[2].replace('"page2"', '"moved"')]))
    outcome = run(tmp_path, server)
    place = next(n for n, row in enumerate(rows_in(tmp_path), start=1) if row["query_id"] == "id2")
    assert outcome.status == 0 and "pairs with a row in out/boxes.jsonl: 3 of 3" in outcome.out
    told = (
        f"warning: out/boxes.jsonl: rows that belong to none of the pairs are kept: 1, the first boxes.jsonl:{place} "
        "(query 'id2', page 'page2'); training takes them too"
    )
    assert told in outcome.err
    # It is said as long as the row is there.
    assert told in run(tmp_path, server).err


def test_a_row_of_a_pair_that_is_refused_now_is_no_stranger(server, tmp_path):
    pairs = write_pairs(tmp_path, 3)
    assert run(tmp_path, server).status == 0
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    rows[2]["query"] = " "
    pairs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert run(tmp_path, server).err == ""


# The first call.


@pytest.mark.parametrize(
    ("plan", "told"), [({"key": "another"}, "the key was refused"), ({"model": "another"}, "no model 'some/model-1'")]
)
def test_a_wrong_key_or_model_costs_one_call(server, tmp_path, monkeypatch, plan, told):
    monkeypatch.setattr(first_call, "_SECONDS", 60.0)  # on a busy machine the server may take long
    write_pairs(tmp_path, 40)
    server.plan(**plan)
    outcome = run(tmp_path, server)
    assert outcome.status == 2 and told in outcome.error and "calls: 1;" in outcome.out
    assert len(server.log()) == 1


def test_a_server_that_knows_no_structured_output_by_the_status_404_is_asked_without_it(server, tmp_path):
    write_pairs(tmp_path, 3)
    server.plan(format_refused=404)
    outcome = run(tmp_path, server)
    assert outcome.status == 0 and "the server refuses structured output (the server answers 404" in outcome.err


def test_the_others_wait_for_the_end_of_the_first_call():
    events: list[str] = []

    async def call(gate: FirstCall, name: str) -> None:
        async with gate.passed():
            events.append(f"{name} begins")
            await asyncio.sleep(0)
            events.append(f"{name} ends")

    async def calls() -> None:
        gate = FirstCall()
        await asyncio.gather(*(call(gate, name) for name in "abc"))

    asyncio.run(calls())
    assert events[:2] == ["a begins", "a ends"] and sorted(events[2:4]) == ["b begins", "c begins"]


def test_the_others_do_not_wait_for_a_first_call_that_takes_long():
    async def calls() -> None:
        gate, others = FirstCall(), asyncio.Event()

        async def first() -> None:
            async with gate.passed():
                await others.wait()

        async def second() -> None:
            async with gate.passed():
                others.set()

        await asyncio.wait_for(asyncio.gather(first(), second()), timeout=30)

    asyncio.run(calls())


def test_the_others_pass_when_the_first_call_fails():
    async def calls() -> list[object]:
        gate = FirstCall()

        async def call(number: int) -> int:
            async with gate.passed():
                if number == 0:
                    raise ValueError("refused")
                return number

        return await asyncio.gather(*(call(number) for number in range(3)), return_exceptions=True)

    first, *others = asyncio.run(calls())
    assert isinstance(first, ValueError) and others == [1, 2]
