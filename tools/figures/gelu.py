"""Figures of docs/layers/gelu.md."""

import math


def figures() -> None:
    """Largest difference of the two forms, and extreme slopes of the exact form, on a grid."""

    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def distribution(x: float) -> float:
        return (1 + math.erf(x / math.sqrt(2))) / 2

    def tau(x: float) -> float:
        return math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))

    grid = [i / 10000 for i in range(-60000, 60001)]
    print("grid from -6 to 6 in steps of 0.0001")
    difference, at = max((abs(x * distribution(x) - x / 2 * (1 + tau(x))), x) for x in grid)
    print(f"largest difference of the two forms: {difference:.3e} at |in| = {abs(at):.3f}")
    slopes = [(distribution(x) + x * density(x), x) for x in grid]
    for name, (slope, at) in (("largest", max(slopes)), ("smallest", min(slopes))):
        print(f"{name} slope of the exact form: {slope:.4f} at in = {at:.3f}")
