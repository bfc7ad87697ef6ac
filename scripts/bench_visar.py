"""Speed and memory of ViSAR's selection, as ratios measured in one run.

    python scripts/bench_visar.py                                   synthetic pages shaped like ColPali's, 1,030 x 128
    python scripts/bench_visar.py --pages 10 50 --repeats 5
    python scripts/bench_visar.py --document FILE.pdf --question "..."   real embeddings of the offline encoder

Each line compares, on the same pages and question:

- late interaction alone (Eq. 1);
- the stages of ViSAR, exact and approximate;
- the dense form: Eq. 10 as it is written, a block of one source page against all pages at a time, over all pages and
  over the active pages only;
- the bare product of the active patches with themselves, in blocks, nothing else: the arithmetic of a plain rewrite.

Times are medians. Peak memory is the growth of a fresh process's resident set above the embeddings, where Linux tells.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from visar import PackedPages, Selection, select_pages
from visar.algorithm import patch_weights
from visar.late_interaction import activation, as_unit_vectors, late_interaction_scores, query_patch_cosine
from visar.similarity import active_pages, active_similarity
from visar.weights import scaled_activation

TOP_PATCHES = 50
APPROXIMATION = {"patches_per_page": 450, "max_pages": 75, "search_limit": 10}
DENSE_SOURCES = 24
"""At most this many source pages are run through the dense form; its time is scaled to all of them."""


@dataclass(frozen=True)
class Case:
    """One question on one document.

    Attributes:
        query: [m, D].
        pages: The document.
    """

    name: str
    query: torch.Tensor
    pages: PackedPages


def synthetic_case(page_count: int, *, patches: int = 1030, width: int = 128, tokens: int = 20, seed: int = 0) -> Case:
    """Pages that share themes with others and have topics of their own, and a question about three of them."""
    generator = torch.Generator().manual_seed(seed)

    def directions(count: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)

    themes, common = directions(40), directions(1)
    pages = []
    for _ in range(page_count):
        shared = themes[torch.randint(len(themes), (6,), generator=generator)]
        centres = torch.cat([shared, directions(6)])
        chosen = centres[torch.randint(len(centres), (patches,), generator=generator)]
        noise = torch.randn(patches, width, generator=generator) / width**0.5
        pages.append(0.5 * common + 0.8 * chosen + 0.7 * noise)
    targets = torch.randint(page_count, (3,), generator=generator).tolist()
    rows = torch.randint(patches, (tokens,), generator=generator).tolist()
    about = torch.stack([pages[targets[token % 3]][row] for token, row in enumerate(rows)])
    about[::2] = themes[torch.randint(len(themes), (len(about[::2]),), generator=generator)]
    query = about + 0.6 * torch.randn(tokens, width, generator=generator) / width**0.5 + 0.3 * common
    return Case(f"synthetic {page_count} x {patches} x {width}", query, PackedPages.pack(pages))


def document_case(path: Path, question: str, cache: Path) -> Case:
    """A real document and question under the offline encoder."""
    from visar.documents import RapidOcr, find_document
    from visar.encoders import TokenStates
    from visar.indexing import index_documents
    from visar.store import EmbeddingStore

    document, encoder, store = find_document(path), TokenStates(), EmbeddingStore(cache / "embeddings")
    index = index_documents([document], encoder, store, dpi=144, ocr=RapidOcr(), text_cache=cache / "texts")
    for failure in index.failures:
        raise SystemExit(f"error: {failure.reason}")
    vectors = [page.vectors for page in store.read(index.keys[document.id])]
    return Case(document.id, encoder.encode_query(question).vectors, PackedPages.pack(vectors))


def weights_of(case: Case) -> torch.Tensor:
    """Normalised patch weights [sum n_p], where every token of the question is informative."""
    cosine = query_patch_cosine(as_unit_vectors(case.query, "query"), case.pages)
    return patch_weights(cosine, case.pages.starts, scaled_activation(activation(cosine, case.pages.starts)))


def dense_rows(case: Case, weight: torch.Tensor, sources: Sequence[int], targets: Sequence[int]) -> torch.Tensor:
    """Rows of Eq. 11 as the paper writes it: all patches, weights applied to the cosines, one source page at a time.

    Returns:
        [len(sources), len(targets)], before normalisation.
    """
    starts = case.pages.starts
    columns = torch.cat([torch.arange(starts[page], starts[page + 1]) for page in targets])
    whole = len(columns) == len(case.pages.vectors)
    vectors = case.pages.vectors if whole else case.pages.vectors[columns]
    target_weight = weight if whole else weight[columns]
    sizes = [starts[page + 1] - starts[page] for page in targets]
    rows = []
    for source in sources:
        own = slice(starts[source], starts[source + 1])
        product = (case.pages.vectors[own] @ vectors.T) * target_weight
        best = torch.stack([block.amax(dim=1) for block in product.split(sizes, dim=1)])
        interactions = weight[own] * best.clamp_min(0)
        rows.append(interactions.topk(min(TOP_PATCHES, interactions.shape[1]), dim=1).values.mean(dim=1))
    return torch.stack(rows).sqrt()


def bare_product(patches: torch.Tensor, block: int = 1024) -> None:
    """X X^T in blocks that stay in the cache; the products are thrown away."""
    for rows in patches.split(block):
        for columns in patches.split(block):
            rows @ columns.T


def timed(function: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Median wall time after one warm-up, and the last result."""
    result = function()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples), result


