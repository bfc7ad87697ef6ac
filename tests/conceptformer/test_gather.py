"""Two processes that talk through gloo against one process with the joint batch."""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed, nn

from conceptformer.errors import TrainingError
from conceptformer.losses import concept_kl, false_negatives, info_nce, query_concept_matching
from conceptformer.pooling import l2_normalise
from conceptformer.step.gather import all_gather_with_gradient, gather_integers, process_count, process_offset

CPU = torch.device("cpu")
TIMEOUT = datetime.timedelta(seconds=60)
"""After which a process that waits for the other in vain fails, instead of hanging."""

ROWS = (3, 2)
TEMPERATURE = 0.1
KEYS = torch.tensor([11, 12, 13, 2**63 - 1, 11])
OTHERS = torch.tensor([[-1], [2**63 - 1], [-1], [-1], [13]])
SPREADS = {
    "unequally": torch.tensor([True, False, False, True, True]),
    "in the first process alone": torch.tensor([False, True, True, False, False]),
    "nowhere": torch.zeros(5, dtype=torch.bool),
}


class Encoder(nn.Module):
    """Queries, pages and concepts from their inputs: [B, 3, 4] to three [B, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return l2_normalise(self.layers(x)).unbind(dim=1)


def made() -> tuple[Encoder, torch.Tensor]:
    """The same encoder and joint batch in every process."""
    torch.manual_seed(0)
    return Encoder().double(), torch.randn(sum(ROWS), 3, 4, dtype=torch.float64)


def own_rows(rank: int) -> slice:
    return slice(sum(ROWS[:rank]), sum(ROWS[: rank + 1]))


def joint_loss(encoder: nn.Module, x: torch.Tensor, rows: slice, has_concept: torch.Tensor) -> torch.Tensor:
    """InfoNCE and both concept losses of some rows; the mean over processes is the loss of the joint batch."""
    query, page, concept = encoder(x[rows])
    page, candidate_concept = all_gather_with_gradient(page), all_gather_with_gradient(concept)
    positive = process_offset(len(query), CPU) + torch.arange(len(query))
    all_have = gather_integers(has_concept[rows])
    excluded = false_negatives(gather_integers(KEYS[rows]), positive, OTHERS[rows])
    options = {"temperature": TEMPERATURE, "excluded": excluded, "reduction": "none"}
    contrast = info_nce(query, page, positive=positive, **options)
    options["has_concept"] = has_concept[rows]
    alignment = concept_kl(query, concept, page, **options)
    alignment = alignment + query_concept_matching(
        query, candidate_concept, page, candidate_has_concept=all_have, **options
    )
    mean = contrast.sum() / len(page) + 0.2 * alignment.sum() / all_have.sum().clamp_min(1)
    return process_count() * mean


def gradients_of_parallel_training(rank: int) -> dict[str, torch.Tensor]:
    result = {}
    for name, has_concept in SPREADS.items():
        encoder, x = made()
        parallel = nn.parallel.DistributedDataParallel(encoder)
        loss = joint_loss(parallel, x, own_rows(rank), has_concept)
        loss.backward()
        result |= {f"{name}: {key}": value.grad for key, value in encoder.named_parameters()}
        result[f"{name}: loss"] = loss.detach()[None]
    return result


def ragged_gathers(rank: int) -> dict[str, torch.Tensor]:
    """Process 0 brings the rows 0 to 2, process 1 the rows 3 and 4; then process 1 brings nothing."""
    x = torch.arange(10.0).view(5, 2)[own_rows(rank)].clone().requires_grad_()
    gathered = all_gather_with_gradient(x)
    # Each process weighs all rows, process 1 with ten times the weights of process 0.
    (gathered * torch.arange(10.0).view(5, 2) * 10**rank).sum().backward()
    alone = torch.ones(2, 3, requires_grad=True) if rank == 0 else torch.zeros(0, 3, requires_grad=True)
    all_alone = all_gather_with_gradient(alone)
    (all_alone * (rank + 1)).sum().backward()
    return {
        "gathered": gathered.detach(),
        "gradient": x.grad,
        "alone": all_alone.detach(),
        "gradient alone": alone.grad,
        "offset": torch.tensor([process_offset(ROWS[rank], CPU)]),
        "keys": gather_integers(KEYS[own_rows(rank)]),
        "mask": gather_integers(SPREADS["unequally"][own_rows(rank)]),
    }


def one_process_without_graph(rank: int) -> dict[str, torch.Tensor]:
    """Only process 1 has parameters behind its rows."""
    x = torch.ones(2, 3, requires_grad=rank == 1)
    gathered = all_gather_with_gradient(x)
    ((rank + 1) * gathered).sum().backward()
    with torch.no_grad():
        quiet = all_gather_with_gradient(x)
    return {"gradient": torch.zeros(2, 3) if x.grad is None else x.grad, "quiet": torch.tensor([quiet.requires_grad])}


def used_twice(rank: int) -> dict[str, torch.Tensor]:
    """The gradient that the gathering gets is another tensor's too: it may not be added up in place."""
    x, other = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    # Made before the gathering, so that its turn in the backward pass comes after it.
    same = 1 * other
    (all_gather_with_gradient(x) + same).mul(rank + 1).sum().backward()
    return {"gradient": x.grad, "other": other.grad}


