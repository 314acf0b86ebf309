"""GELU and its slope."""

from math import erf, exp, pi, sqrt

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing, decimal

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 30, 350, 14, 298
LOWEST, HIGHEST = -3.5, 3.0  # range of inputs
FLOOR, CEILING = -0.5, 3.0  # range of outputs and slopes
EXTREME = sqrt(2)  # the slope has its maximum here and its minimum at -EXTREME


def normal_distribution(x: float) -> float:
    return (1 + erf(x / sqrt(2))) / 2


def out(x: float) -> float:
    return x * normal_distribution(x)


def slope(x: float) -> float:
    return normal_distribution(x) + x * exp(-x * x / 2) / sqrt(2 * pi)


def lowest() -> float:
    """The input with the smallest output; the slope is 0 there."""
    low, high = -EXTREME, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low


def at(x: float, value: float) -> tuple[float, float]:
    across = (x - LOWEST) / (HIGHEST - LOWEST)
    return LEFT + across * (RIGHT - LEFT), BOTTOM - (value - FLOOR) / (CEILING - FLOOR) * (BOTTOM - TOP)


def curve(function) -> list[tuple[float, float]]:
    count = 130
    return [at(x, function(x)) for x in (LOWEST + (HIGHEST - LOWEST) * i / count for i in range(count + 1))]


def paint(d: Drawing) -> None:
    for value in (0, 1, 2, 3):
        d.line([at(LOWEST, value), at(HIGHEST, value)], "faint" if value == 0 else "rule", 1)
        d.text(LEFT - 6, at(0, value)[1] + 4, str(value), SMALL, "end", "faint")
    for x in (-3, -2, -1, 0, 1, 2, 3):
        d.line([at(x, FLOOR), (at(x, FLOOR)[0], BOTTOM + 4)], "ink", 1)
        d.text(at(x, FLOOR)[0], BOTTOM + 17, decimal(x, 0), SMALL, fill="faint")
    d.line([at(LOWEST, 0), at(0, 0), at(CEILING, CEILING)], "faint", dashed=True)
    d.line(curve(out), "forward", THICK)
    d.line(curve(slope), "backward", THICK)
    for x in (EXTREME, -EXTREME):
        d.circle(*at(x, slope(x)), 3, "paper", "backward")
    d.circle(*at(lowest(), out(lowest())), 3, "paper", "forward")
    d.text(*at(2.05, 2.5), "out", 12, "end", "forward", bold=True)
    d.text(*at(2.5, 0.86), "slope", 12, "end", "backward", bold=True)
    d.text(*at(0.62, 1.2), f"{decimal(slope(EXTREME), 3)} at √2", SMALL, "end", "backward")
    d.text(*at(-1.72, 0.1), f"{decimal(slope(-EXTREME), 3)} at −√2", SMALL, "end", "backward")
    d.text(*at(0.12, -0.3), f"{decimal(out(lowest()), 3)} at {decimal(lowest())}", SMALL, "start", "forward")
    d.text((LEFT + RIGHT) / 2, BOTTOM + 34, "in", SMALL, fill="faint")


PICTURES = [
    Picture(
        name="gelu-slope",
        page="layers/gelu",
        after="Forward",
        title="GELU and its slope",
        description=(
            f"Two curves over inputs from {decimal(LOWEST, 1)} to {decimal(HIGHEST, 0)}. The output is near 0 for negative "
            f"inputs, has its minimum {decimal(out(lowest()), 3)} at {decimal(lowest())}, and is near the input for positive "
            f"inputs. The slope rises from 0 to 1, with a minimum of {decimal(slope(-EXTREME), 3)} at minus the square root of 2 "
            f"and a maximum of {decimal(slope(EXTREME), 3)} at the square root of 2. A dashed line shows ReLU."
        ),
        caption=(
            "The exact form (gelu.1) and its slope (gelu.3); dashed: ReLU. The slope is negative to the left of the minimum "
            "of the output, and larger than 1 for inputs above 0.75."
        ),
        width=WIDTH,
        height=BOTTOM + 40,
        paint=paint,
        constants=(
            Constant("plain/gelu.cpp", r"out\[i\] = (x \* .*) \+ rest;  // \(gelu.1\)", "x * normal_distribution(x)"),
            Constant(
                "plain/gelu.cpp",
                r"d_in\[i\] = d_out\[i\] \* \((.*)\);  // \(gelu.3\)",
                "normal_distribution(x) + x * normal_density(x)",
            ),
        ),
    )
]
