"""Attention weights of softmax attention and of LEAP, where a position has one weight for all later positions."""

from math import exp, log1p, sqrt

from pictures.picture import Constant, Picture
from svg import SMALL, Drawing, decimal

WIDTH = 360
K = 2
EPSILON = "1e-5"
# An example of one head; its values do not matter.
QUERY = ((1.2, 0.4), (-0.6, 1.8), (1.6, -1.4), (0.2, -2.0), (-1.6, 0.6), (2.0, 1.0))
FOCUS = ((0.6, -0.2), (0.8, 1.0), (-0.8, 0.4), (1.2, -0.8), (-0.6, -1.0), (0.2, 0.6))
KEY = ((1.0, 0.6), (-0.6, 1.4), (1.6, 0.2), (1.4, -1.2), (-1.2, 0.4), (0.8, 1.6))
C = len(QUERY)
CELL, ATTENTION, LEAP, TOP = 22, 22, 180, 104


def dot(x: tuple[float, ...], y: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(x, y)) / sqrt(K)


def weight(s: int) -> float:
    """Weight of a position for all later positions, from its focus vector and its key."""
    score = dot(FOCUS[s], KEY[s])
    return exp(log1p(score) if score > 0 else score)


def attention(c: int) -> list[float]:
    """Weights of the values of positions up to c in the output of c."""
    powers = [exp(dot(QUERY[c], KEY[s])) for s in range(c + 1)]
    return [power / sum(powers) for power in powers]


def pooled(c: int) -> list[float]:
    weights = [weight(s) for s in range(c + 1)]
    return [w / (sum(weights) + float(EPSILON)) for w in weights]


def gate(c: int) -> float:
    """Factor of the averaged value, from the query and the averaged key."""
    key = tuple(sum(share * KEY[s][k] for s, share in enumerate(pooled(c))) for k in range(K))
    return 1 / (1 + exp(-dot(QUERY[c], key)))


def paint_rows(d: Drawing, left: float, name: str, rows: list[list[float]], fill: str) -> None:
    """One row per output; the size of a square is the weight of the position's value."""
    d.text(left + C * CELL / 2, 14, name, bold=True)
    for c, row in enumerate(rows):
        for s, share in enumerate(row):
            side = sqrt(share) * (CELL - 2)
            x, y = left + (s + 0.5) * CELL, TOP + (c + 0.5) * CELL
            d.rectangle(left + s * CELL, TOP + c * CELL, CELL, CELL, "paper", "rule")
            d.rectangle(x - side / 2, y - side / 2, side, side, fill, "none")
    for s in range(C):
        d.text(left + (s + 0.5) * CELL, TOP + C * CELL + 15, str(s), SMALL, fill="faint")


def paint(d: Drawing) -> None:
    for c in range(C):
        d.text(ATTENTION - 8, TOP + (c + 0.5) * CELL + 4, str(c), SMALL, "end", "faint")
    paint_rows(d, ATTENTION, "attention", [attention(c) for c in range(C)], "forward")
    paint_rows(d, LEAP, "leap", [[gate(c) * share for share in pooled(c)] for c in range(C)], "forward")
    d.lines(ATTENTION + C * CELL / 2, 48, ["one softmax", "per query"], 15, size=SMALL, fill="faint")
    d.text(LEAP - 8, TOP - 14, "*e*^{*a*}", anchor="end")
    for s in range(C):
        height = 24 * weight(s)
        d.rectangle(LEAP + (s + 0.2) * CELL, TOP - 8 - height, 0.6 * CELL, height, "mark", "ink")
    d.text(LEAP + C * CELL + 24, TOP - 8, "gate")
    for c in range(C):
        x, y, length = LEAP + C * CELL + 6, TOP + c * CELL, 36
        d.rectangle(x, y + 3, length, CELL - 6, "paper", "rule")
        d.rectangle(x, y + 3, gate(c) * length, CELL - 6, "a", "none")
        d.text(x + length / 2, y + 15, decimal(gate(c)), SMALL)


PICTURES = [
    Picture(
        name="leap-rows",
        page="blocks/leap",
        after="Forward",
        title="Attention weights of softmax attention and of LEAP",
        description=(
            f"Two triangles for {C} positions of one head: row c has the weight of every value up to c in the output of c. "
            "In attention each row is a separate softmax. In LEAP all rows use the same unnormalised weights, "
            + ", ".join(decimal(weight(s)) for s in range(C))
            + ", one per position, and a row is multiplied by its gate, "
            + ", ".join(decimal(gate(c)) for c in range(C))
            + "."
        ),
        caption=(
            "The weight of the value of position s (column) in the output of c (row). In LEAP a position computes one weight "
            "(above) for all later positions. A row is these weights up to c, divided by their sum. The query does not "
            "select positions; it determines the gate on the right. Queries, keys and focus are an example, the same on "
            "both sides."
        ),
        width=WIDTH,
        height=TOP + C * CELL + 24,
        paint=paint,
        constants=(
            Constant("extras/leap/leap_gate.hpp", r" leap_epsilon = ([^,]+),", EPSILON),
            Constant("extras/leap/leap_logits_plain.cpp", r"= ([^;=]+);  // \(leap_logits\.2\)", "bent ? log1p(score) : score"),
        ),
    )
]
