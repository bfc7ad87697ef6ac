"""The objective once more, by slow loops over float64 numbers, written from the paper's equations: the tests' witness.

Embeddings are lists of lists; ``allowed[i]`` lists the candidates of row i.
"""

from __future__ import annotations

import math


def similarity(left, right):
    return sum(float(a) * float(b) for a, b in zip(left, right, strict=True))


def distribution(anchor, candidates, temperature, allowed):
    """Eq. 4 for one anchor: a probability for each allowed candidate."""
    powers = {j: math.exp(similarity(anchor, candidates[j]) / temperature) for j in allowed}
    total = sum(powers.values())
    return {j: power / total for j, power in powers.items()}


def ranking_distribution(anchors, pages, temperature, allowed):
    rows = [distribution(anchor, pages, temperature, own) for anchor, own in zip(anchors, allowed, strict=True)]
    return [[row.get(j, 0.0) for j in range(len(pages))] for row in rows]


def info_nce(queries, pages, temperature, positives, allowed):
    """Eq. 5, one value for each query."""
    return [
        -math.log(distribution(query, pages, temperature, own)[positive])
        for query, positive, own in zip(queries, positives, allowed, strict=True)
    ]


def divergence(left, right):
    return sum(p * math.log(p / right[j]) for j, p in left.items())


def concept_kl(queries, concepts, pages, temperature, allowed, has_concept, reverse):
    """Eq. 16, one value for each query, 0 where it has no concept."""
    losses = []
    for query, concept, own, present in zip(queries, concepts, allowed, has_concept, strict=True):
        if not present:
            losses.append(0.0)
            continue
        teacher = distribution(query, pages, temperature, own)
        student = distribution(concept, pages, temperature, own)
        losses.append(divergence(student, teacher) if reverse else divergence(teacher, student))
    return losses


def query_concept_matching(queries, concepts, pages, temperature, allowed, has_concept, candidate_has_concept, reverse):
    """Table 2: the student ranks the candidates' concepts by the query; only candidates with a concept exist."""
    losses = []
    for query, own, present in zip(queries, allowed, has_concept, strict=True):
        if not present:
            losses.append(0.0)
            continue
        own = [j for j in own if candidate_has_concept[j]]
        teacher = distribution(query, pages, temperature, own)
        student = distribution(query, concepts, temperature, own)
        losses.append(divergence(student, teacher) if reverse else divergence(teacher, student))
    return losses


def false_negatives(keys, positives, other_positives):
    result = []
    for positive, others in zip(positives, other_positives, strict=True):
        row = []
        for j, key in enumerate(keys):
            row.append(j != positive and (key == keys[positive] or key in others))
        result.append(row)
    return result
