"""The interactive picture of a kernel regression, as it is shown without script; drawn from the definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from svg import SMALL, THICK, decimal, number
from touch_pictures import LEFT, WIDTH, Board, average

BELL = {
    "x": [0.2, 0.45, 0.8, 1.1, 1.3, 1.75, 2.1, 2.3, 2.65, 3.0, 3.2, 3.65, 3.9, 4.2, 4.45, 4.8],
    "y": [1.0, 1.0, 2.6, 3.0, 2.9, 4.0, 3.3, 3.7, 2.7, 2.9, 2.3, 2.2, 1.2, 1.6, 1.1, 1.7],
    "query": 3.0,
    "deviation": 0.5,  # standard deviation of the Gaussian, the inverse of the width
    # Pixels: position of x = 0 and length of one unit; the same for y; foot and height of the Gaussian.
    "left": 10,
    "column": 68,
    "plot": [214, 38],
    "bell": [306, 60],
    "dot": 14,  # radius of a point with weight 1
}
QUESTIONS = 60  # points of the curve, from 0 to 5
END = 5
HEIGHT = 392


def shares(query: float, keys: Sequence[float], width: float) -> list[float]:
    """Weight of every key for a query."""
    powers = [math.exp(-0.5 * (width * (query - key)) ** 2) for key in keys]
    return [power / sum(powers) for power in powers]


def loss(keys: Sequence[float], values: Sequence[float], width: float) -> float:
    """Half the mean squared error of all points, each predicted from the others."""
    squares = 0.0
    for s, (key, value) in enumerate(zip(keys, values)):
        others = [*keys[:s], *keys[s + 1 :]], [*values[:s], *values[s + 1 :]]
        squares += (average(shares(key, others[0], width), others[1]) - value) ** 2
    return squares / len(keys) / 2


def d_width(keys: Sequence[float], values: Sequence[float], width: float) -> float:
    """The derivative of the loss, by central differences."""
    step = 1e-5
    return (loss(keys, values, width + step) - loss(keys, values, width - step)) / (2 * step)


def across(x: float) -> float:
    return BELL["left"] + BELL["column"] * x


def above(y: float) -> float:
    zero, one = BELL["plot"]
    return zero - one * y


def path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def draw_bell() -> str:
    x, y, query, deviation = (BELL[name] for name in ("x", "y", "query", "deviation"))
    foot, height = BELL["bell"]
    grid = [END * i / QUESTIONS for i in range(QUESTIONS + 1)]
    share = shares(query, x, 1 / deviation)
    answer = average(share, y)
    b = Board("touch-bell", WIDTH, HEIGHT)
    b.heading(15, "*y*", "size: weight; curve: predictions")
    b.line([(across(0), above(0)), (across(END), above(0))], "rule")
    for tick in range(END + 1):
        b.text(across(tick), above(0) + 16, str(tick), SMALL, fill="faint")
    b.part(
        "path",
        "asked",
        d=f"M{number(across(query))} {number(foot)}V{number(above(answer))}",
        stroke="var(--faint)",
        stroke_dasharray="3 3",
    )
    for key, value, weight in zip(x, y, share):
        b.part(
            "circle",
            "point",
            cx=across(key),
            cy=above(value),
            r=2.5 + BELL["dot"] * math.sqrt(weight),
            fill="var(--a)",
            stroke="var(--faint)",
        )
    curve = [(across(at), above(average(shares(at, x, 1 / deviation), y))) for at in grid]
    b.part("path", "curve", d=path(curve), fill="none", stroke="var(--forward)", stroke_width=2.5)
    b.part("circle", "answer", cx=across(query), cy=above(answer), r=5, fill="var(--forward)")
    bell = [(across(at), foot - height * math.exp(-0.5 * ((at - query) / deviation) ** 2)) for at in grid]
    b.part("path", "bell", d=path(bell), fill="var(--b)", stroke="var(--backward)", stroke_width=THICK)
    b.part("circle", "knob", cx=across(query), cy=foot, r=9, fill="var(--paper)", stroke="var(--forward)", stroke_width=3)
    flank = foot - height * math.exp(-0.5)
    b.part(
        "circle",
        "knob",
        cx=across(query + deviation),
        cy=flank,
        r=9,
        fill="var(--paper)",
        stroke="var(--backward)",
        stroke_width=3,
    )
    words = (
        ("query", query),
        ("out", answer),
        ("width", 1 / deviation),
        ("loss", loss(x, y, 1 / deviation)),
        ("d_width", d_width(x, y, 1 / deviation)),
    )
    for i, (name, value) in enumerate(words):
        middle = LEFT + 36 + 70 * i
        b.text(middle, 358, name, SMALL, fill="faint")
        b.word("word", middle, 378, decimal(value, 3 if i > 2 else 2))
    title = "Kernel regression: points, the Gaussian around a query, and the prediction"
    description = (
        f"Sixteen points from x = 0 to {END}. A Gaussian stands around the query {query:g}; points below it are large, others "
        "small. A curve shows the predictions for all queries. Below: the query, its prediction, the width, which is the "
        "inverse of the deviation, the loss of predicting every point from the others, and its derivative by the width."
    )
    hint = (
        "Drag the blue knob to move the query, the orange one to set the width; or use Tab and the arrow keys."
    )
    return b.page("bell", title, description, hint, BELL)
