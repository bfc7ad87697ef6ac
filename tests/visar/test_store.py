"""Embeddings on disk: what is written comes back, damage is found, a kill or a full disk loses nothing complete."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.visar.stored_pages import FACTS, KEY, page
from visar.errors import EmbeddingError, VisarError
from visar.records import PageEmbedding, QueryEmbedding
from visar.store import EmbeddingKey, EmbeddingStore
from visar.tensor_files import StoreError, StoreWarning, load, to_bytes, write_atomically

# The processes of these tests start in a fresh interpreter and find the package where this one found it.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
PRELUDE = """
import sys, torch, warnings
from visar.errors import VisarError
from visar.records import PageEmbedding
from visar.store import EmbeddingKey, EmbeddingStore
from tests.visar.stored_pages import KEY, page
store = EmbeddingStore(sys.argv[1])
"""


def filled(root: Path, pages: int = 3) -> EmbeddingStore:
    store = EmbeddingStore(root)
    for number in range(pages):
        store.write_page(KEY, number, page(number))
    return store


def assert_equal_pages(actual: list[PageEmbedding], expected: list[PageEmbedding]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.vectors.dtype == torch.float16
        assert torch.equal(one.vectors, other.vectors.to(torch.float16))
        torch.testing.assert_close(one.boxes, other.boxes, rtol=0, atol=0, equal_nan=True)


def files(store: EmbeddingStore) -> list[str]:
    return sorted(os.listdir(store.folder(KEY)))


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return out


def wait_for(pattern: str, folder: Path, process: subprocess.Popen[str]) -> Path:
    """The first file of that pattern, while its process is still at work."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = next(folder.glob(pattern), None)
        if found is not None:
            return found
        time.sleep(0.001)
    raise AssertionError(f"no {pattern} appeared: {process.communicate()[1]}")


# Keys


def test_key_is_the_digest_of_its_canonical_json():
    facts = {**FACTS, "store format": 1}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    assert KEY.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"document": "another file"},
        {"encoder": {"class": "Hashed", "width": "8"}},
        {"needs": "image"},
        {"reading": {"ocr": "tesseract"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_changed_fact_gives_another_key(change):
    assert EmbeddingKey.of(**{**FACTS, **change}).digest != KEY.digest


def test_order_of_facts_does_not_change_the_key():
    turned = {**FACTS, "encoder": dict(reversed(FACTS["encoder"].items()))}
    assert EmbeddingKey.of(**turned) == KEY


def test_key_lies_beside_the_embeddings_for_people_to_read(tmp_path):
    store = filled(tmp_path)
    assert json.loads((store.folder(KEY) / "key.json").read_text()) == {**FACTS, "store format": 1}


# Pages and documents


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_pages_of_unequal_length_come_back_in_page_order(tmp_path, order):
    store = EmbeddingStore(tmp_path)
    pages = [page(number, rows) for number, rows in enumerate([2, 11, 3])]
    for number in order:
        store.write_page(KEY, number, pages[number])
    assert store.finish(KEY, 3) == []
    assert_equal_pages(store.read(KEY), pages)
    assert store.page_count(KEY) == 3


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.integers(1, 13), min_size=1, max_size=5), width=st.integers(1, 9))
def test_any_shape_comes_back(tmp_path, rows, width):
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    store = EmbeddingStore(tmp_path / "store")
    pages = [page(number, count, width) for number, count in enumerate(rows)]
    for number, embedding in enumerate(pages):
        store.write_page(KEY, number, embedding)
    assert store.finish(KEY, len(pages)) == []
    assert_equal_pages(store.read(KEY), pages)


def test_another_library_reads_the_same_vectors(tmp_path):
    store = filled(tmp_path)
    store.finish(KEY, 3)
    with safe_open(store.folder(KEY) / "document.safetensors", framework="numpy") as file:
        stacked = file.get_tensor("vectors")
    assert stacked.dtype == "float16"
    assert (stacked == torch.cat([page(number).vectors for number in range(3)]).numpy().astype("float16")).all()


def test_a_finished_document_is_one_file_and_the_same_bytes_each_time(tmp_path):
    first, second = filled(tmp_path / "a"), filled(tmp_path / "b")
    first.finish(KEY, 3)
    second.finish(KEY, 3)
    assert files(first) == ["document.safetensors", "key.json"]
    name = Path("document.safetensors")
    assert (first.folder(KEY) / name).read_bytes() == (second.folder(KEY) / name).read_bytes()


