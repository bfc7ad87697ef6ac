"""A server of chat completions for the tests: a real HTTP server, in a process of its own, that does as it is told.

``POST /plan`` says how it behaves from then on, ``GET /log`` gives the requests since. A plan is
``{"by_query": {marker: [step, ...]}, "default": [step, ...]}``; a marker is a word like "q17" in the question, and its
n-th request meets the n-th step, those after the last step the last one. A step is one of these:

- ``{"content": text}``: a completion; also "finish_reason", "usage", "reasoning"
- ``{"status": number}``: an error; also "headers", "body"
- ``{"body": text}``: any other body with status 200
- ``{"size": bytes}``: a completion of so many bytes
- ``{"hang": seconds}``: no answer for so long, then a cut connection
- ``{"cut": "early" | "late"}``: the connection is closed before the answer, or within it

Every step may have "seconds", to wait before. "format_refused" in a plan answers structured requests with 400, or
with the status it states; "key" and "model" answer others with 401 and 404.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
BOX = json.dumps({"think": "It is there.", "boxes": [{"area": [10, 20, 60, 80], "describe": "a table"}]})


class State:
    """What the threads of the server share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.plan: dict[str, Any] = {}
        self.log: list[dict[str, Any]] = []
        self.seen: Counter[str] = Counter()
        self.open = self.most_open = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes
    state: State

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        with self.state.lock:
            self.answer(200, json.dumps({"requests": self.state.log, "most_open": self.state.most_open}))

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        content = self.rfile.read(length)
        if len(content) < length:  # the client has gone, or was killed
            self.close_connection = True
            return
        body = json.loads(content)
        if self.path == "/plan":
            with self.state.lock:
                self.state.plan, self.state.log = body, []
                self.state.seen.clear()
                self.state.most_open = 0
            self.answer(200, "{}")
            return
        with self.state.lock:
            self.state.open += 1
            self.state.most_open = max(self.state.most_open, self.state.open)
            step = self.step(body)
        try:
            time.sleep(step.get("seconds", 0))
            self.take(step)
        finally:
            with self.state.lock:
                self.state.open -= 1

    def step(self, body: dict[str, Any]) -> dict[str, Any]:
        """Log a request and say what it meets."""
        plan, key = self.state.plan, self.headers.get("Authorization", "").removeprefix("Bearer ")
        texts = [part["text"] for part in body["messages"][1]["content"] if part["type"] == "text"]
        marker = re.findall(r"\bq\d+\b", texts[0])[-1]
        self.state.log.append({"at": time.time(), "path": self.path, "query": marker, "key": key, "body": body})
        if plan.get("key", key) != key:
            return {"status": 401, "body": json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}})}
        if plan.get("model", body["model"]) != body["model"] or not self.path.endswith("/v1/chat/completions"):
            message = f"The model '{body['model']}' does not exist"
            return {"status": 404, "body": json.dumps({"error": {"message": message}})}
        if plan.get("format_refused") and "response_format" in body:
            status = 400 if plan["format_refused"] is True else plan["format_refused"]
            return {"status": status, "body": json.dumps({"error": {"message": "response_format is not supported"}})}
        steps = plan.get("by_query", {}).get(marker, plan.get("default", [{"content": BOX}]))
        step = steps[min(self.state.seen[marker], len(steps) - 1)]
        self.state.seen[marker] += 1
        return step

    def take(self, step: dict[str, Any]) -> None:
        if "hang" in step:
            time.sleep(step["hang"])
            self.close_connection = True
        elif step.get("cut") == "early":
            self.close_connection = True
        elif "status" in step:
            self.answer(step["status"], step.get("body", "{}"), step.get("headers", {}))
        elif "content" not in step and "body" in step:
            self.answer(200, step["body"])
        else:
            message = {"role": "assistant", "content": step.get("content", "x" * step.get("size", 0))}
            if "reasoning" in step:
                message["reasoning_content"] = step["reasoning"]
            choice = {"index": 0, "message": message, "finish_reason": step.get("finish_reason", "stop")}
            completion = {
                "id": "1",
                "object": "chat.completion",
                "choices": [choice],
                "usage": step.get("usage", USAGE),
            }
            self.answer(200, json.dumps(completion), cut="cut" in step)

    def answer(self, status: int, text: str, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content[: len(content) // 2] if cut else content)
        except ConnectionError:
            self.close_connection = True
        if cut:
            self.close_connection = True


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Server:
    """A running server, seen from a test."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def plan(self, **plan: Any) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/plan", json.dumps(plan).encode())
        _direct.open(request).read()

    def log(self) -> list[dict[str, Any]]:
        """The requests since the plan was made."""
        return self._state()["requests"]

    def most_open(self) -> int:
        """How many requests were open at once at most."""
        return self._state()["most_open"]

    def _state(self) -> dict[str, Any]:
        return json.loads(_direct.open(f"http://127.0.0.1:{self.port}/log").read())


# Whatever proxy the machine has, it is not for this server.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def running_server() -> Iterator[Server]:
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        yield Server(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    Handler.state = State()
    listener = Listener(("127.0.0.1", 0), Handler)
    print(listener.server_port, flush=True)
    listener.serve_forever()
