"""The gradient of the logits as the gap between the prediction and the target."""

from fractions import Fraction
from math import log

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing

WIDTH = 360
# The worked example: exponentials of the logits in rows with a target, and the targets.
POWERS, TARGETS = ((1, 2, 4, 1), (3, 1, 1, 1)), (2, 1)
COUNT, V = len(POWERS), len(POWERS[0])
SMOOTHINGS = (Fraction(0), Fraction(1, 2))
COLUMN, BAR, LEFT, APART = 40, 26, 8, 184  # pixels: token, bar, left edge, distance of rows
UNIT = 60  # pixels for a probability of 1


def predicted(row: int) -> list[Fraction]:
    return [Fraction(power, sum(POWERS[row])) for power in POWERS[row]]


def wanted(row: int, smoothing: Fraction) -> list[Fraction]:
    return [(1 - smoothing) * (v == TARGETS[row]) + smoothing / V for v in range(V)]


def gradients(row: int, smoothing: Fraction) -> list[Fraction]:
    return [(p - q) / COUNT for p, q in zip(predicted(row), wanted(row, smoothing))]


def middle(row: int, v: int) -> float:
    return LEFT + row * APART + (v + 0.5) * COLUMN


def columns() -> list[tuple[int, int]]:
    return [(row, v) for row in range(COUNT) for v in range(V)]


def paint_logits(d: Drawing, zero: float) -> None:
    d.text(LEFT, zero - 58, "logits", anchor="start", bold=True)
    for row, v in columns():
        power, x = POWERS[row][v], middle(row, v)
        height = 26 * log(power)
        d.rectangle(x - BAR / 2, zero - height, BAR, height, "panel", "faint")
        d.text(x, zero - height - 6, f"log {power}" if power > 1 else "0", SMALL)


def paint_shares(d: Drawing, zero: float, smoothing: Fraction) -> None:
    """Prediction and target of both rows, and below, the gap between them."""
    says = f"smoothing {smoothing}" if smoothing else "no smoothing"
    d.text(LEFT, zero - UNIT - 14, f"*p* (filled) and *q* (frame), {says}", anchor="start", bold=True)
    below = zero + 66  # zero line of the gradients, drawn at the scale of p - q
    d.text(LEFT, zero + 22, "d_logits", anchor="start", fill="backward", bold=True)
    for row, v in columns():
        x, p, q = middle(row, v), float(predicted(row)[v]), float(wanted(row, smoothing)[v])
        gradient = gradients(row, smoothing)[v]
        gap = float(gradient) * COUNT * UNIT
        d.rectangle(x - BAR / 2, zero - p * UNIT, BAR, p * UNIT, "a", "none")
        d.rectangle(x - BAR / 2, zero - q * UNIT, BAR, q * UNIT, "none", "ink", THICK)
        if gap:
            d.line([(x, zero - p * UNIT), (x, zero - q * UNIT)], "backward", THICK)
            d.rectangle(x - BAR / 2, below - max(gap, 0), BAR, abs(gap), "b", "backward")
        d.text(x, below - gap + 13 if gap < 0 else below - gap - 5, str(gradient).replace("-", "−"), SMALL)
    for row in range(COUNT):
        for y in (zero, below):
            d.line([(middle(row, 0) - COLUMN / 2, y), (middle(row, V - 1) + COLUMN / 2, y)], "faint")


def paint(d: Drawing) -> None:
    for row, target in enumerate(TARGETS):
        d.text((middle(row, 0) + middle(row, V - 1)) / 2, 14, f"row {row}, target {target}")
    paint_logits(d, 98)
    for smoothing, zero in zip(SMOOTHINGS, (206, 430)):
        paint_shares(d, zero, smoothing)
    for row, v in columns():
        d.text(middle(row, v), 558, str(v), SMALL, fill="ink" if v == TARGETS[row] else "faint", bold=v == TARGETS[row])


def written(row: int, smoothing: Fraction) -> str:
    return ", ".join(map(str, gradients(row, smoothing)))


PICTURES = [
    Picture(
        name="cross-entropy-gap",
        page="layers/cross_entropy",
        after="A worked example",
        title="The gradient of the logits: the difference between prediction and target",
        description=(
            f"The two rows of the worked example that have a target, with {V} tokens each. Bars show the logits; filled "
            "bars show the softmax p, frames the target distribution q. The gradient, p minus q, divided by the number of rows, "
            "is a bar above or below zero. Without smoothing it is "
            + " and ".join(written(row, SMOOTHINGS[0]) for row in range(COUNT))
            + f"; with a smoothing of {SMOOTHINGS[1]} it is "
            + " and ".join(written(row, SMOOTHINGS[1]) for row in range(COUNT))
            + "."
        ),
        caption=(
            "d_logits is (p − q) / count, with "
            f"count = {COUNT}. It is positive where the bar is higher than the frame, and gradient descent lowers that "
            "logit. Every row of d_logits sums to 0. Smoothing lowers the frame of the target; the gradient of row 0 is "
            "then almost 0."
        ),
        width=WIDTH,
        height=566,
        paint=paint,
        constants=tuple(
            Constant(
                "docs/layers/cross_entropy.md",
                rf"\n\| {row} \| {first} [^\n]*[|=] ([^|=\n]+) \|\n",
                written(row, smoothing),
            )
            for smoothing, firsts in zip(SMOOTHINGS, (("log 8", "log 6"), (r"\(log 2\)", r"\(log 3\)")))
            for row, first in enumerate(firsts)
        ),
    )
]
