"""Figures of docs/layers/layernorm.md."""

import math
import random

from figures.rounding import to_float


def figures() -> None:
    """Errors of a row in float, with the variance computed in two passes and from the mean of the squares."""
    rows, D, lanes, epsilon, seeds = 16, 384, 32, to_float(1e-5), range(1, 11)

    def total(values: list[float]) -> float:
        """Sum of floats in the order of the CPU: `lanes` partial sums, which are then added pairwise, first half to
        second half."""
        sums = [0.0] * lanes
        for i, value in enumerate(values):
            sums[i % lanes] = to_float(sums[i % lanes] + value)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [to_float(sums[i] + sums[i + half]) for i in range(half)]
        return sums[0]

    def exact(x: list[float]) -> list[float]:
        mean = math.fsum(x) / D
        variance = math.fsum((value - mean) ** 2 for value in x) / D
        return [(value - mean) / math.sqrt(variance + epsilon) for value in x]

    def in_float(x: list[float], two_passes: bool) -> list[float]:
        mean = to_float(total(x) / D)
        centred = [to_float(value - mean) for value in x]
        squares = total([to_float(value * value) for value in (centred if two_passes else x)])
        variance = to_float(squares / D)
        if not two_passes:
            variance = to_float(variance - to_float(mean * mean))
        rstd = to_float(1 / to_float(math.sqrt(to_float(variance + epsilon))))
        return [to_float(value * rstd) for value in centred]

    print(f"{rows} rows of {D} normal numbers in float, {lanes} running sums a row, seeds {seeds[0]} to {seeds[-1]}")
    for mean, deviation in ((1, 0.01), (50, 3)):
        worst: dict[bool, list[float]] = {False: [], True: []}
        for seed in seeds:
            source = random.Random(seed)
            data = [[to_float(source.gauss(mean, deviation)) for _ in range(D)] for _ in range(rows)]
            for two_passes, errors in worst.items():
                errors.append(max(abs(got - want) for x in data for got, want in zip(in_float(x, two_passes), exact(x))))
        for two_passes, errors in worst.items():
            name = "two passes" if two_passes else "mean of the squares"
            span = f"{min(errors):.1e} to {max(errors):.1e}"
            print(f"mean {mean}, deviation {deviation}, {name}: largest error of a seed {span}")
