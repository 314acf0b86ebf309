"""Data flow through a block: arrays in ovals, operations in boxes, and between them arrows for values and gradients."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from fault import Fault
from lab import makes
from sources import Source
from svg import NAME, SMALL, Drawing, text_width

ARRAY, OPERATION = 24, 28  # heights
PITCH = 48  # distance of two rows


def rows(names: Sequence[str], extra: dict[str, int]) -> dict[str, float]:
    """Height of each row; `extra` is additional space before a row."""
    y, at = 20.0 - PITCH, {}
    for name in names:
        y += PITCH + extra.get(name, 0)
        at[name] = y
    return at


def legend(d: Drawing, left: float, last: str = "") -> None:
    """Legend of the arrows; `last` is the meaning of a dashed arrow."""
    for i, (ink, label) in enumerate((("forward", "values"), ("backward", "gradients"), ("ink", last))):
        y = 16 + 18 * i
        if ink == "ink" and label:
            d.line([(left, y), (left + 26, y)], "forward", dashed=True)
        elif label:
            d.arrow([(left, y), (left + 26, y)] if ink == "forward" else [(left + 26, y), (left, y)], ink)
        if label:
            d.text(left + 34, y + 4, label, SMALL, "start", "faint")


def made_faults(root: Path, block: str, header: str, made: dict[str, int]) -> list[Fault]:
    """Arrays for which the picture and the header name different equations."""
    found = makes(SimpleNamespace(name=block, header=Source(root, header)))
    return [
        Fault(header, f"({found.get(name, 'no equation')}) makes {name}, the picture {block}-flow says ({block}.{number})")
        for name, number in made.items()
        if found.get(name) != f"{block}.{number}"
    ]


class Flow:
    """A drawing of a block. Numbers beside arrows are tags of its chapter's equations."""

    def __init__(self, drawing: Drawing, block: str, at: dict[str, float]):
        self.drawing, self.name, self.at = drawing, block, at

    def tag(self, x: float, y: float, equation: int, anchor: str, ink: str) -> None:
        """A number with a link to the equation of this chapter."""
        with self.drawing.link(f"#{self.name}.{equation}", f"equation {self.name}.{equation}"):
            self.drawing.text(x, y + 4, f"({equation})", SMALL, anchor, ink)

    def array(self, x: float, row: str, name: str, width: float = 0) -> None:
        width, y = width or max(text_width(name, NAME) + 14, 30), self.at[row]
        self.drawing.box(x - width / 2, y - ARRAY / 2, width, ARRAY, name, NAME, "paper", "ink", radius=ARRAY / 2)

    def operation(self, x: float, row: str, label: str, layer: str, width: float, dashed: bool = False) -> None:
        d, y = self.drawing, self.at[row]
        with d.link(f"../layers/{layer}.html", f"layer {layer}"):
            d.box(x - width / 2, y - OPERATION / 2, width, OPERATION, label, ink="link", dashed=dashed)

    def down(self, x: float, start: float, end: float, forward: int = 0, backward: int = 0) -> None:
        """A pair of arrows, with the equations of the values and the gradients."""
        self.drawing.pair([(x, start), (x, end)])
        if forward:
            self.tag(x - 11, (start + end) / 2, forward, "end", "forward")
        if backward:
            self.tag(x + 11, (start + end) / 2, backward, "start", "backward")

    def into(self, x: float, above: str, below: str, backward: int = 0) -> None:
        """From an array to the operation below; `backward` is the equation of the array's gradient."""
        self.down(x, self.at[above] + ARRAY / 2, self.at[below] - OPERATION / 2, backward=backward)

    def out_of(self, x: float, above: str, below: str, forward: int = 0) -> None:
        """From an operation to the array below; `forward` is the equation of the array."""
        self.down(x, self.at[above] + OPERATION / 2, self.at[below] - ARRAY / 2, forward=forward)

    def weights(self, right: float, row: str, equation: int) -> None:
        """The gradients of weights, to the left of their operation; the operation begins at `right`."""
        d, y = self.drawing, self.at[row]
        d.arrow([(right, y), (right - 14, y)], "backward")
        d.text(right - 17, y - 1, "weights", SMALL, "end", "backward")
        self.tag(right - 17, y + 9, equation, "end", "backward")

    def around(self, x: float, stream: float, start: str, end: str, edge: float) -> None:
        """The residual stream: from an array at x, around the block, to the operation that adds to it."""
        top, bottom = self.at[start], self.at[end]
        self.drawing.pair([(x - 15, top), (stream, top), (stream, bottom), (edge, bottom)])
