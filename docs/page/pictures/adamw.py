"""The length of AdamW's steps for three sequences of gradients."""

from math import sqrt

from pictures.picture import Constant, Picture
from svg import SMALL, Drawing, decimal

WIDTH = 360
BETA1, BETA2, EPSILON = "0.9", "0.99", "1e-8"
STEPS, SPIKE = 40, 12
SMALL_ONE, LARGE_ONE = 0.01, 1.0
GRADIENTS = {
    f"{SMALL_ONE} in every step": [SMALL_ONE] * STEPS,
    "1 and −1 in turn": [LARGE_ONE if step % 2 == 0 else -LARGE_ONE for step in range(STEPS)],
    f"{SMALL_ONE}, and once {LARGE_ONE:g}": [LARGE_ONE if step == SPIKE else SMALL_ONE for step in range(STEPS)],
}
LEFT, COLUMN, PANEL = 30, 8, 118  # pixels: left edge of the first step, width of a step, height of a sequence
GRADIENT, STEP = 16, 28  # pixels: bar of the largest gradient, bar of a step of one learning rate


def steps(gradients: list[float]) -> list[float]:
    """Change of a weight in each step without weight decay, in learning rates, against the gradient's sign."""
    beta1, beta2 = float(BETA1), float(BETA2)
    first = second = 0.0
    found = []
    for step, gradient in enumerate(gradients):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        mean, square = first / (1 - beta1 ** (step + 1)), second / (1 - beta2 ** (step + 1))
        found.append(mean / (sqrt(square) + float(EPSILON)))
    return found


def paint_bars(d: Drawing, zero: float, unit: float, values: list[float], fill: str) -> None:
    for step, value in enumerate(values):
        height = value * unit
        d.rectangle(LEFT + step * COLUMN + 1, zero - max(height, 0), COLUMN - 2, abs(height), fill, "none")
    d.line([(LEFT, zero), (LEFT + STEPS * COLUMN, zero)], "faint", 1)


def paint(d: Drawing) -> None:
    for i, (name, gradients) in enumerate(GRADIENTS.items()):
        top = 16 + i * PANEL
        d.text(LEFT, top, "gradient: " + name, anchor="start", fill="backward")
        paint_bars(d, top + 26, GRADIENT / max(map(abs, gradients)), gradients, "backward")
        zero = top + (80 if min(gradients) >= 0 else 76)
        d.line([(LEFT, zero - STEP), (LEFT + STEPS * COLUMN, zero - STEP)], "rule", 1, dashed=True)
        d.text(LEFT - 5, zero - STEP + 4, "1", SMALL, "end", "faint")
        d.text(LEFT - 5, zero + 4, "0", SMALL, "end", "faint")
        paint_bars(d, zero, STEP, steps(gradients), "forward")
    d.text(LEFT, 16 + len(GRADIENTS) * PANEL - 14, "below (blue): the step, in learning rates", SMALL, "start", "forward")


LAST = {name: abs(steps(gradients)[-1]) for name, gradients in GRADIENTS.items()}
STEADY, TURNING, SPIKED = LAST.values()

PICTURES = [
    Picture(
        name="adamw-steps",
        page="layers/adamw",
        after="Forward",
        title="Step length of AdamW for three sequences of gradients",
        description=(
            f"Bars of {STEPS} gradients, and of the resulting steps, in units of the learning rate. A gradient of {SMALL_ONE} in "
            f"every step gives steps of {decimal(STEADY)}. Gradients that alternate between 1 and minus 1 give steps that "
            f"shrink to {decimal(TURNING)}. One gradient of 1 among gradients of {SMALL_ONE} reduces the later steps, to "
            f"{decimal(SPIKED)} at the end."
        ),
        caption=(
            "If the sign of the gradient stays the same, steps are long; the magnitude of the gradient has no effect. One large "
            f"gradient shortens the later steps: it decays more slowly in the second moment (beta2 = {BETA2}) than in the "
            f"first moment (beta1 = {BETA1})."
        ),
        width=WIDTH,
        height=16 + len(GRADIENTS) * PANEL,
        paint=paint,
        constants=(
            Constant("src/layers/adamw.hpp", r"double beta1 = ([\d.]+);", BETA1),
            Constant("src/layers/adamw.hpp", r"double beta2 = ([\d.]+);", BETA2),
            Constant("src/layers/adamw.hpp", r"double epsilon = ([\d.e-]+);", EPSILON),
            Constant(
                "plain/adamw.cpp",
                r"updated = weight - \(learning_rate \* \((.*)\) \+ decay",
                "mean / (sqrt(square) + epsilon)",
            ),
        ),
    )
]