def test_missing_pages_shrink_with_each_page_written(tmp_path):
    store = EmbeddingStore(tmp_path)
    assert store.missing_pages(KEY, 3) == [0, 1, 2]
    store.write_page(KEY, 1, page(1))
    assert store.missing_pages(KEY, 3) == [0, 2]
    assert store.finish(KEY, 3) == [0, 2]
    assert store.page_count(KEY) is None
    store.write_page(KEY, 0, page(0))
    store.write_page(KEY, 2, page(2))
    assert store.missing_pages(KEY, 3) == []
    assert store.finish(KEY, 3) == []
    assert store.missing_pages(KEY, 3) == []


def test_reading_an_unfinished_document_is_a_clear_error(tmp_path):
    with pytest.raises(StoreError, match="expected the embeddings of a whole document"):
        filled(tmp_path).read(KEY)


def test_half_precision_keeps_unit_vectors_eight_times_finer_than_bfloat16():
    vectors = page(0, rows=1009, width=128).vectors
    half, brain = ((vectors - vectors.to(kind).float()).abs().max() for kind in (torch.float16, torch.bfloat16))
    assert half <= 2**-12  # half a step at 1/2 to 1
    assert 7 < brain / half < 9


def test_nan_is_kept_for_the_page_selection_to_judge_and_warned_of(tmp_path):
    store = EmbeddingStore(tmp_path)
    broken = page(0)
    broken.vectors[2, 1] = math.nan
    with pytest.warns(StoreWarning, match=r"page 0 \(0-based\) holds NaN or Inf"):
        store.write_page(KEY, 0, broken)
    store.finish(KEY, 1)
    assert store.read(KEY)[0].vectors.isnan().sum() == 1


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (PageEmbedding(torch.zeros(0, 7), torch.zeros(0, 4)), r"page 4 .*\[n, D\]"),
        (PageEmbedding(torch.ones(7), torch.zeros(7, 4)), r"page 4 .*\[n, D\]"),
        (PageEmbedding(torch.ones(3, 7, dtype=torch.int64), torch.zeros(3, 4)), "float vectors"),
        (PageEmbedding(torch.ones(3, 7), torch.zeros(2, 4)), r"boxes \[3, 4\]"),
        (PageEmbedding(torch.full((3, 7), 1e5), torch.zeros(3, 4)), r"length 1, got entries up to 1e\+05"),
    ],
)
def test_embeddings_that_cannot_be_kept_are_refused_by_page(tmp_path, embedding, message):
    store = EmbeddingStore(tmp_path)
    with pytest.raises(EmbeddingError, match=message):
        store.write_page(KEY, 4, embedding)
    assert not store.folder(KEY).exists()


def test_pages_of_two_widths_are_refused_and_stay(tmp_path):
    store = filled(tmp_path, pages=2)
    store.write_page(KEY, 2, page(2, width=5))
    with pytest.raises(EmbeddingError, match=r"one embedding width D, got \[5, 7\]"):
        store.finish(KEY, 3)
    assert store.missing_pages(KEY, 3) == []


# Damage


@pytest.mark.parametrize("name", ["page-00001.safetensors", "document.safetensors"])
@pytest.mark.parametrize("kept", [0, 1, 8, 0.5, -1], ids=lambda kept: f"kept {kept}")
def test_a_truncated_file_is_encoded_again(tmp_path, name, kept):
    store = filled(tmp_path)
    if name.startswith("document"):
        store.finish(KEY, 3)
    whole = (store.folder(KEY) / name).read_bytes()
    (store.folder(KEY) / name).write_bytes(whole[: int(len(whole) * kept) if isinstance(kept, float) else kept])
    with pytest.warns(StoreWarning, match=f"{name}: damaged"):
        missing = store.missing_pages(KEY, 3)
    assert missing == ([0, 1, 2] if name.startswith("document") else [1])
    for number in missing:
        store.write_page(KEY, number, page(number))
    assert store.finish(KEY, 3) == []
    assert (store.folder(KEY) / "document.safetensors").read_bytes()
    assert_equal_pages(store.read(KEY), [page(number) for number in range(3)])


@pytest.mark.filterwarnings("ignore::visar.tensor_files.StoreWarning")
def test_every_single_flipped_bit_is_found(tmp_path):
    """Types and shapes in the header too: float16 read as another 16-bit type would be silently wrong."""
    data = to_bytes({"key": "a"}, {"vectors": torch.rand(5, 3).half(), "lengths": torch.tensor([2, 3])})
    path = tmp_path / "file.safetensors"
    path.write_bytes(data)
    assert load(path) is not None
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert load(path) is None, f"bit {bit % 8} of byte {bit // 8}"


