"""What the data loader's workers read, and how rows become the chunks of a step."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader

from conceptformer.concepts.latent import DynamicLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.concepts.proxies import NoConcepts
from conceptformer.step.batches import ReadExample, read_example
from conceptformer.training.rows import Chunks, MakeChunks, TrainingRows, Unreadable
from tests.conceptformer.step_examples import OVERLAPPING, SMALL, example, mixed
from tests.conceptformer.tiny_models import noise_image, tiny_backbone

LATENT = LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())


@pytest.fixture(scope="module")
def inputs():
    return tiny_backbone().inputs


@pytest.fixture
def broken(tmp_path):
    """Two pairs that cannot be read: a PNG cut off in its middle, and a file that is not there."""
    content = io.BytesIO()
    noise_image(100, 150).save(content, "PNG")
    cut = tmp_path / "cut.png"
    cut.write_bytes(content.getvalue()[:9000])
    pairs = []
    for number, path in ((5, cut), (6, tmp_path / "absent.png")):
        one = example(number, (100, 150), "red", SMALL)
        pairs.append(replace(one, page=replace(one.page, image=path)))
    return pairs


def read(inputs, examples, concepts=LATENT):
    rows = TrainingRows(examples, inputs, concepts)
    return [rows[number] for number in range(len(rows))]


def test_rows_are_the_examples_read_when_asked_for(inputs):
    rows = TrainingRows(mixed(), inputs, LATENT)
    assert len(rows) == 5
    for number, one in enumerate(mixed()):
        found, expected = rows[number], read_example(one, inputs, LATENT)
        assert found.example == one
        assert torch.equal(found.page.pixels, expected.page.pixels)
        assert (found.query_ids, found.prefix_ids) == (expected.query_ids, expected.prefix_ids)
        assert found.concept == expected.concept


def test_images_that_cannot_be_read_are_listed_with_the_reason(inputs, broken):
    first, cut, absent = read(inputs, [mixed()[0], *broken])
    assert isinstance(first, ReadExample)
    assert isinstance(cut, Unreadable) and cut.pair == ("q5", "p5")
    assert "cut.png: the image is damaged, truncated" in cut.reason and "\n" not in cut.reason
    assert isinstance(absent, Unreadable) and absent.pair == ("q6", "p6")
    assert "absent.png: no such file" in absent.reason


def test_other_faults_are_not_taken_for_unreadable_images(inputs):
    class Wrong(NoConcepts):
        def prepare(self, example, grid, inputs):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        read(inputs, mixed(), Wrong())


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [1] * 5), (2, [1, 2, 2]), (3, [2, 3]), (4, [2, 3]), (5, [5]), (9, [5])]
)
def test_chunks_have_at_most_their_size_and_are_about_equal(inputs, size, expected):
    chunks = MakeChunks(size)(read(inputs, mixed()))["chunks"]
    assert [len(batch) for batch in chunks.batches] == expected
    assert sorted(pair for batch in chunks.batches for pair in batch.pairs) == [(f"q{n}", f"p{n}") for n in range(5)]
    assert (chunks.unreadable, chunks.rows) == ((), 5)


def test_rows_of_like_length_share_a_chunk(inputs):
    short, long = (40, 40), (100, 150)
    examples = [
        example(number, size, "red", boxes)
        for number, (size, boxes) in enumerate(
            [(long, OVERLAPPING), (short, ()), (long, OVERLAPPING), (short, ()), (long, SMALL), (short, ())]
        )
    ]
    chunks = MakeChunks(3)(read(inputs, examples))["chunks"]
    assert [{query for query, _ in batch.pairs} for batch in chunks.batches] == [{"q1", "q3", "q5"}, {"q0", "q2", "q4"}]


def test_rows_left_out_are_listed_and_the_number_of_chunks_stays(inputs, broken):
    """Processes that share a model's parts call it equally often, whatever each of them had to leave out."""
    examples = mixed()
    rows = read(inputs, [examples[0], broken[0], examples[1], broken[1], examples[2], examples[3]])
    chunks = MakeChunks(2)(rows)["chunks"]
    assert [len(batch) for batch in chunks.batches] == [1, 1, 2]
    assert [one.pair for one in chunks.unreadable] == [("q5", "p5"), ("q6", "p6")]
    assert chunks.rows == 6


def test_too_few_rows_for_the_chunks_make_none_of_them(inputs, broken):
    good, *bad = read(inputs, [mixed()[0], *broken])
    for size, rows in ((1, [good, *bad]), (1, [good, bad[0]]), (3, bad)):
        chunks = MakeChunks(size)(rows)["chunks"]
        assert chunks.batches == ()
        assert len(chunks.unreadable) == sum(isinstance(row, Unreadable) for row in rows)
        assert chunks.rows == len(rows)
    assert len(MakeChunks(3)([good, *bad])["chunks"].batches) == 1


def test_rows_travel_to_workers(inputs):
    rows = pickle.loads(pickle.dumps(TrainingRows(mixed(), inputs, LATENT)))  # noqa: S301 - as the data loader does
    assert rows[2].query_ids == inputs.query_ids(mixed()[2].query)


def test_two_workers_read_what_one_process_reads(inputs, broken):
    rows = TrainingRows([*mixed(), broken[0], mixed()[0], broken[1]], inputs, LATENT)
    alone = list(DataLoader(rows, batch_size=4, collate_fn=MakeChunks(2)))
    together = list(DataLoader(rows, batch_size=4, collate_fn=MakeChunks(2), num_workers=2))
    assert len(together) == len(alone) == 2
    for left, right in zip(alone, together, strict=True):
        left, right = left["chunks"], right["chunks"]
        assert isinstance(right, Chunks) and left.unreadable == right.unreadable
        assert len(right.batches) == 2
        for one, other in zip(left.batches, right.batches, strict=True):
            assert one.pairs == other.pairs and one.grids == other.grids
            for name in ("query_ids", "pixels", "joint_ids", "segments", "slots", "page_keys", "has_concept"):
                assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert {one.pair for one in together[1]["chunks"].unreadable} == {("q5", "p5"), ("q6", "p6")}
