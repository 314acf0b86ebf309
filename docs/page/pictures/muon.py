"""The effect of rounds of Muon on singular values."""

from math import ceil, floor, log10, sqrt

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing, number

LINEAR, CUBIC, QUINTIC, ROUNDS = "3.4445", "-4.7750", "2.0315", "5"
A, B, C = float(LINEAR), float(CUBIC), float(QUINTIC)

LEFT, RIGHT, TOP, BOTTOM = 34, 350, 14, 240
LOWEST, HIGHEST = 0.001, 1.0  # singular values shown
CEILING = 1.3


def after_round(sigma: float) -> float:
    return A * sigma + B * sigma**3 + C * sigma**5


def after_rounds(sigma: float, rounds: int) -> float:
    for _ in range(rounds):
        sigma = after_round(sigma)
    return sigma


def extremes() -> tuple[float, float]:
    """Positions of the maximum and the minimum of the polynomial, sigma > 0: the roots of its derivative."""
    root = sqrt((3 * B) ** 2 - 4 * 5 * C * A)
    return sqrt((-3 * B - root) / (10 * C)), sqrt((-3 * B + root) / (10 * C))


def band() -> tuple[float, float]:
    """The interval that no value leaves: from the local minimum to the local maximum."""
    top, bottom = extremes()
    return after_round(bottom), after_round(top)


def arrives_from(rounds: int) -> float:
    """The smallest singular value for which all values from it to 1 are in the band after the rounds."""
    low, arrived = band()[0], HIGHEST
    steps = 4000
    for i in range(steps + 1):
        sigma = 10 ** (-4 * i / steps)
        if after_rounds(sigma, rounds) < low - 1e-9:
            return arrived
        arrived = sigma
    return arrived


def rounded_up(value: float) -> float:
    """Rounded up to two digits, so that the statement also holds for every larger value."""
    unit = 10 ** (floor(log10(value)) - 1)
    return ceil(value / unit) * unit


LOW, HIGH = band()
FROM_3, FROM_5 = rounded_up(arrives_from(3)), rounded_up(arrives_from(int(ROUNDS)))


def at(sigma: float, value: float) -> tuple[float, float]:
    part = log10(sigma / LOWEST) / log10(HIGHEST / LOWEST)
    return LEFT + part * (RIGHT - LEFT), BOTTOM - value / CEILING * (BOTTOM - TOP)


def curve(d: Drawing, rounds: int, ink: str, line: float, dashed: bool = False) -> None:
    points, count = [], 90 if rounds < 3 else 240
    for i in range(count + 1):
        sigma = LOWEST * (HIGHEST / LOWEST) ** (i / count)
        points.append(at(sigma, after_rounds(sigma, rounds)))
    d.line(points, ink, line, dashed)


def paint(d: Drawing) -> None:
    (left, top), (right, bottom) = at(LOWEST, HIGH), at(HIGHEST, LOW)
    d.rectangle(left, top, right - left, bottom - top, "mark", "none")
    for value in (0, 0.25, 0.5, 0.75, 1, 1.25):
        x, y = at(LOWEST, value)
        d.line([(x, y), (RIGHT, y)], "rule", 1)
        d.text(x - 5, y + 4, number(value), SMALL, "end", "faint")
    for sigma in (0.001, 0.01, 0.1, 1):
        x, y = at(sigma, 0)
        d.line([(x, y), (x, y + 5)], "ink", 1)
        d.text(min(x, RIGHT - 4), y + 18, f"{sigma:g}", SMALL, fill="faint")
    curve(d, 0, "faint", 1.25, dashed=True)
    curve(d, 1, "ink", 1.25)
    curve(d, 3, "ink", 1.25)
    curve(d, int(ROUNDS), "forward", THICK)
    for label, sigma, value, anchor, ink in (
        ("before", 0.26, 0.13, "start", "faint"),
        ("1 round", 0.095, 0.37, "end", "ink"),
        ("3 rounds", 0.008, 0.37, "end", "ink"),
        (f"{ROUNDS} rounds", 0.00145, 0.56, "start", "forward"),
    ):
        d.text(*at(sigma, value), label, SMALL, anchor, ink, bold=ink == "forward")
    for sigma in (FROM_3, FROM_5):
        d.circle(*at(sigma, LOW), 3, "paper", "ink")
    d.text(LEFT, TOP - 1, "after", SMALL, "start", "faint")
    d.text((LEFT + RIGHT) / 2, BOTTOM + 36, "singular value, before", SMALL, fill="faint")


PICTURES = [
    Picture(
        name="muon-rounds",
        page="layers/muon",
        after="What the polynomial does",
        title=f"Singular values after {ROUNDS} rounds of Muon",
        description=(
            f"Singular values from {LOWEST:g} to 1 on a logarithmic axis, and their values after 0, 1, 3 and "
            f"{ROUNDS} rounds. After 3 rounds all values from {FROM_3:.2g} upwards lie between {LOW:.4f} and {HIGH:.4f}, "
            f"after {ROUNDS} rounds all values from {FROM_5:.2g} upwards."
        ),
        caption=(
            f"Singular values after rounds of {LINEAR} σ − {CUBIC.removeprefix('-')} σ³ + {QUINTIC} σ⁵. A value in the "
            f"band, {LOW:.4f} to {HIGH:.4f}, stays in it. After 3 rounds it contains all values from {FROM_3:.2g} upwards, "
            f"after {ROUNDS} rounds from {FROM_5:.2g} upwards (circles)."
        ),
        width=360,
        height=282,
        paint=paint,
        constants=(
            Constant("src/layers/muon.hpp", r"muon_linear = ([-\d.]+)", LINEAR),
            Constant("src/layers/muon.hpp", r"muon_cubic = ([-\d.]+)", CUBIC),
            Constant("src/layers/muon.hpp", r"muon_quintic = ([-\d.]+)", QUINTIC),
            Constant("src/layers/muon.hpp", r"Index rounds = (\d+);", ROUNDS),
            Constant("src/settings/config.hpp", r"Index muon_rounds = (\d+);", ROUNDS),
            Constant(
                "plain/muon.cpp",
                r"polynomial\(o, p\) = (linear \+ A\(muon_cubic\) \* gram\(o, p\) \+ A\(muon_quintic\) \* square);",
                "linear + A(muon_cubic) * gram(o, p) + A(muon_quintic) * square",
            ),
        ),
    )
]
