"""Figures of docs/layers/adamw.md."""

import math

from figures.rounding import to_float


def figures() -> None:
    """Largest length of a step, and the effect of bias corrections and of a complement computed in float."""
    beta1, beta2 = 0.9, 0.99
    bound = (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))
    print(f"beta1 {beta1}, beta2 {beta2}: a step is at most {bound:.4f} learning rates long")
    # Gradients that reach the bound: each is beta2 / beta1 times the previous one.
    first = second = 0.0
    for step in range(1000):
        gradient = (beta2 / beta1) ** step
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
    mean, square = first / (1 - beta1**1000), second / (1 - beta2**1000)
    print(f"after 1000 gradients that grow by beta2 / beta1: {mean / math.sqrt(square):.4f}")
    for beta2 in (0.99, 0.999):
        print(f"beta2 {beta2}: uncorrected, the first step would be {(1 - beta1) / math.sqrt(1 - beta2):.2f} long")
    error = to_float(1 - to_float(0.99)) / 0.01 - 1
    print(f"relative error of 1 - 0.99 in float: {error:.1e}, of 0.01 in float: {to_float(0.01) / 0.01 - 1:.1e}")
