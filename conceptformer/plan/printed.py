"""A plan in words: Markdown for the terminal, JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conceptformer.plan.memory import GIB
from conceptformer.plan.run_plan import MemoryCase, RunPlan
from visar.tensor_files import write_atomically

PLAN_FILE = "plan.json"

_REFUSED_SHOWN = 5
_KINDS = {
    "visual": "visual",
    "query": "query",
    "concept": "concept",
    "text": "text in place of the concept",
    "row": "whole row",
}


def plan_lines(plan: RunPlan) -> list[str]:
    """The plan as lines of Markdown."""
    parts = (_data(plan), _lengths(plan), _trained(plan), _steps(plan), _memory(plan), _cost(plan))
    return [line for part in parts for line in (*part, "")][:-1]


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """The plan as JSON can hold it. Memory is in bytes; all ``refused`` lines are there."""
    facts = asdict(plan) | {"trained_parameters": plan.trained_values}
    for case, entry in zip(plan.memory, facts["memory"], strict=True):
        entry["estimate"]["total"] = case.estimate.total
    facts["flops"] |= {
        "info_nce": plan.flops.info_nce,
        "shared": plan.flops.shared,
        "separate": plan.flops.separate,
        "over_info_nce": plan.flops.over_info_nce,
        "saved": plan.flops.saved,
    }
    return facts


def write_plan(plan: RunPlan, folder: Path) -> Path:
    """Write ``plan.json`` into a folder, which is made where it is missing.

    Raises:
        StoreError: The file system refuses.
    """
    path = folder / PLAN_FILE
    write_atomically(path, (json.dumps(plan_facts(plan), indent=2, ensure_ascii=False) + "\n").encode())
    return path


def _data(plan: RunPlan) -> list[str]:
    data = plan.data
    lines = ["## Data", ""]
    if data.assumed is not None:
        return [*lines, f"- assumed, not read: {data.rows:,} pairs, as in {data.name}", f"- {data.assumed}"]
    lines.append(f"- {data.name}: {data.rows:,} pairs, {data.without_boxes:,} of them without evidence boxes")
    lines.append(f"- left out: {len(data.refused):,} rows or boxes")
    lines += [f"  - {line}" for line in data.refused[:_REFUSED_SHOWN]]
    if len(data.refused) > _REFUSED_SHOWN:
        lines.append(f"  - and {len(data.refused) - _REFUSED_SHOWN:,} more, in {PLAN_FILE}")
    return lines


def _lengths(plan: RunPlan) -> list[str]:
    note = " (assumed)" if plan.data.assumed is not None else ""
    lines = [f"## Tokens of a pair{note}", "", "| tokens | median | P90 | longest | of (query, page) |"]
    lines.append("|---|---:|---:|---:|---|")
    for kind, name in _KINDS.items():
        summary = plan.data.lengths.get(kind)
        if summary is None:
            continue
        p90 = "not known" if summary.p90 is None else f"{summary.p90:,}"
        longest = "; ".join(f"{query}, {page}" for query, page in summary.longest)
        lines.append(f"| {name} | {summary.median:,} | {p90} | {summary.maximum:,} | {longest} |")
    if "concept" not in plan.data.lengths:
        lines += ["", "No pair has latent concept tokens."]
    return lines


def _trained(plan: RunPlan) -> list[str]:
    share = plan.trained_values / plan.parameters
    lines = ["## Trained parameters", ""]
    lines.append(f"{plan.trained_values:,} of {plan.parameters:,} ({share:.2%})")
    lines += ["", "| name | shape | tensors | values |", "|---|---|---:|---:|"]
    for group in plan.trained:
        shape = " x ".join(f"{size:,}" for size in group.shape)
        lines.append(f"| `{group.pattern}` | {shape} | {group.tensors} | {group.values:,} |")
    return lines


def _steps(plan: RunPlan) -> list[str]:
    steps = plan.steps
    return [
        "## Steps",
        "",
        f"- {steps.pairs:,} pairs a step on {steps.gpus} GPUs, {steps.at_a_time} on each at a time; every query is "
        f"compared with {steps.candidates:,} pages",
        f"- {steps.per_epoch:,} steps an epoch, {steps.total:,} in all, the first {steps.warm_up:,} with a rising "
        "learning rate",
        f"- {steps.left_over:,} pairs of each epoch are left over, others each time: too few for a batch",
    ]


def _memory(plan: RunPlan) -> list[str]:
    gpu = plan.gpu
    lines = [
        f"## Memory of one GPU (estimate, GiB; {gpu.name} has {gpu.memory:g})",
        "",
        f"| {plan.steps.at_a_time} rows | checkpointing | weights are | weights | gathered | trained | activations | "
        f"allowances | total | fits |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|",
        *map(_memory_row, plan.memory),
        "",
        "Trained: parameters, gradients, AdamW's moments. Activations: the worst moment of a step, counted without "
        "running it. Allowances: 1 GiB for the driver, its libraries and the exchange between GPUs, and a tenth of "
        "what is allocated anew in each step.",
        "",
    ]
    chosen = [case for case in plan.memory if case.chosen]
    if all(case.fits for case in chosen):
        return [*lines, f"**It fits {gpu.name}**, with typical rows and with the longest."]
    names = " and ".join(case.rows for case in chosen if not case.fits)
    return [*lines, f"**It does not fit {gpu.name}** with {names} rows: {_way_out(plan)}."]


def _way_out(plan: RunPlan) -> str:
    """What to change, by the figures at hand."""
    own = plan.memory[0]
    if not own.checkpointing:
        return "set training.checkpoint_activations=true"
    long = [case for case in plan.memory if case.rows == "longest" and case.sharded and case.fits]
    if not own.sharded and long:
        return f"spread the weights over the GPUs (sharding=zero3): {long[0].estimate.total / GIB:.1f} GiB"
    if plan.steps.at_a_time > 1:
        return "halve training.batch_size and double training.accumulation"
    return "take GPUs with more memory, or let pages have fewer pixels"


def _memory_row(case: MemoryCase) -> str:
    estimate = case.estimate
    allowances = estimate.runtime + estimate.fragmentation
    sizes = (
        estimate.weights,
        estimate.gathered,
        estimate.trained,
        estimate.activations,
        allowances,
        estimate.total,
    )
    settings = ("yes" if case.checkpointing else "no", "shared out" if case.sharded else "whole")
    cells = (f"{case.rows}, {case.row_length:,} tokens", *settings, *(f"{size / GIB:.1f}" for size in sizes))
    mark = "**" if case.chosen else ""
    return "| " + " | ".join(f"{mark}{cell}{mark}" for cell in (*cells, "yes" if case.fits else "no")) + " |"


def _cost(plan: RunPlan) -> list[str]:
    flops = plan.flops
    lines = [
        "## Cost (a pair of typical length)",
        "",
        f"- counted: {plan.flops_per_pair / 1e12:,.1f} TFLOP; query, page and concept with one prefix "
        f"{flops.over_info_nce:.2f} times InfoNCE alone, and {flops.saved:.2f} times less than in separate passes",
    ]
    if plan.hours is not None:
        lines.append(
            f"- estimate: {plan.hours:,.1f} hours on {plan.steps.gpus} GPUs at {plan.utilisation:.0%} of "
            f"{plan.gpu.bf16_tflops:g} TFLOP/s each"
        )
    return lines
