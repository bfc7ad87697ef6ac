"""What goes wrong around the default text encoder, each said in one line."""

from __future__ import annotations

import pytest
import torch

from visar.encoders import PageContent, TokenStates
from visar.errors import EmbeddingError
from visar.records import PageText, Word


def test_a_question_with_halves_of_characters_is_one_line():
    """What the command line makes of bytes that are no UTF-8."""
    expected = r"^question: not valid text at character 4 \('\\udce9'\): write it in UTF-8$"
    with pytest.raises(EmbeddingError, match=expected):
        TokenStates(device="cpu").encode_query("caf\udce9")


def test_a_full_gpu_is_one_line_that_says_what_to_do():
    encoder = TokenStates(device="cpu", threads=1)
    page = PageContent(text=PageText((Word("growth", (0.1, 0.1, 0.2, 0.2)),), "text layer"))

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    encoder._load().model.register_forward_pre_hook(exhausted)
    expected = "^cpu ran out of memory; lower encoder.batch_size or set encoder.device=cpu$"
    for use in (lambda: encoder.encode_query("growth"), lambda: encoder.encode_pages([page])):
        with pytest.raises(EmbeddingError, match=expected):
            use()


def test_an_unknown_home_folder_is_one_line():
    with pytest.raises(EmbeddingError, match="home folder is unknown; write the path out in full"):
        TokenStates("~no_such_user_here/model").encode_query("growth")
