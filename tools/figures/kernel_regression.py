"""Figures of extras/kernel_regression/README.md: errors of a mean far from all keys, for two ways to compute it."""

import math
import random

from figures.rounding import to_float


def figures() -> None:
    """Largest errors of an output in float, computed from scores and their log-sum-exp, and from gaps."""
    keys, queries, seeds = 20, 20, range(1, 11)

    def total(values: list[float]) -> float:
        result = 0.0
        for value in values:
            result = to_float(result + value)
        return result

    def mixed(weights: list[float], values: list[float]) -> float:
        return total([to_float(weight * value) for weight, value in zip(weights, values)])

    def from_scores(query: float, key: list[float], value: list[float]) -> float:
        score = [to_float(-0.5 * to_float(to_float(query - k) ** 2)) for k in key]
        top = max(score)
        lse = to_float(top + math.log(total([to_float(math.exp(to_float(s - top))) for s in score])))
        return mixed([to_float(math.exp(to_float(s - lse))) for s in score], value)

    def from_gaps(query: float, key: list[float], value: list[float]) -> float:
        near = min(key, key=lambda k: abs(query - k))
        gap = [to_float(to_float(near - k) * to_float(to_float(query - k) + to_float(query - near))) for k in key]
        power = [to_float(math.exp(to_float(-0.5 * g))) for g in gap]
        share = to_float(1 / total(power))
        return mixed([to_float(share * p) for p in power], value)

    def exact(query: float, key: list[float], value: list[float]) -> float:
        least = min((query - k) ** 2 for k in key)
        power = [math.exp(-0.5 * ((query - k) ** 2 - least)) for k in key]
        return math.fsum(p * v for p, v in zip(power, value)) / math.fsum(power)

    print(f"{queries} queries, {keys} keys of deviation 0.1 around 0, normal values, width 1, seeds {seeds[0]} to {seeds[-1]}")
    for away in (0, 5, 51):
        worst: dict[str, list[float]] = {"scores": [], "gaps": []}
        for seed in seeds:
            source = random.Random(seed)
            key = [to_float(source.gauss(0, 0.1)) for _ in range(keys)]
            value = [to_float(source.gauss(0, 1)) for _ in range(keys)]
            query = [to_float(source.gauss(away, 0.1)) for _ in range(queries)]
            for name, computed in (("scores", from_scores), ("gaps", from_gaps)):
                worst[name].append(max(abs(computed(q, key, value) - exact(q, key, value)) for q in query))
        for name, errors in worst.items():
            print(f"queries around {away}, from {name}: largest error of a seed {min(errors):.1e} to {max(errors):.1e}")
