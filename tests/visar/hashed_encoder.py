"""An encoder without weights, importable by the processes that the tests start, that tells when it was called."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from visar.encoders.protocol import PageContent
from visar.errors import EmbeddingError
from visar.records import PageEmbedding, QueryEmbedding


@dataclass(frozen=True)
class HashedWords:
    """A word's vector is drawn from the word's hash; an image's vectors are its mean colours in a grid.

    Some words on a page are orders: ``Deadly`` kills the process, ``Mortal`` does so unless the file ``scar`` exists
    (and makes it), ``Unlikely`` is an embedding error, ``Buggy`` an error that no encoder should raise.

    Attributes:
        calls: A file that gets one line for each page encoded: process id, first word, number of threads.
        seconds: How long one page takes.
    """

    calls: Path
    needs: str = "text"
    width: int = 7
    seconds: float = 0.0

    def fingerprint(self) -> dict[str, str]:
        return {"class": "HashedWords", "width": str(self.width)}

    def encode_query(self, text: str) -> QueryEmbedding:
        words = tuple(text.split())
        return QueryEmbedding(torch.stack([self._vector(word) for word in words]), words)

    def encode_pages(self, pages: Sequence[PageContent]) -> list[PageEmbedding]:
        return [self._image(page) if self.needs == "image" else self._text(page) for page in pages]

    def _text(self, page: PageContent) -> PageEmbedding:
        words = [word.text for word in page.text.words] or [""]
        self._tell(words[0])
        self._obey(words)
        boxes = [word.box for word in page.text.words] or [(0.0, 0.0, 1.0, 1.0)]
        return PageEmbedding(torch.stack([self._vector(word) for word in words]), torch.tensor(boxes))

    def _image(self, page: PageContent) -> PageEmbedding:
        self._tell(f"{page.image.width}x{page.image.height}")
        colours = np.asarray(page.image.convert("RGB").resize((2, 3)), dtype=np.float32).reshape(6, 3) + 1
        vectors = torch.nn.functional.normalize(torch.from_numpy(colours), dim=1)
        return PageEmbedding(vectors, torch.full((6, 4), float("nan")))

    def _vector(self, word: str) -> torch.Tensor:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:7], "big")
        drawn = torch.randn(self.width, generator=torch.Generator().manual_seed(seed))
        return torch.nn.functional.normalize(drawn, dim=0)

    def _tell(self, what: str) -> None:
        time.sleep(self.seconds)
        with self.calls.open("a") as file:
            file.write(f"{os.getpid()} {what} {torch.get_num_threads()}\n")

    def _obey(self, words: Sequence[str]) -> None:
        scar = self.calls.with_name("scar")
        if "Deadly" in words or ("Mortal" in words and not scar.exists()):
            scar.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if "Unlikely" in words:
            raise EmbeddingError("the word Unlikely cannot be embedded")
        if "Buggy" in words:
            raise ZeroDivisionError("a bug in the encoder")
