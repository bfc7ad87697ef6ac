"""The files of a run of proposals: as their schema says, whole after kills and full disks, written by one at a time."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from conceptformer.data.training_files import read_training_rows
from conceptformer.proposals.box_file import NEEDED_KEYS, POSSIBLE_KEYS, SCHEMA
from conceptformer.proposals.row_file import RowFile
from conceptformer.records import EvidenceBox
from tests.conceptformer import proposal_runs
from tests.conceptformer.proposal_runs import SIZE, content_of, reply, rows_in, run, run_main, write_pairs
from tests.conceptformer.proposal_server import BOX
from tests.visar.commands import ROOT, environment
from visar.tensor_files import StoreError, StoreWarning

process, server = proposal_runs.process, proposal_runs.server


# The box file.


def misfits(value: Any, schema: dict[str, Any], place: str = "row") -> list[str]:
    """What of a value is not as its JSON schema says, for the words that ours uses."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
    known = {"$schema", "title", "description", "type", "const", "enum", "pattern", "minimum", "items", "minItems",
             "maxItems", "required", "additionalProperties", "properties"}  # fmt: skip
    assert set(schema) <= known
    if "type" in schema and (not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool)):
        return [f"{place}: {schema['type']}"]
    found = [] if value == schema.get("const", value) else [f"{place}: const"]
    found += [] if value in schema.get("enum", [value]) else [f"{place}: enum"]
    if isinstance(value, str):
        found += [] if re.search(schema.get("pattern", ""), value) else [f"{place}: pattern"]
    if isinstance(value, (int, float)):
        found += [] if value >= schema.get("minimum", value) else [f"{place}: minimum"]
    if isinstance(value, list):
        found += (
            []
            if schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            else [f"{place}: length"]
        )
        for number, item in enumerate(value):
            found += misfits(item, schema.get("items", {}), f"{place}[{number}]")
    if isinstance(value, dict):
        found += [f"{place}: no {key}" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            if key in schema.get("properties", {}):
                found += misfits(item, schema["properties"][key], f"{place}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{place}: unknown {key}")
    return found


@pytest.mark.parametrize("frame", ["absolute", "relative", "relative1000"])
def test_rows_are_as_the_schema_says_and_say_where_the_boxes_are(server, tmp_path, frame):
    last = {
        "query_id": "last",
        "query": "Is\u2028it \u00e9\ud83d\ude00 q9?",
        "page_id": "p",
        "image": "pages/0.png",
        "other_positives": ["p7"],
    }
    last["query"] = last["query"].encode("utf-16", "surrogatepass").decode("utf-16")
    write_pairs(tmp_path, 2, more=[last])
    numbers = {"absolute": [56, 42, 84, 126], "relative": [0.5, 0.25, 0.75, 0.75], "relative1000": [500, 250, 750, 750]}
    server.plan(default=[reply(numbers[frame])], by_query={"q1": [reply()]})
    # Sent as 112 x 168, larger by rounding to the multiple, though never enlarged on purpose.
    outcome = run(tmp_path, server, f"frame={frame}", "image.side_multiple=56", "api.model=some/model=1 {x}")
    assert (outcome.status, outcome.err) == (0, "")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    rows = {row["query_id"]: row for row in rows_in(tmp_path)}
    assert [misfits(row, schema) for row in rows.values()] == [[], [], []]
    assert rows["last"] == {
        "format": "evidence-boxes/1", **last, "image": "../data/pages/0.png", "boxes": [numbers[frame]],
        "labels": ["thing 0"], "frame": frame, "image_size": [100, 150], "input_size": [112, 168],
        "model": "some/model=1 {x}", "prompt_version": "1",
    }  # fmt: skip
    assert rows["id1"]["boxes"] == []
    assert set(schema["required"]) == set(NEEDED_KEYS)
    assert set(schema["properties"]) == {*NEEDED_KEYS, *POSSIBLE_KEYS}


def test_the_schema_refuses_rows_that_are_otherwise(server, tmp_path):
    write_pairs(tmp_path, 1)
    run_main(tmp_path, server)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    (row,) = rows_in(tmp_path)
    wrong = [
        {"format": "evidence-boxes/2"}, {"query": " "}, {"boxes": [[1, 2, 3]]}, {"boxes": [[1, 2, 3, "4"]]},
        {"boxes": [[-1, 2, 3, 4]]}, {"frame": "pixels"}, {"image_size": [0, 5]}, {"input_size": [1.5, 2]},
        {"labels": [1]}, {"more": 1},
    ]  # fmt: skip
    assert [len(misfits({**row, **change}, schema)) for change in wrong] == len(wrong) * [1]
    assert all(misfits({key: value for key, value in row.items() if key != missing}, schema) for missing in row)


def test_the_box_file_is_read_as_training_rows(server, tmp_path):
    write_pairs(tmp_path, 3)
    server.plan(default=[reply([10, 30, 60, 75])])
    run_main(tmp_path, server)
    training = read_training_rows(tmp_path / "out" / "boxes.jsonl", skip_bad_rows=False)
    assert training.refused == ()
    found = {example.query_id: example for example in training.examples}
    assert set(found) == {"id0", "id1", "id2"} and found["id0"].image_size == SIZE
    assert found["id0"].boxes == (EvidenceBox(0.1, 0.2, 0.6, 0.5, "thing 0"),)


# Again, after kills, and with little room.


def test_a_second_run_does_nothing_and_needs_neither_key_nor_server(server, tmp_path):
    write_pairs(tmp_path, 3)
    assert run_main(tmp_path, server).status == 0
    before = content_of(tmp_path)
    outcome = run_main(tmp_path, "http://127.0.0.1:9/v1", key=None)
    assert (outcome.status, outcome.err) == (0, "")
    assert "nothing to ask for: all pairs have their row in out/boxes.jsonl" in outcome.out
    assert content_of(tmp_path) == before


def test_new_pairs_are_added_to_a_finished_file(server, tmp_path):
    pairs = write_pairs(tmp_path, 3)
    whole = pairs.read_bytes()
    pairs.write_bytes(whole[: whole.index(b"\n") + 1])
    assert run_main(tmp_path, server).status == 0
    first = (tmp_path / "out" / "boxes.jsonl").read_bytes()
    pairs.write_bytes(whole)
    outcome = run_main(tmp_path, server, "api.model=some/model-2")
    assert outcome.status == 0
    assert "made otherwise (model 'some/model-1', prompt_version '1', frame 'absolute') are kept: 1;" in outcome.err
    assert (tmp_path / "out" / "boxes.jsonl").read_bytes().startswith(first)
    assert Counter(row["model"] for row in rows_in(tmp_path)) == {"some/model-1": 1, "some/model-2": 2}


def test_ten_kills_cost_nothing_but_calls(server, tmp_path):
    write_pairs(tmp_path, 200)
    # These fail in one run and are made by a later one.
    failing = {f"q{i}": 3 * [{"content": "Hm.", "seconds": 0.05}] + [{"content": BOX}] for i in (5, 90, 170)}
    server.plan(by_query=failing, default=[{"content": BOX, "seconds": 0.05}])
    command = [sys.executable, "-m", "tests.conceptformer.proposal_kills", str(tmp_path), server.url, "3", "10"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert len(counts) == 10 and counts == sorted(set(counts)) and counts[-1] < 200
    statuses = [run_main(tmp_path, server).status for _ in range(2)]
    assert statuses[-1] == 0
    rows = rows_in(tmp_path)
    assert Counter(row["query_id"] for row in rows) == {f"id{i}": 1 for i in range(200)}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["boxes.jsonl", "boxes.raw.jsonl"]
    rows_in(tmp_path, "boxes.raw")
    # Lost are the calls that were under way.
    asked = Counter(request["query"] for request in server.log() if request["query"] not in failing)
    assert sum(asked.values()) <= 197 + 10 * (4 + 1) + 1


def test_a_full_disk_is_one_line_and_the_next_run_completes_the_file(server, tmp_path):
    write_pairs(tmp_path, 40)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        outcome = run_main(tmp_path, server)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert outcome.status == 2
    assert "cannot be written (File too large); make room there, then run the same command again" in outcome.error
    kept = rows_in(tmp_path)
    assert 5 < len(kept) < 40
    outcome = run_main(tmp_path, server)
    assert (outcome.status, outcome.err) == (0, "")
    assert rows_in(tmp_path)[: len(kept)] == kept
    assert Counter(row["query_id"] for row in rows_in(tmp_path)) == {f"id{i}": 1 for i in range(40)}


def test_a_second_process_on_the_same_file_is_refused(server, tmp_path):
    write_pairs(tmp_path, 1)
    with RowFile(tmp_path / "out" / "boxes.jsonl"):
        outcome = run_main(tmp_path, server)
    assert outcome.error.startswith("out/boxes.jsonl: another process is writing this file")
    assert server.log() == []
    assert run_main(tmp_path, server).status == 0


# Row files.


def test_a_last_line_that_was_cut_short_is_removed_and_a_whole_one_is_ended(tmp_path):
    path = tmp_path / "rows.jsonl"
    first = '{"text": "one\u2028line"}\n'.encode()
    for tail, kept in (
        (b'{"a": 1}', b'{"a": 1}\n'),
        (b'{"a": "\xc3', b""),
        (b"\0\0\0\0", b""),
        (b"7", b""),
        (b"", b""),
    ):
        path.write_bytes(first + tail)
        cut = bool(tail) and not kept
        with pytest.warns(StoreWarning, match="cut short") if cut else nullcontext(), RowFile(path) as file:
            file.append({"b": "\u2028"})
        assert path.read_bytes() == first + kept + '{"b": "\u2028"}\n'.encode()


@pytest.mark.parametrize("content", [b"# Notes\n\nby hand", b'{\n  "a": 1\n}', b"notes"])
def test_nothing_is_taken_off_a_file_of_something_else(tmp_path, content):
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="something else than rows of JSON; choose another file"):
        RowFile(path)
    assert path.read_bytes() == content


def test_a_torn_line_of_many_blocks_is_removed_to_its_beginning(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": "' + b"x" * 300_000)
    with pytest.warns(StoreWarning), RowFile(path):
        pass
    assert path.read_bytes() == b'{"a": 1}\n'


def test_a_file_has_one_writer_at_a_time_and_a_dead_one_does_not_count(tmp_path):
    path = tmp_path / "rows.jsonl"
    child = os.fork()
    if child == 0:
        RowFile(path)
        os._exit(0)  # without closing it
    os.waitpid(child, 0)
    with RowFile(path) as file:
        file.append({"a": 1})
        with pytest.raises(StoreError, match="another process is writing this file"):
            RowFile(path)
    RowFile(path).close()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "rows.jsonl", tmp_path):
        with pytest.raises(StoreError, match="cannot be written .*; choose another file"):
            RowFile(path)