@pytest.mark.parametrize("content", [{}, {"visar": "null"}, {"visar": "[]"}, {"visar": "{"}, {"visar": '{"header":1}'}])
def test_a_safetensors_file_of_somebody_else_is_not_used(tmp_path, content):
    from safetensors.torch import save_file

    save_file({"vectors": torch.ones(2, 3)}, tmp_path / "theirs", metadata=content)
    with pytest.warns(StoreWarning, match="not used"):
        assert load(tmp_path / "theirs") is None


def test_a_file_copied_from_another_key_is_not_used(tmp_path):
    store = filled(tmp_path)
    other = EmbeddingKey.of(**{**FACTS, "document": "another file"})
    store.finish(KEY, 3)
    shutil.copytree(store.folder(KEY), store.folder(other))
    with pytest.warns(StoreWarning, match="another key"):
        assert store.page_count(other) is None


def test_reading_a_damaged_document_never_gives_wrong_vectors(tmp_path):
    store = filled(tmp_path)
    store.finish(KEY, 3)
    path = store.folder(KEY) / "document.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.warns(StoreWarning, match="checksum"), pytest.raises(StoreError, match="encode the document again"):
        store.read(KEY)


def test_a_refusing_file_system_is_an_error_and_no_missing_page(tmp_path):
    """Encoding anew would not help where the file is there and cannot be read."""
    store = EmbeddingStore(tmp_path)
    (store.folder(KEY) / "document.safetensors").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read"):
        store.page_count(KEY)


# Kills, full disks and several writers, with real processes


def test_a_kill_in_a_write_leaves_the_old_file_and_the_rest_is_cleared(tmp_path):
    store = filled(tmp_path, pages=1)
    folder = store.folder(KEY)
    before = (folder / "page-00000.safetensors").read_bytes()
    process = start("store.write_page(KEY, 0, PageEmbedding(torch.ones(60_000, 512), torch.ones(60_000, 4)))", tmp_path)
    leftover = wait_for(".page-00000*.tmp", folder, process)
    process.send_signal(signal.SIGSTOP)
    assert store.missing_pages(KEY, 1) == []
    assert leftover.exists(), "the file of a living process was taken away"
    process.kill()
    process.communicate()
    assert (folder / "page-00000.safetensors").read_bytes() == before
    assert store.missing_pages(KEY, 1) == []
    assert files(store) == ["key.json", "page-00000.safetensors"]


def test_a_kill_while_pages_are_joined_loses_no_page(tmp_path):
    store = EmbeddingStore(tmp_path)
    for number in range(3):
        store.write_page(KEY, number, page(number, rows=20_000, width=512))
    process = start("store.finish(KEY, 3)", tmp_path)
    wait_for(".document*.tmp", store.folder(KEY), process)
    process.kill()
    process.communicate()
    assert store.page_count(KEY) is None
    assert store.missing_pages(KEY, 3) == []
    assert store.finish(KEY, 3) == []
    assert files(store) == ["document.safetensors", "key.json"]


def test_page_files_that_a_kill_left_beside_the_finished_document_are_removed(tmp_path):
    store = filled(tmp_path)
    pages = {path.name: path.read_bytes() for path in store.folder(KEY).glob("page-*")}
    store.finish(KEY, 3)
    for name, data in pages.items():
        (store.folder(KEY) / name).write_bytes(data)
    assert store.page_count(KEY) == 3
    assert files(store) == ["document.safetensors", "key.json"]


def test_leftovers_of_another_machine_stay_for_a_day(tmp_path):
    store = filled(tmp_path, pages=1)
    theirs = store.folder(KEY) / ".page-00000.safetensors.another-machine.1.0123abcd.tmp"
    theirs.write_bytes(b"half")
    store.missing_pages(KEY, 1)
    assert theirs.exists()
    yesterday = time.time() - 25 * 3600
    os.utime(theirs, (yesterday, yesterday))
    store.missing_pages(KEY, 1)
    assert not theirs.exists()


