"""Runs proposals again and again in a folder, kills each run at a random moment of its work, and lets the last one end.

    python -m tests.conceptformer.proposal_kills FOLDER URL SEED KILLS

The runs are forks of this process, in which everything is loaded already. Prints the number of whole rows in the box
file after each kill. It is left to the command itself to finish the file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from conceptformer.proposals.budget import Budget
from conceptformer.proposals.endpoint import Endpoint
from conceptformer.proposals.page_images import SentForm
from conceptformer.proposals.pairs import read_pairs
from conceptformer.proposals.retries import RetryPolicy
from conceptformer.proposals.run import ProposalRun, ProposalSettings


def propose(folder: Path, url: str, out: str, calls: int | None = None) -> None:
    endpoint = Endpoint(
        base_url=url, model="some/model-1", key_env=None, temperature=0.2, max_tokens=None, structured=True,
        timeout_seconds=60, max_reply_bytes=100_000,
    )  # fmt: skip
    settings = ProposalSettings(
        endpoint=endpoint, image=SentForm(1_000_000, 1, "png"), retries=RetryPolicy(2, 1, 1, 1), budget=Budget(calls),
        frame="absolute", concurrency=4, asks=3, stop_after_failures=1000,
    )  # fmt: skip
    ProposalRun(read_pairs(folder / "data" / "pairs.jsonl"), folder / out, settings).run()


def rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main(folder: Path, url: str, seed: int, kills: int) -> None:
    moments = random.Random(seed)
    propose(folder, url, "warm/boxes.jsonl", calls=1)  # the SDK loads most of itself with the first call
    out = folder / "out" / "boxes.jsonl"
    found = []
    for _ in range(kills):
        before = rows(out)
        child = os.fork()
        if child == 0:
            propose(folder, url, "out/boxes.jsonl")
            os._exit(0)
        while rows(out) == before:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the run was at its end before it was killed"
        found.append(rows(out))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
