"""The method once more, by slow loops in float64, written from the paper's equations alone: the tests' witness."""

from __future__ import annotations

import math

import numpy as np


def min_max(values, epsilon=1e-6):
    values = np.asarray(values, dtype=np.float64)
    low, high = values.min(), values.max()
    return np.zeros_like(values) if low == high else (values - low) / (high - low + epsilon)


def unit(matrix):
    matrix = np.asarray(matrix, dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths == 0, 1, lengths)


def activation(query, pages):
    return np.array([[max(float(q @ v) for v in page) for q in query] for page in pages])


def scaled_activation(a):
    n, m = a.shape
    mean = [sum(a[p, i] for p in range(n)) / n for i in range(m)]
    std = [math.sqrt(sum((a[p, i] - mean[i]) ** 2 for p in range(n)) / (n - 1)) for i in range(m)]
    mean_std = sum(std) / m
    return np.array([[a[p, i] / mean[i] * std[i] / mean_std for i in range(m)] for p in range(n)])


def token_weight(scaled):
    n, m = scaled.shape
    return np.array([math.log(n / (1 + sum(scaled[p, i] for p in range(n)))) for i in range(m)])


def page_weight(scaled):
    n, m = scaled.shape
    mean = [sum(scaled[p, i] for p in range(n)) / n for i in range(m)]
    return np.array(
        [
            sum(sum(scaled[p, i] * scaled[p, k] / (mean[i] * mean[k] + 1e-6) for k in range(m)) / m for i in range(m))
            for p in range(n)
        ]
    )


def patch_relevance(query, pages, scaled, wi, wp):
    return [
        np.array([max(float(v @ q) * (scaled[p, i] * wi[i] * wp[p]) ** 2 for i, q in enumerate(query)) for v in page])
        for p, page in enumerate(pages)
    ]


def patch_weight(relevance):
    mean = np.concatenate(relevance).mean()
    return [np.maximum(0, r - mean) for r in relevance]


def similarity(pages, weights, top_patches):
    n = len(pages)
    matrix = np.zeros((n, n))
    for p in range(n):
        for other in range(n):
            interactions = []
            for j, v in enumerate(pages[p]):
                best = max(float(v @ u) * weights[other][k] for k, u in enumerate(pages[other]))
                interactions.append(weights[p][j] * max(best, 0.0))
            largest = sorted(interactions, reverse=True)[: min(top_patches, len(interactions))]
            matrix[p, other] = math.sqrt(sum(largest) / len(largest))
    return matrix


def cost(matrix, order, gamma, longest):
    n = len(order)
    total = sum(matrix[p, p] for p in order)
    curve = []
    for k in range(1, longest + 1):
        relevant, rest = order[:k], order[k:]
        value = 0.0
        for p in relevant:
            cohesion = sum(matrix[p, r] for r in relevant) / k
            leakage = sum(matrix[p, r] for r in rest) / (n - k) if rest else 0.0
            value += matrix[p, p] / total * (cohesion - gamma * leakage)
        curve.append(value)
    return np.array(curve)


def choose_k(curve):
    curve = min_max(curve, 0.0)
    a = int(np.argmin(curve))
    n = round(math.log(a + 1))
    if a > 0 and a + n < len(curve):
        beyond = np.mean([abs(curve[a + i] - curve[a + i + 1]) for i in range(n)])
        before = np.mean([abs(curve[a - i] - curve[a - i - 1]) for i in range(n)])
        if beyond > before:
            return a + 2
    return a + 1


def select(query, pages, top_patches=50, gamma=1e5, k_range="active"):
    """For documents of three and more pages that the method applies to."""
    query, pages = unit(query), [unit(page) for page in pages]
    scaled = scaled_activation(activation(query, pages))
    wi, wp = min_max(token_weight(scaled)), min_max(page_weight(scaled), 0.0)
    weights = patch_weight(patch_relevance(query, pages, scaled, wi, wp))
    flat = min_max(np.concatenate(weights))
    weights = np.split(flat, np.cumsum([len(page) for page in pages])[:-1])
    matrix = min_max(similarity(pages, weights, top_patches))
    order = sorted(range(len(pages)), key=lambda p: -matrix[p, p])
    active = sum(bool((w > 0).any()) for w in weights)
    reach = 3 if len(pages) == 3 else active
    longest = min(active, len(pages) - 1) - 1 if k_range == "authors" else reach
    longest = 1 if active == 1 else max(longest, 1)
    curve = cost(matrix, order, gamma, longest)
    k = 1 if longest == 1 else choose_k(curve)
    return {"similarity": matrix, "order": order, "cost": curve, "k": k, "active": active, "weights": weights}
