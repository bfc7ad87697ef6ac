"""manifest.json: comes back equal, and says what is wrong with it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from conceptformer.errors import CheckpointError
from conceptformer.manifest import MANIFEST_FILE, Manifest

MANIFEST = Manifest(
    backbone={"class": "conceptformer.backbones.made.Made", "name": "owner/model", "revision": None},
    inputs={"query_tokens": 256, "page_question": "Was ist zu sehen?\n„äöü“"},
    adaptation={"kind": "low rank", "rank": 8},
    concepts={"source": "latent"},
    temperature=0.01,
    concept_weight=0.2,
    data_fingerprint="a" * 64,
    step=17,
    metrics={"ndcg@10": 0.5},
    probe_tolerance=1e-3,
    files=("a.safetensors", "b/c.json"),
    projection=True,
    training_precision="bf16",
)
LATER = {"projection", "training_precision"}


def test_a_manifest_comes_back_equal(tmp_path: Path) -> None:
    MANIFEST.write(tmp_path)
    assert Manifest.read(tmp_path) == MANIFEST


@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(Manifest) if field.name not in {"format_version", *LATER}]
)
def test_each_missing_key_is_named(field: str) -> None:
    content = json.loads(MANIFEST.to_json())
    del content[field]
    with pytest.raises(CheckpointError, match=f"m.json: lacks {field};"):
        Manifest.from_json(json.dumps(content), "m.json")


def test_a_manifest_of_an_earlier_version_says_nothing_of_what_it_did_not_write_down() -> None:
    content = {name: value for name, value in json.loads(MANIFEST.to_json()).items() if name not in LATER}
    found = Manifest.from_json(json.dumps(content), "m.json")
    assert found == dataclasses.replace(MANIFEST, projection=None, training_precision=None)
    assert Manifest.from_json(found.to_json(), "m.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format version is 2, expected 1"),
        ({"format_version": None}, "format version is None, expected 1"),
        ({"colour": "red"}, "holds unknown colour"),
        ({"step": "17"}, "step is '17', expected int"),
        ({"step": True}, "step is True, expected int"),
        ({"temperature": "0.01"}, "temperature is '0.01', expected int or float"),
        ({"backbone": []}, r"backbone is \[\], expected dict"),
        ({"projection": 1}, "projection is 1, expected true, false or null"),
        ({"training_precision": 16}, "training_precision is 16, expected str or NoneType"),
        ({"files": [1]}, "files is 1, expected str"),
    ],
)
def test_other_versions_keys_and_types_are_refused_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        Manifest.from_json(json.dumps({**json.loads(MANIFEST.to_json()), **change}), "m.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", "holds list"), ("", "not JSON")])
def test_what_is_no_json_object_is_refused(text: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Manifest.from_json(text, "m.json")


def test_a_folder_without_a_manifest_and_a_file_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no manifest.json"):
        Manifest.read(tmp_path)
    (tmp_path / MANIFEST_FILE).write_bytes(b"\xff\xfe{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
def test_what_json_cannot_hold_is_not_written(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointError, match="the manifest cannot be written"):
        dataclasses.replace(MANIFEST, metrics={"ndcg@10": value}).write(tmp_path)
    assert not list(tmp_path.iterdir())
