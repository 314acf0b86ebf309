"""The taps of a causal convolution, forward and backward."""

from pictures.picture import Constant, Picture
from svg import SMALL, TEXT, Drawing

WIDTH = 360
J, C = 4, 8  # taps and positions of the example
CELL, LEFT, HEIGHT, DROP = 21, 58, 22, 62


def x_of(position: float) -> float:
    """Left edge of a position; the first position shown is J - 1 before the sequence."""
    return LEFT + (position + J - 1) * CELL


def row(d: Drawing, y: float, name: str, outside: range, fill: str) -> None:
    """An array over the positions, with zeros outside of the sequence where the convolution reads them."""
    d.text(x_of(min(0, *outside) if outside else 0) - 8, y + 15, name, anchor="end")
    d.cells(x_of(0), y, CELL, HEIGHT, [str(c) for c in range(C)], [fill] * C)
    for c in outside:
        d.box(x_of(c), y, CELL, HEIGHT, "0", SMALL, "paper", ink="faint", dashed=True, radius=0)


def taps(d: Drawing, y: float, to: int, sign: int, ink: str, line: float, labels: bool) -> None:
    """Lines from the positions that `to` reads; the newest tap reads `to` itself."""
    start, end = y + HEIGHT, y + HEIGHT + DROP
    for j in range(J):
        position = to + sign * (J - 1 - j)
        a, b = x_of(position + 0.5), x_of(to + 0.5)
        d.line([(a, start), (b, end)], ink, line)
        if labels:
            d.text(a + 0.3 * (b - a), start + 0.3 * DROP + 4, str(j), TEXT, fill=ink, bold=True, halo=True)


def half(d: Drawing, y: float, names: tuple[str, str], sign: int, marked: int, edge: int, ink: str) -> None:
    outside = range(-(J - 1), 0) if sign < 0 else range(C, C + J - 1)
    taps(d, y, edge, sign, "faint", 1, False)
    taps(d, y, marked, sign, ink, 1.5, True)
    row(d, y, names[0], outside, "a" if sign < 0 else "b")
    row(d, y + HEIGHT + DROP, names[1], range(0), "a" if sign < 0 else "b")
    d.rectangle(x_of(marked), y + HEIGHT + DROP, CELL, HEIGHT, "none", ink, 2)


def paint(d: Drawing) -> None:
    d.text(4, 14, f"forward: out is a sum over the last {J} inputs", bold=True, anchor="start")
    half(d, 28, ("in", "out"), -1, 5, 1, "forward")
    top = 28 + 2 * HEIGHT + DROP + 24
    d.line([(4, top), (WIDTH - 4, top)], "rule")
    d.text(4, top + 22, f"backward: d_in is a sum over the next {J}", bold=True, anchor="start")
    half(d, top + 36, ("d_out", "d_in"), 1, 2, 6, "backward")


PICTURES = [
    Picture(
        name="conv-taps",
        page="layers/causal_conv",
        after="Backward",
        title="Taps of the causal convolution, forward and backward",
        description=(
            f"One channel of {C} positions and {J} taps. Forward, the output at position 5 reads the inputs at 2, 3, 4 "
            "and 5 with taps 0, 1, 2 and 3; before the sequence the inputs are zeros. Backward, the gradient of the input "
            "at position 2 reads the gradients of the outputs at 2, 3, 4 and 5 with taps 3, 2, 1 and 0; after the "
            "sequence they are zeros."
        ),
        caption=(
            f"One channel of a depthwise convolution with J = {J} taps. The last tap, {J - 1}, connects a position "
            "with itself, forward and backward. Grey: the ends of the sequence."
        ),
        width=WIDTH,
        height=318,
        paint=paint,
        constants=(
            Constant("plain/causal_conv.cpp", r"const Index s = c (- \(J - 1\) \+ j);[^\n]*\n\s+for", "- (J - 1) + j"),
            Constant("plain/causal_conv.cpp", r"const Index s = c (\+ \(J - 1\) - j);", "+ (J - 1) - j"),
        ),
    )
]