def rows_of_different_shapes(rank: int) -> dict[str, torch.Tensor]:
    """Both processes must say so; one alone would leave the other waiting."""
    with pytest.raises(TrainingError, match=r"rows of \[3, 4\] numbers"):
        all_gather_with_gradient(torch.ones(2, 3 + rank))
    return {}


CASES: tuple[Callable[[int], dict[str, torch.Tensor]], ...] = (
    gradients_of_parallel_training,
    ragged_gathers,
    one_process_without_graph,
    used_twice,
    rows_of_different_shapes,
)


def run_process(rank: int, folder: Path) -> None:
    """All cases in one of two processes; starting processes takes longer than all that they do."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=(folder / "meeting_point").as_uri(), rank=rank, world_size=2, timeout=TIMEOUT
    )
    try:
        for case in CASES:
            results = {key: value.contiguous() for key, value in case(rank).items()}
            save_file(results, folder / f"{case.__name__}_{rank}.safetensors")
    except BaseException:
        (folder / f"failure_{rank}").write_text(traceback.format_exc(), encoding="utf-8")
        raise
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Callable[[Callable], list[dict[str, torch.Tensor]]]:
    """The results of a case in both processes."""
    folder = tmp_path_factory.mktemp("processes")
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_process, args=(rank, folder)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failures = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("failure_*"))]
    assert [process.exitcode for process in processes] == [0, 0], "\n".join(failures)
    return lambda case: [load_file(folder / f"{case.__name__}_{rank}.safetensors") for rank in range(2)]


@pytest.mark.parametrize("spread", SPREADS)
def test_two_processes_get_the_gradients_of_one_with_the_joint_batch(found, spread):
    encoder, x = made()
    loss = joint_loss(encoder, x, slice(0, 5), SPREADS[spread])
    loss.backward()
    expected = {key: value.grad for key, value in encoder.named_parameters()}
    both = found(gradients_of_parallel_training)
    for results in both:
        for key, gradient in expected.items():
            torch.testing.assert_close(results[f"{spread}: {key}"], gradient, rtol=1e-6, atol=1e-9)
    mean = sum(results[f"{spread}: loss"] for results in both) / 2
    torch.testing.assert_close(mean, loss.detach()[None], rtol=1e-6, atol=1e-9)


def test_rows_stand_in_the_order_of_ranks_though_their_numbers_differ(found):
    for rank, results in enumerate(found(ragged_gathers)):
        assert torch.equal(results["gathered"], torch.arange(10.0).view(5, 2))
        assert torch.equal(results["alone"], torch.ones(2, 3))
        assert results["offset"].item() == (0, 3)[rank]


def test_a_gradient_is_the_sum_over_the_processes_at_the_own_rows(found):
    weights = 11 * torch.arange(10.0).view(5, 2)
    for rank, results in enumerate(found(ragged_gathers)):
        assert torch.equal(results["gradient"], weights[own_rows(rank)])
        assert torch.equal(results["gradient alone"], torch.full((2, 3) if rank == 0 else (0, 3), 3.0))


def test_integers_and_masks_arrive_as_they_are(found):
    for results in found(ragged_gathers):
        assert torch.equal(results["keys"], KEYS)
        assert torch.equal(results["mask"], SPREADS["unequally"])


def test_a_process_whose_rows_need_no_gradient_still_takes_part_in_the_backward_pass(found):
    first, second = found(one_process_without_graph)
    assert not first["gradient"].any()
    assert torch.equal(second["gradient"], torch.full((2, 3), 3.0))
    assert not first["quiet"] and not second["quiet"]


def test_the_gradient_of_another_tensor_is_left_alone(found):
    for rank, results in enumerate(found(used_twice)):
        assert torch.equal(results["gradient"], torch.full((2, 3), 3.0))
        assert torch.equal(results["other"], torch.full((4, 3), rank + 1.0))


def test_rows_of_different_shapes_are_refused_by_both_processes(found):
    assert found(rows_of_different_shapes) == [{}, {}]


def test_one_process_alone_gets_its_own_tensors_back():
    x = torch.ones(2, 3, requires_grad=True)
    assert all_gather_with_gradient(x) is x
    assert gather_integers(KEYS) is KEYS
    assert (process_count(), process_offset(7, CPU)) == (1, 0)


def test_tensors_with_gradients_are_no_integers():
    with pytest.raises(TrainingError, match="expected int64 or bool"):
        gather_integers(torch.ones(2))
