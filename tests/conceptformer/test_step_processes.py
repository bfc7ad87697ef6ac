"""Two processes, with unequal numbers of pairs and of concepts, against one with all of them: the whole step, with the
model in torch's own data-parallel wrapper.
"""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.concepts.proxies import TextConcepts
from conceptformer.records import TrainingExample
from conceptformer.step.gradient_cache import cached_backward
from conceptformer.step.model import TrainingModel
from conceptformer.step.objective import LossTerms, Marks, Objective, QueryConceptMatching, RankingAlignment
from conceptformer.step.passes import SharedPrefix
from tests.conceptformer.step_cases import LATENT, assert_close_gradients
from tests.conceptformer.step_examples import batch_of, mixed, without_boxes
from tests.conceptformer.tiny_models import tiny_backbone, tiny_folder

TIMEOUT = datetime.timedelta(seconds=60)
"""After which a process that waits for the other in vain fails, instead of hanging."""

SHARES = (slice(0, 3), slice(3, 5))


def shared_pages() -> list[TrainingExample]:
    """The first and the fourth page are one page, and the second query has a further answer in the other process."""
    first, second, third, fourth, last = mixed()
    fourth = replace(fourth, page=replace(fourth.page, page_id="p0"))
    return [first, replace(second, other_positives=("p4", "elsewhere")), third, fourth, last]


def in_the_first_alone() -> list[TrainingExample]:
    return [*mixed()[:3], *without_boxes(mixed()[3:])]


def objective(alignment, *, mask: bool = False) -> Objective:
    return Objective(0.05, 0.7, alignment, mask_false_negatives=mask)


@dataclass(frozen=True)
class Case:
    """``sizes`` of each process' chunks; None for no gradient caching."""

    objective: Objective
    examples: Callable[[], list[TrainingExample]] = mixed
    concepts: ConceptSource = LATENT
    projection: bool = False
    sizes: tuple[list[int] | None, list[int] | None] = (None, None)


CASES = {
    "ranking alignment": Case(objective(RankingAlignment())),
    "pages left out": Case(objective(RankingAlignment(), mask=True), shared_pages),
    "query-concept matching": Case(objective(QueryConceptMatching(), mask=True), shared_pages),
    "concepts in the first alone": Case(objective(RankingAlignment()), in_the_first_alone, projection=True),
    "matching in the first alone": Case(objective(QueryConceptMatching()), in_the_first_alone),
    "texts in the first alone": Case(objective(RankingAlignment()), in_the_first_alone, TextConcepts()),
    "concepts nowhere": Case(objective(QueryConceptMatching()), lambda: without_boxes(mixed()), projection=True),
    "concept weight 0": Case(replace(objective(RankingAlignment()), concept_weight=0), projection=True),
    "unequal chunks": Case(objective(RankingAlignment()), sizes=([1, 1, 1], [2])),
    "chunks in one alone": Case(objective(QueryConceptMatching(), mask=True), shared_pages, sizes=([2, 1], None)),
}


def marks_of(examples: Sequence[TrainingExample], model: TrainingModel) -> Marks:
    batch = batch_of(examples, model.backbone.inputs, model.concepts)
    return Marks(batch.has_concept, batch.page_keys, batch.other_keys)


def run(
    model: TrainingModel,
    wrapped: torch.nn.Module,
    examples: Sequence[TrainingExample],
    loss: Objective,
    sizes: Sequence[int] | None,
) -> LossTerms:
    """Forward and backward over this process' pairs."""
    model.zero_grad(set_to_none=True)
    marks = marks_of(examples, model)
    if sizes is None:
        terms = loss(wrapped(batch_of(examples, model.backbone.inputs, model.concepts)), marks)
        terms.total.backward()
        return terms
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    chunks = [
        batch_of(examples[start : start + size], model.backbone.inputs, model.concepts)
        for start, size in zip(starts, sizes, strict=True)
    ]
    return cached_backward(chunks, wrapped, lambda own: loss(own, marks), torch.Tensor.backward, wrapped.no_sync)


def results(model: TrainingModel, terms: LossTerms) -> dict[str, torch.Tensor]:
    numbers = [terms.total.item(), terms.info_nce.item(), terms.alignment.item()]
    counts = [terms.masked_pairs, terms.without_concept]
    found = {f"gradient {name}": value.grad for name, value in model.named_parameters() if value.grad is not None}
    return {**found, "terms": torch.tensor(numbers), "counts": torch.tensor(counts)}


def model_of(backbone: Qwen2_5_VL, case: Case) -> TrainingModel:
    return TrainingModel(backbone, case.concepts, SharedPrefix(), case.projection).train()


def run_process(rank: int, folder: Path, checkpoint: Path) -> None:
    """All cases in one of two processes; starting processes takes longer than all that they do."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=(folder / "meeting_point").as_uri(), rank=rank, world_size=2, timeout=TIMEOUT
    )
    try:
        backbone = tiny_backbone(checkpoint)
        for number, case in enumerate(CASES.values()):
            model = model_of(backbone, case)
            wrapped = DistributedDataParallel(model)
            # Where a parameter had taken no part in the first step, the wrapper would say so in the second.
            for _ in range(2 if case.projection else 1):
                terms = run(model, wrapped, case.examples()[SHARES[rank]], case.objective, case.sizes[rank])
            save_file(results(model, terms), folder / f"{number}_{rank}.safetensors")
    except BaseException:
        (folder / f"failure_{rank}").write_text(traceback.format_exc(), encoding="utf-8")
        raise
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where both processes left what they found."""
    folder = tmp_path_factory.mktemp("processes")
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_process, args=(rank, folder, tiny_folder())) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failures = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("failure_*"))]
    assert [process.exitcode for process in processes] == [0, 0], "\n".join(failures)
    return folder


@pytest.fixture(scope="module")
def backbone() -> Qwen2_5_VL:
    return tiny_backbone()


@pytest.mark.parametrize("name", CASES)
def test_two_processes_are_one_with_all_pairs(folder, backbone, name):
    case = CASES[name]
    model = model_of(backbone, case)
    expected = results(model, run(model, model, case.examples(), case.objective, None))
    both = [load_file(folder / f"{list(CASES).index(name)}_{rank}.safetensors") for rank in range(2)]
    mean = (both[0]["terms"] + both[1]["terms"]) / 2
    torch.testing.assert_close(mean, expected["terms"], rtol=0, atol=1e-5)
    assert torch.equal(both[0]["counts"] + both[1]["counts"], expected["counts"])
    wanted = {key: value for key, value in expected.items() if key.startswith("gradient")}
    for found in both:
        # Data-parallel training has averaged them.
        assert_close_gradients(found, wanted, 1e-4)
    if "left out" in name:
        assert expected["counts"].tolist() == [3, 2]