VARIANTS: dict[str, Callable[[Case], object]] = {
    "exact": lambda case: select_pages(case.query, case.pages),
    "block of 256": lambda case: select_pages(case.query, case.pages, block_size=256),
    "approximate": lambda case: select_pages(case.query, case.pages, **APPROXIMATION),
    "dense": lambda case: dense_rows(case, weights_of(case), [0], list(range(len(case.pages)))),
}


def peak_memory_mb(rebuild: Callable[[], Case], variant: str) -> float | None:
    """How far the resident set of a fresh process grows above the embeddings, in MB; None where it cannot be told."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
        return process.submit(_growth_mb, rebuild, variant).result()


def _growth_mb(rebuild: Callable[[], Case], variant: str) -> float | None:
    case = rebuild()
    VARIANTS[variant](synthetic_case(3, patches=64))  # loads what the first use of a library loads
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark of this process
    except OSError:
        return None

    def kilobytes(name: str) -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name))

    before = kilobytes("VmRSS:")
    VARIANTS[variant](case)
    return (kilobytes("VmHWM:") - before) / 1024


def spread(pages: Sequence[int], count: int) -> list[int]:
    """At most ``count`` of the pages, evenly spread."""
    return [pages[position * len(pages) // count] for position in range(count)] if len(pages) > count else list(pages)


def measure(rebuild: Callable[[], Case], repeats: int) -> None:
    """Print everything about one case."""
    case = rebuild()
    pages, weight = case.pages, weights_of(case)
    active = active_pages(pages, weight, top_patches=TOP_PATCHES)
    everything, chosen = list(range(len(pages))), list(active.pages)
    patch_count = sum(len(weights) for weights in active.weights)
    share = 100 * patch_count / len(weight)
    print(f"\n## {case.name}: {len(chosen)} of {len(pages)} pages and {patch_count:,} patches ({share:.0f} %) active")

    unit_query = as_unit_vectors(case.query, "query")
    late, _ = timed(lambda: late_interaction_scores(unit_query, pages), repeats)
    exact, selection = timed(lambda: select_pages(case.query, pages), repeats)
    quick, approximate = timed(lambda: select_pages(case.query, pages, **APPROXIMATION), repeats)
    stacked = torch.cat(active.patches)
    bare, _ = timed(lambda: bare_product(stacked), repeats)
    dense = {}
    for name, over in (("all pages", everything), ("active pages", chosen)):
        sources = spread(over, DENSE_SOURCES)
        once, rows = timed(lambda over=over, sources=sources: dense_rows(case, weight, sources, over), 1)
        dense[name] = once * len(over) / len(sources)
    fast = active_similarity(active, top_patches=TOP_PATCHES)
    error = float((rows - fast[[chosen.index(page) for page in sources]]).abs().max())

    print(f"late interaction {late:9.4f} s")
    for label, seconds, result in (("exact", exact, selection), ("approximate", quick, approximate)):
        print(f"{label:16} {seconds:9.4f} s   {stages(result)}   k = {result.k}")
    flops = 2.0 * patch_count**2 * stacked.shape[1]
    print(f"bare product     {bare:9.4f} s   {flops / bare / 1e9:.0f} GFLOP/s")
    for name, seconds in dense.items():
        print(f"dense, {name:13}{seconds:6.2f} s")
    print(
        "ratios           "
        + ", ".join(f"dense ({name}) / exact {seconds / exact:.1f}" for name, seconds in dense.items())
        + f", exact / bare {exact / bare:.2f}, exact / approximate {exact / quick:.1f}"
    )
    print(f"largest difference from the dense form {error:.1e}")
    memory = {variant: peak_memory_mb(rebuild, variant) for variant in VARIANTS}
    known = ", ".join(f"{name} {size:.0f} MB" for name, size in memory.items() if size is not None)
    embeddings = pages.vectors.numel() * 4 / 2**20
    print(f"peak memory above the embeddings ({embeddings:.0f} MB): {known or 'unknown on this system'}")


def stages(selection: Selection) -> str:
    """Seconds of each stage."""
    return ", ".join(f"{name} {seconds:.4f}" for name, seconds in selection.seconds.items())


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, nargs="+", default=[10, 50, 100, 468], help="sizes of synthetic documents")
    parser.add_argument("--document", type=Path, help="measure this document instead of synthetic ones")
    parser.add_argument("--question", default="What is shown in the figure?", help="question on the document")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/visar"), help="where embeddings are kept")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads, medians of {arguments.repeats}")
    if arguments.document:
        cache = arguments.cache.expanduser()
        measure(partial(document_case, arguments.document, arguments.question, cache), arguments.repeats)
        return
    for page_count in arguments.pages:
        measure(partial(synthetic_case, page_count), arguments.repeats)


if __name__ == "__main__":
    main()
