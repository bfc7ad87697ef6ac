"""A store finds what is damaged or not its own."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.visar.stored_pages import FACTS, KEY, assert_equal_pages, filled, page
from visar.store import EmbeddingKey, EmbeddingStore
from visar.tensor_files import StoreError, StoreWarning, load, to_bytes


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
