#!/usr/bin/env python3
"""How many pairs a second the proposer asks for, at a server that answers after a fixed time.

    python scripts/bench_propose.py                         16 at once, answers after 200 ms: at most 80 a second
    python scripts/bench_propose.py --pages 200 --width 1240

The server runs in a process of its own and only reads what it is sent. Pages are drawn as PNG files, each asked for by
several queries, as in document data sets. The time is that of a whole run, from the first look at the images to the
last byte on the disk, after a first small run has loaded the SDK.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from conceptformer.proposals.budget import Budget
from conceptformer.proposals.endpoint import Endpoint
from conceptformer.proposals.page_images import SentForm
from conceptformer.proposals.pairs import read_pairs
from conceptformer.proposals.retries import RetryPolicy
from conceptformer.proposals.run import ProposalRun, ProposalSettings

CONCURRENCY, WANTED = 16, 0.9
CONTENT = json.dumps({"think": "", "boxes": [{"area": [10, 10, 90, 90], "describe": "a table"}]})
COMPLETION = json.dumps(
    {
        "choices": [{"message": {"content": CONTENT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1300, "completion_tokens": 40},
    }
).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(COMPLETION) + COMPLETION
)


async def serve(seconds: float) -> None:
    """Answer every request after so many seconds; prints the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(seconds)
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def draw_pages(folder: Path, count: int, width: int) -> None:
    """Pages of text as PNG files."""
    height, font = round(width * 2**0.5), ImageFont.load_default(size=width // 70)
    for number in range(count):
        page = Image.new("RGB", (width, height), "white")
        pen = ImageDraw.Draw(page)
        for line, top in enumerate(range(height // 20, height * 9 // 10, width // 50)):
            words = f"{number:04d} {line:03d} the quick brown fox jumps over the lazy dog and 1,234 other animals"
            pen.text((width // 10, top), words[: 40 + (line + number) % 40], fill="black", font=font)
        page.save(folder / f"{number}.png")


def settings(port: int) -> ProposalSettings:
    """As the command has them by default."""
    return ProposalSettings(
        endpoint=Endpoint(
            base_url=f"http://127.0.0.1:{port}/v1",
            model="none",
            key_env=None,
            temperature=0.2,
            max_tokens=4096,
            structured=True,
            timeout_seconds=60,
            max_reply_bytes=1_000_000,
        ),
        image=SentForm(max_pixels=1280 * 28 * 28, side_multiple=1, format="jpeg"),
        retries=RetryPolicy(attempts=3, first_wait_seconds=1, longest_wait_seconds=10, longest_pause_seconds=60),
        budget=Budget(),
        frame="absolute",
        concurrency=CONCURRENCY,
        asks=3,
        stop_after_failures=20,
    )


def run_once(folder: Path, pairs: int, pages: int, seconds: float) -> tuple[float, float]:
    """Ask for so many pairs; seconds of the clock and of this process's CPU."""
    rows = (
        {"query_id": f"q{i}", "query": f"question {i}", "page_id": f"p{page}", "image": f"{page}.png"}
        for i, page in ((i, i * pages // pairs) for i in range(pairs))
    )
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(seconds)], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        run = ProposalRun(read_pairs(folder / "pairs.jsonl"), folder / f"boxes-{pairs}.jsonl", settings(port))
        begun, cpu = time.perf_counter(), time.process_time()
        run.run()
        return time.perf_counter() - begun, time.process_time() - cpu
    finally:
        server.kill()
        server.wait()


def measure(pairs: int, pages: int, width: int, seconds: float) -> None:
    """Print the pairs a second."""
    most = CONCURRENCY / seconds
    with tempfile.TemporaryDirectory(prefix="bench-propose-") as name:
        draw_pages(Path(name), pages, width)
        run_once(Path(name), 2 * CONCURRENCY, 2, 0.0)  # the SDK loads most of itself with the first calls
        took, cpu = run_once(Path(name), pairs, pages, seconds)
    print(f"{pairs:,} pairs on {pages:,} pages of {width} pixels' width: {took:.1f} s, {pairs / took:.1f} pairs/s")
    print(
        f"{pairs / took / most:.1%} of {most:.0f} pairs/s (wanted: {WANTED:.0%}); {1000 * cpu / pairs:.1f} ms CPU each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--width", type=int, default=600, help="of the pages; from 843 pixels on they are scaled down")
    parser.add_argument("--seconds", type=float, default=0.2, help="after which the server answers")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        asyncio.run(serve(given.serve))
    else:
        measure(given.pairs, given.pages, given.width, given.seconds)


if __name__ == "__main__":
    main()
