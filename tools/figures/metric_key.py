"""Figures of docs/layers/metric_key.md."""

import math
import random

from figures.matrices import Matrix, causal_weights, dot, error, largest, normal_matrix, product, transposed


def metric_cost() -> None:
    """Multiply-adds for the scores of a causal head, c' <= c."""
    for C, K in (12, 5), (128, 16), (512, 64), (4096, 128):
        pairs = C * (C + 1) // 2
        double, packed, keys = pairs * K * K, pairs * K * (K + 1) // 2, C * K * K + pairs * K
        print(f"  C {C:4}, K {K:3}: double sum {double:,}, packed {packed:,}, by keys {keys:,}, packed / by keys"
              f" {packed / keys:.1f}")


def metric_errata(C: int, K: int) -> None:
    """Errors of the formulas in the Metaformer README. All scores are before the factor 1/sqrt(K), as in the README."""
    numbers = random.Random(1)
    p = normal_matrix(numbers, C, K)
    d_out = normal_matrix(numbers, C, K)
    upper = normal_matrix(numbers, K, K)
    M = [[upper[min(k, g)][max(k, g)] for g in range(K)] for k in range(K)]
    packed = [(f, g) for f in range(K) for g in range(f, K)]
    both = [(c, s) for c in range(C) for s in range(C)]
    seen = [(c, s) for c, s in both if s <= c]

    def scores(term) -> Matrix:
        """score_cs = sum over packed (f, g) of term(c, s, f, g)"""
        return [[sum(term(c, s, f, g) for f, g in packed) for s in range(C)] for c in range(C)]

    def right(c: int, s: int, f: int, g: int) -> float:
        return M[f][g] * (p[c][f] * p[s][g] + (p[c][g] * p[s][f] if f < g else 0))

    def regrouped(c: int, s: int, f: int, g: int) -> float:
        return (1 if f == g else 2) * M[f][g] * p[c][f] * p[s][g]

    def factor(c: int, s: int, f: int, g: int) -> int:
        return (1 if f == g else 2) * (1 if c == s else 2)

    def of_four_factors(c: int, s: int, f: int, g: int) -> float:
        return factor(c, s, f, g) * M[f][g] * p[c][f] * p[s][g]

    score, double_sum = scores(right), product(product(p, M), transposed(p))
    four = scores(of_four_factors)
    halved = [[x / (1 if c == s else 2) for s, x in enumerate(row)] for c, row in enumerate(four)]
    scaled = [[x / math.sqrt(K) for x in row] for row in score]
    weight = causal_weights(scaled)
    print(f"{C} positions, K = {K}, p, M and d_out standard normal, largest score {largest(score):.1f};"
          f" packed sum against double sum: {error(score, double_sum):.0e}")
    print(f"  least score of a position with itself {min(score[c][c] for c in range(C)):.1f};"
          f" least entry of p p^T {min(min(row) for row in product(p, transposed(p))):.1f}")
    one_product = scores(regrouped)
    print(f"  one product for k < k': scores wrong by {error(one_product, score):.1f}, asymmetric by"
          f" {error(one_product, transposed(one_product)):.1f}")
    worst = max(abs(of_four_factors(c, s, f, g) - right(c, s, f, g)) for c, s in both if c != s
                for f, g in packed if f < g)
    print(f"  factor 4: a term wrong by {worst:.1f}")
    print(f"  all four factors: on the diagonal wrong by {max(abs(four[c][c] - score[c][c]) for c in range(C)):.0e},"
          f" scores by {error(four, score):.1f}, halved beside the diagonal by {error(halved, score):.1f}, weights by"
          f" {error(causal_weights([[x / math.sqrt(K) for x in row] for row in four]), weight):.2f}")

    # Backward: out = weight p.
    out = product(weight, p)
    d_score = [[weight[c][s] * (dot(d_out[c], p[s]) - dot(d_out[c], out[c])) / math.sqrt(K) for s in range(C)]
               for c in range(C)]  # gradients of the scores before the factor 1/sqrt(K)
    G = [[sum(d_score[c][s] * p[c][f] * p[s][g] for c, s in seen) for g in range(K)] for f in range(K)]
    d_metric = [[G[f][g] + (G[g][f] if f < g else 0) for f, g in packed]]
    with_factors = [[sum(d_score[c][s] * factor(c, s, f, g) * p[c][f] * p[s][g] for c, s in seen)
                     for f, g in packed]]
    print(f"  d_metric with factors 1, 2, 2, 4: wrong by {error(with_factors, d_metric):.2f}, largest entry"
          f" {largest(d_metric):.2f}")
    d_p, d_p_packed = ([[0.0] * K for _ in range(C)] for _ in range(2))
    for c, s in seen:
        for f in range(K):
            for g in range(K):
                for sum_ck, counts in ((d_p, True), (d_p_packed, f <= g)):
                    if counts:
                        sum_ck[c][f] += d_score[c][s] * M[f][g] * p[s][g]
                        sum_ck[s][g] += d_score[c][s] * M[f][g] * p[c][f]
    print(f"  d_p over packed l: wrong by {error(d_p_packed, d_p):.2f}, largest entry {largest(d_p):.2f}")
    print(f"  d_metric without 1/sqrt(K): {math.sqrt(K):.3f} times too large")


def figures() -> None:
    """Cost of the scores in three forms, and errors of the formulas in the README."""
    print("multiply-adds:")
    metric_cost()
    metric_errata(12, 5)
