"""Figures of extras/positions/rotary.md: errors of the sines, for several ways to compute the angle."""

import math

from figures.rounding import to_float


def figures() -> None:
    """Largest errors of the sines of all pairs and positions."""
    K = 64
    for context in (1024, 65536):
        product, once, by_steps = 0.0, 0.0, 0.0
        for i in range(K // 2):
            frequency = 10000 ** (-2 * i / K)
            step_cosine, step_sine = to_float(math.cos(frequency)), to_float(math.sin(frequency))
            cosine, sine = 1.0, 0.0
            for c in range(context):
                exact = math.sin(c * frequency)
                product = max(product, abs(math.sin(to_float(c * to_float(frequency))) - exact))
                once = max(once, abs(to_float(exact) - exact))
                by_steps = max(by_steps, abs(sine - exact))
                cosine, sine = (
                    to_float(to_float(cosine * step_cosine) - to_float(sine * step_sine)),
                    to_float(to_float(sine * step_cosine) + to_float(cosine * step_sine)),
                )
        print(
            f"{context} positions, K {K}: product of floats {product:.1e}, turned step by step {by_steps:.1e}, "
            f"in double and rounded once {once:.1e}"
        )