def test_a_file_size_limit_is_one_line_and_leaves_nothing_half_written(tmp_path):
    """A limit set by the kernel refuses the write in its middle, as a full disk does."""
    pytest.importorskip("resource", reason="file-size limits exist on POSIX systems only")
    code = """
import resource
store.write_page(KEY, 0, page(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.write_page(KEY, 1, page(1, rows=1000, width=512))
except VisarError as error:
    print(error)
"""
    message = output(start(code, tmp_path)).splitlines()
    store = EmbeddingStore(tmp_path)
    assert len(message) == 1
    assert str(store.folder(KEY)) in message[0]
    assert "File too large" in message[0]
    assert any(1_024_000 < int(word.replace(",", "")) < 1_100_000 for word in message[0].split() if "," in word)
    assert files(store) == ["key.json", "page-00000.safetensors"]
    assert store.missing_pages(KEY, 2) == [1]


def test_a_full_disk_is_one_line_and_the_next_run_continues(tmp_path):
    """A real file system of 1 MiB, mounted in a mount namespace of its own where the machine allows that."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("needs unshare and mount to make a small file system")
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mount = f"mount -t tmpfs -o size=1m visar-test {tmp_path}"
    if subprocess.run([*namespace, "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow mounting a small file system")
    code = """
import pathlib
ballast = pathlib.Path(sys.argv[1], "ballast")
store.write_page(KEY, 0, page(0))
ballast.write_bytes(bytes(900_000))
try:
    store.write_page(KEY, 1, page(1, rows=100, width=1024))
except VisarError as error:
    print(error)
print(store.missing_pages(KEY, 2), *sorted(path.name for path in store.folder(KEY).iterdir()))
ballast.unlink()
store.write_page(KEY, 1, page(1))
print(store.finish(KEY, 2), store.page_count(KEY))
"""
    script = f'{mount} && exec "$@"'
    result = subprocess.run(
        [*namespace, "sh", "-c", script, "sh", sys.executable, "-c", PRELUDE + code, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    message, after, end = result.stdout.splitlines()
    assert "No space left on device" in message and str(tmp_path) in message
    assert after == "[1] key.json page-00000.safetensors"
    assert end == "[] 2"


def test_processes_that_write_one_key_at_once_do_not_hurt_each_other(tmp_path):
    """They write, join and remove the same files; whatever the order, each ends with the whole document."""
    code = """
import random
warnings.simplefilter("error")
pages = list(range(13))
random.Random(sys.argv[2]).shuffle(pages)
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for _ in range(100):
    for number in [number for number in pages if number in store.missing_pages(KEY, 13)]:
        store.write_page(KEY, number, page(number, rows=101))
    if not store.finish(KEY, 13):
        break
expected = [page(number, rows=101).vectors.half() for number in range(13)]
print(all(torch.equal(one.vectors, other) for one, other in zip(store.read(KEY), expected, strict=True)))
"""
    processes = [start(code, tmp_path, seed) for seed in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert output(process) == "True\n"
    store = EmbeddingStore(tmp_path)
    assert store.page_count(KEY) == 13
    assert files(store) == ["document.safetensors", "key.json"]


def test_an_atomic_write_replaces_what_stood_there(tmp_path):
    write_atomically(tmp_path / "file", b"old")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "taken").write_text("not a folder")
    store = EmbeddingStore(tmp_path / "taken")
    with pytest.raises(VisarError, match="cannot write"):
        store.write_page(KEY, 0, page(0))


# Questions

QUESTION = QueryEmbedding(torch.rand(3, 7), ("¿", "##qué", '"\n'), dropped_tokens=2)


def test_a_question_comes_back_exactly(tmp_path):
    store = EmbeddingStore(tmp_path)
    assert store.read_query({"model": "a"}, "¿qué?") is None
    store.write_query({"model": "a"}, "¿qué?", QUESTION)
    found = store.read_query({"model": "a"}, "¿qué?")
    assert torch.equal(found.vectors, QUESTION.vectors)
    assert (found.tokens, found.dropped_tokens) == (QUESTION.tokens, 2)


def test_a_question_belongs_to_its_text_and_encoder(tmp_path):
    store = EmbeddingStore(tmp_path)
    store.write_query({"model": "a"}, "who?", QUESTION)
    assert store.read_query({"model": "b"}, "who?") is None
    assert store.read_query({"model": "a"}, "who? ") is None


def test_a_damaged_question_is_made_anew(tmp_path):
    store = EmbeddingStore(tmp_path)
    store.write_query({}, "who?", QUESTION)
    (file,) = (tmp_path / "questions").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(StoreWarning, match="damaged"):
        assert store.read_query({}, "who?") is None
    store.write_query({}, "who?", QUESTION)
    assert torch.equal(store.read_query({}, "who?").vectors, QUESTION.vectors)
