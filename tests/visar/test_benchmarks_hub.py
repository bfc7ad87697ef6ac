"""Downloads against a small server that speaks the hub's protocol, and the ways they fail.

Each load runs in its own process, since huggingface_hub reads its address from the environment when it is imported.
"""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.visar.benchmark_files import write_json, write_pdf
from visar.benchmarks import HubCopy, MMLongBench
from visar.errors import DatasetError, MissingExtraError

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

ROOT = Path(__file__).parents[2]
REPOSITORY = "owner/benchmark"
REVISION = "0123456789abcdef0123456789abcdef01234567"
NEEDS = "set dataset.root=FOLDER, a folder with samples.json (or data/*.parquet) and the PDFs in documents/"
LOAD = f"""
import json, sys, time
from visar.benchmarks import HubCopy, MMLongBench
from visar.errors import VisarError
for repository in sys.argv[1:]:
    hub = HubCopy(repository, "{REVISION}", ["Part/samples.json", "Part/documents/*"], folder="Part")
    start = time.monotonic()
    try:
        loaded = MMLongBench(hub=hub).load()
        outcome = [len(loaded.questions), [document.id for document in loaded.documents]]
    except VisarError as error:
        outcome = [type(error).__name__, str(error)]
    print(json.dumps([outcome, time.monotonic() - start]))
"""


class HubServer(http.server.ThreadingHTTPServer):
    """Serves one revision of one dataset repository from a folder, and counts the file bodies it sends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: list[str] = []
        super().__init__(("127.0.0.1", 0), HubRequest)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self) -> dict[str, Path]:
        return {path.relative_to(self.folder).as_posix(): path for path in self.folder.rglob("*") if path.is_file()}


class HubRequest(http.server.BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        api, resolve = f"/api/datasets/{REPOSITORY}", f"/datasets/{REPOSITORY}/resolve/{REVISION}/"
        files = self.server.files()
        if path == f"{api}/revision/{REVISION}":
            self._send(json.dumps({"id": REPOSITORY, "sha": REVISION, "siblings": []}).encode(), body)
        elif path == f"{api}/tree/{REVISION}":
            entries = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": f"{number:040x}"}
                for number, (name, file) in enumerate(sorted(files.items()))
            ]
            self._send(json.dumps(entries).encode(), body)
        elif path.startswith(resolve) and path.removeprefix(resolve) in files:
            name = path.removeprefix(resolve)
            if body:
                self.server.sent.append(name)
            self._send(files[name].read_bytes(), body, etag=f"{sorted(files).index(name):040x}")
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self, content: bytes, body: bool, etag: str = "0") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path):
    part = tmp_path / "repository" / "Part"
    write_pdf(part / "documents" / "a.pdf", 2)
    write_json(part / "samples.json", [{"doc_id": "a.pdf", "question": "Who?", "evidence_pages": "[2]", "answer": "x"}])
    write_json(tmp_path / "repository" / "Other" / "samples.json", [])
    with HubServer(tmp_path / "repository") as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


def load(home: Path, *repositories: str, **environment: str) -> tuple[list[object], list[float]]:
    """What one process gets when it loads from these repositories in turn, and how many seconds each load took."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    result = subprocess.run(
        [sys.executable, "-c", LOAD, *repositories],
        cwd=ROOT,
        env={**clean, "PYTHONPATH": str(ROOT), "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    return [outcome for outcome, _ in outcomes], [seconds for _, seconds in outcomes]


def test_a_benchmark_is_downloaded_once_and_is_there_when_the_hub_is_gone(server, tmp_path):
    home = tmp_path / "home"
    outcomes, _ = load(home, REPOSITORY, REPOSITORY, "owner/absent", HF_ENDPOINT=server.address)
    assert outcomes[:2] == [[1, ["a.pdf"]]] * 2
    # Only the benchmark's own folder, each file once.
    assert sorted(server.sent) == ["Part/documents/a.pdf", "Part/samples.json"]
    error, message = outcomes[2]
    assert error == "DatasetError"
    assert message.startswith(f"cannot download owner/absent at {REVISION}: RepositoryNotFoundError: ")
    assert message.endswith(NEEDS)

    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    for environment, reason in ((unreachable, "ConnectError: "), ({"HF_HUB_OFFLINE": "1"}, "OfflineModeIsEnabled: ")):
        outcomes, seconds = load(home, REPOSITORY, "owner/unknown", **environment)
        assert outcomes[0] == [1, ["a.pdf"]]
        error, message = outcomes[1]
        assert error == "DatasetError"
        assert message.startswith(f"cannot download owner/unknown at {REVISION}: {reason}")
        assert message.endswith(NEEDS)
        assert "\n" not in message
        # huggingface_hub's own retries take over 20 s.
        assert seconds[1] < 10


@pytest.mark.parametrize("revision", ["main", "", None, "0dfdcc9", REVISION.upper()])
def test_a_revision_that_is_no_commit_is_refused_before_anything_is_asked(revision):
    start = time.monotonic()
    with pytest.raises(DatasetError, match="set dataset.hub.revision"):
        MMLongBench(hub=HubCopy(REPOSITORY, revision, ["samples.json"])).load()
    assert time.monotonic() - start < 1


def test_without_the_hubs_package_the_error_names_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"needs the package 'huggingface_hub': pip install"):
        MMLongBench(hub=HubCopy(REPOSITORY, REVISION, ["samples.json"])).load()
