"""Figures of docs/layers/attention.md."""

import math
import random

from figures.matrices import Vector, causal_weights, dot, error, largest, normal_matrix, product, transposed
from figures.rounding import to_float


def float_dot(x: Vector, y: Vector, lanes: int) -> float:
    """Dot product in float with `lanes` partial sums: each product and sum is rounded once, then the sums are added."""
    sums = [0.0] * lanes
    for k, (a, b) in enumerate(zip(x, y)):
        sums[k % lanes] = to_float(sums[k % lanes] + a * b)
    total = sums[0]
    for other in sums[1:]:
        total = to_float(total + other)
    return total


def attention_in_vain(C: int, lanes: int) -> None:
    """Scores that the CPU's forward pass computes on the diagonal, in groups of two SIMD vectors of queries."""
    group = 2 * lanes
    computed = sum(group * (first + lanes) + lanes * lanes for first in range(0, C, group))
    seen = C * (C + 1) // 2
    print(f"scores computed at C = {C} with {lanes} lanes: {computed}, of which the mask allows {seen};"
          f" unused: {100 * (computed - seen) / computed:.1f} %")


def attention_order_of_delta(K: int, queries: int) -> None:
    """Error of d_key in float if delta and d_out . value are summed in different orders. A query has one key, with
    weight 1 and a score of 10,000: out is the key's value, so the exact d_score and d_key are 0."""
    numbers = random.Random(1)
    most = {1: 0.0, 8: 0.0}
    for _ in range(queries):
        key, value, d_out = ([to_float(numbers.gauss(0, 1)) for _ in range(K)] for _ in range(3))
        query = [1e4 * math.sqrt(K) / dot(key, key) * k for k in key]  # the score is query . key / sqrt(K)
        d_weight = float_dot(d_out, value, 1)
        for lanes in most:
            d_score = d_weight - float_dot(d_out, value, lanes)
            most[lanes] = max([most[lanes]] + [abs(d_score * q) / math.sqrt(K) for q in query])
    print(f"largest d_key of {queries:,} keys with a weight of 1 at a score of 10,000, K = {K}: with delta in the same"
          f" order {most[1]:g}, in 8 sums that take turns {most[8]:.1g}")


def attention_errata(C: int, N: int, K: int) -> None:
    """Errors of the code of the Metaformer README, for normally distributed queries, keys and values."""
    numbers = random.Random(1)
    out, wrong_axis, sums = [], [], []
    for _ in range(N):
        query, key, value = (normal_matrix(numbers, C, K) for _ in range(3))
        weight = causal_weights([[s / math.sqrt(K) for s in row] for row in product(query, transposed(key))])
        out.append(product(weight, value))
        wrong_axis.append(product(transposed(weight), value))
        sums += [sum(column) for column in zip(*weight)]
    # (n, k, c) interpreted as (c, n k), compared with the correct (c, n k).
    rows = [[out[h // K][c][h % K] for h in range(N * K)] for c in range(C)]
    flat = [out[n][c][k] for n in range(N) for k in range(K) for c in range(C)]
    reinterpreted = [flat[c * N * K : (c + 1) * N * K] for c in range(C)]
    print(f"{C} positions, {N} heads, K = {K}, outputs up to {largest(rows):.1f}:")
    print(f"  weights summed over queries instead of keys: from {min(sums):.2f} to {max(sums):.2f}; output wrong by"
          f" {max(error(x, y) for x, y in zip(wrong_axis, out)):.1f}")
    print(f"  heads joined without moving numbers: output wrong by {error(reinterpreted, rows):.1f}")


def figures() -> None:
    """Unused scores of tiles, the order of summation of delta, and errors of other code."""
    attention_in_vain(64, 8)
    attention_order_of_delta(64, 1000)
    attention_errata(12, 3, 5)
