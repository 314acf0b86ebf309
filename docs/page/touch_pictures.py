"""The two interactive pictures of pooling, as they are shown without script; drawn from the definition.

The script (touch.js) finds the moving parts by their class. All numbers and places that it uses are in the data-given
attribute of a drawing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

from svg import NAME, SMALL, TEXT, THICK, Drawing, decimal, number, text_width

# ---- The definition ----


def weights(logits: Sequence[float], first: int, last: int) -> list[float]:
    """Weight of each position in the average over first ... last: the softmax of the logits there, 0 elsewhere."""
    inside = [math.exp(logit) if first <= s <= last else 0.0 for s, logit in enumerate(logits)]
    return [weight / sum(inside) for weight in inside]


def average(weight: Sequence[float], x: Sequence[float]) -> float:
    return sum(w * value for w, value in zip(weight, x))


@dataclass(frozen=True)
class State:
    """State of the positions first ... last: the largest logit, the sum of weights relative to it, the average."""

    max: float
    sum: float
    out: float


def state(logits: Sequence[float], x: Sequence[float], first: int, last: int) -> State:
    if first > last:
        return State(-math.inf, 0.0, 0.0)
    most = max(logits[first : last + 1])
    total = sum(math.exp(logit - most) for logit in logits[first : last + 1])
    return State(most, total, average(weights(logits, first, last), x))


def gradients(logits: Sequence[float], x: Sequence[float], d_out: Sequence[float]) -> list[float]:
    """Gradients of the logits: each logit affects the averages at its position and later."""
    d_logits = [0.0] * len(x)
    for c, gradient in enumerate(d_out):
        weight = weights(logits, 0, c)
        out = average(weight, x)
        for s in range(c + 1):
            d_logits[s] += weight[s] * gradient * (x[s] - out)
    return d_logits


# ---- Drawing ----

WIDTH = 360
LEFT = 4
COLUMN = 44


class Board(Drawing):
    """A drawing with parts that the script finds by their class and their order."""

    def part(self, element: str, kind: str, **attributes: object) -> None:
        values = {key.replace("_", "-"): v if isinstance(v, str) else number(v) for key, v in attributes.items()}
        self.add(f'<{element} class="{kind}" ' + " ".join(f'{key}="{v}"' for key, v in values.items()) + "/>")

    def word(self, kind: str, x: float, y: float, text: str, anchor: str = "middle") -> None:
        where = f'x="{number(x)}" y="{number(y)}"' + (f' text-anchor="{anchor}"' if anchor != "middle" else "")
        self.add(f'<text class="{kind}" {where}>{text}</text>')

    @contextmanager
    def group(self, **attributes: object) -> Iterator[None]:
        """Adds common attributes to all parts inside."""
        self.add("<g " + " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items()) + ">")
        yield
        self.add("</g>")

    def upright(self, kind: str, x: float, start: float, end: float, stroke: str, width: float = 1) -> None:
        path = f"M{number(x)} {number(start)}V{number(end)}"
        self.part("path", kind, d=path, stroke=f"var(--{stroke})", stroke_width=width)

    def heading(self, y: float, name: str, says: str) -> None:
        self.text(LEFT, y, name, NAME, "start")
        self.text(LEFT + text_width(name, NAME) + 8, y, says, SMALL, "start", "faint")

    def page(self, kind: str, title: str, description: str, hint: str, given: dict[str, object]) -> str:
        """The drawing in its frame, with the data for the script."""
        told = escape(json.dumps(given, separators=(",", ":")))
        picture = self.render(title, description, False)
        frame = f'<div style="position:relative;max-width:{number(self.width)}px;margin:auto">{picture}</div>'
        style = "font:0.8125rem/1.4 system-ui,sans-serif;color:var(--faint);text-align:center"
        below = f'<p style="{style};max-width:22rem;margin:0.5rem auto" hidden>{escape(hint)}</p>'
        return f'<div data-touch="{kind}" data-given="{told}">{frame}{below}</div>\n'


# ---- Logits ----

LOGIT = {
    "logit": [0.5, -0.5, 1.0, 0.0, 1.5, -1.0, 0.5, 0.0],
    "x": [3.0, 1.0, 4.0, 2.0, 0.5, 3.0, 1.5, 3.5],
    "d_out": [0.0, 0.0, 0.0, 2.0, 0.0, -2.0, 0.0, 3.0],
    "most": 3,  # largest absolute value of a logit
    "chosen": 2,
    # Pixels: width of a column; for each row, the position of zero and the length of one unit.
    "left": LEFT,
    "column": COLUMN,
    "rows": {"logit": [102, 16], "share": [276, 60], "out": [382, 17], "gradient": [518, 19]},
}


def middle(c: int) -> float:
    return LEFT + COLUMN * (c + 0.5)


def at(row: str, value: float, given: dict[str, Any] = LOGIT) -> float:
    zero, one = given["rows"][row]
    return zero - one * value


def draw_logits() -> str:
    height = 582
    b = Board("touch-logit", WIDTH, height)
    b.part("rect", "column", x=middle(LOGIT["chosen"]) - 22, y=0, width=44, height=height, rx=6, fill="var(--panel)")
    shares = [weights(LOGIT["logit"], 0, c) for c in range(len(LOGIT["x"]))]
    b.heading(38, "logit_{*c*}", "logit of each position")
    paint_sliders(b, "logit", "*c*", LOGIT)
    paint_weights(b, shares)
    paint_averages(b, [average(share, LOGIT["x"]) for share in shares])
    paint_gradients(b)
    title = "Logits, the running average, and the gradients of the logits"
    description = (
        "Eight positions in columns. From the top: their logits as sliders; the weights of each average, as stacked "
        "columns; the values as dots and the running average as a line; the gradient of the average, which is given; the "
        "gradient of each logit as bars, which add up to 0."
    )
    hint = "Drag a knob up or down, or use Tab and the arrow keys."
    return b.page("logit", title, description, hint, LOGIT)


def paint_sliders(b: Board, name: str, index: str, given: dict[str, Any]) -> None:
    for c, value in enumerate(given[name]):
        m, zero, y = middle(c), at(name, 0, given), at(name, value, given)
        b.text(m, 15, f"{index} = {c}" if c == 0 else str(c), SMALL, fill="faint")
        b.line([(m, at(name, given["most"], given)), (m, at(name, -given["most"], given))], "rule", 4)
        b.line([(m - 6, zero), (m + 6, zero)], "faint")
        b.upright("stem", m, zero, y, "forward", 4)
        b.part("circle", "knob", cx=m, cy=y, r=9, fill="var(--paper)", stroke="var(--forward)", stroke_width=3)
        b.word(name, m, 177, decimal(value, 1))


def paint_weights(b: Board, shares: list[list[float]]) -> None:
    b.heading(207, "weights", "newest on top; dark blue: the marked column")
    with b.group(stroke="var(--paper)", stroke_width=1.5):
        for c, share in enumerate(shares):
            low = 0.0
            for s in range(c + 1):
                y = at("share", low + share[s])
                fill = "var(--forward)" if s == LOGIT["chosen"] else "var(--a)"
                b.part("rect", "share", x=middle(c) - 17, y=y, width=34, height=at("share", low) - y, fill=fill)
                low += share[s]


def paint_averages(b: Board, out: list[float]) -> None:
    b.heading(303, "out_{*c*}", "the running average (line) of *x*_{*c*} (dots)")
    for c, x in enumerate(LOGIT["x"]):
        b.upright("gap", middle(c), at("out", x), at("out", out[c]), "faint")
    path = f"M{LEFT} {number(at('out', out[0]))}" + "".join(f"V{number(at('out', o))}h{LOGIT['column']}" for o in out)
    b.part("path", "steps", d=path, fill="none", stroke="var(--forward)", stroke_width=2.5)
    for c, x in enumerate(LOGIT["x"]):
        b.circle(middle(c), at("out", x), 4.5, "paper")
        b.word("out", middle(c), 404, decimal(out[c]))


def paint_gradients(b: Board) -> None:
    d_out = LOGIT["d_out"]
    d_logit = gradients(LOGIT["logit"], LOGIT["x"], d_out)
    b.heading(434, "d_out_{*c*}", "given")
    b.heading(474, "d_logit_{*c*}", "computed")
    b.text(WIDTH - LEFT - 32, 474, "sum", SMALL, "end", "faint")
    b.word("total", WIDTH - LEFT, 474, decimal(sum(d_logit)), "end")
    b.line([(LEFT, at("gradient", 0)), (WIDTH - LEFT, at("gradient", 0))], "rule")
    for c, gradient in enumerate(d_logit):
        b.text(middle(c), 453, decimal(d_out[c], 0), TEXT, fill="backward" if d_out[c] else "faint")
        b.upright("bar", middle(c), at("gradient", 0), at("gradient", gradient), "backward", 18)
        b.word("d_logit", middle(c), 570, decimal(gradient))


# ---- A window ----

WINDOW = {
    "logit": [0, 1, -1, 2, 0, 1, -2, 1, 2, 0, -1, 1, 0, 2, -1, 1],
    "x": [2.0, 3.5, 1.0, 3.0, 4.0, 2.5, 0.5, 1.5, 0.5, 2.0, 3.5, 3.0, 1.0, 2.5, 4.0, 1.5],
    "window": 6,
    "last": 8,
    "left": LEFT,
    "column": 22,
    "row": [118, 21],  # row of x: position of zero and length of one unit, in pixels
    "dot": 10,  # radius of a position with weight 1
    "cells": [154, 28],  # upper edge and height
    "rail": 216,
}


def edge(position: float) -> float:
    return WINDOW["left"] + WINDOW["column"] * position


def level(value: float) -> float:
    zero, one = WINDOW["row"]
    return zero - one * value


def draw_window() -> str:
    logit, x, w, last = (WINDOW[name] for name in ("logit", "x", "window", "last"))
    first, block = last - w + 1, last // w * w
    ranges = [(first, block - 1), (block, last), (first, last)]
    states = [state(logit, x, *ends) for ends in ranges]
    share = weights(logit, first, last)
    b = Board("touch-window", WIDTH, 404)
    paint_levels(b, ranges, states, share)
    paint_cells(b, first, block, last)
    paint_states(b, ranges, states)
    paint_gamma(b, sum(share[first:block]))
    title = "A window as a suffix and a prefix, with numbers"
    description = (
        f"Sixteen positions with their logits, in blocks of w. The window of w = {w} positions that ends at position "
        f"{last} is the suffix from {first} to {block - 1} and the prefix from {block} to {last}. For each: its largest "
        "logit, its sum of weights relative to it, and its average; then the same for the window."
    )
    hint = "Drag the window to move it, the knob to resize it; or use Tab and the arrow keys."
    return b.page("window", title, description, hint, WINDOW)


def paint_levels(b: Board, ranges: list[tuple[int, int]], states: list[State], share: list[float]) -> None:
    b.heading(15, "*x*_{*c*}", "size: weight in the window; bars: averages")
    for (begin, end), of, (fill, height) in zip(ranges, states, (("b", 9), ("a", 9), ("ink", 3))):
        place = {"x": edge(begin), "y": level(of.out), "width": WINDOW["column"] * (end + 1 - begin), "height": height}
        centred = f"translate(0 {-height / 2})"
        b.part("rect", "level", **place, fill=f"var(--{fill})", stroke="var(--faint)", transform=centred)
    first, last = ranges[2]
    with b.group(stroke="var(--faint)"):
        for c, x in enumerate(WINDOW["x"]):
            inside = first <= c <= last
            radius, fill = (WINDOW["dot"] * math.sqrt(share[c]), "forward") if inside else (2.5, "paper")
            b.part("circle", "dot", cx=edge(c + 0.5), cy=level(x), r=radius, fill=f"var(--{fill})")


def paint_cells(b: Board, first: int, block: int, last: int) -> None:
    w, column, rail, (top, height) = (WINDOW[name] for name in ("window", "column", "rail", "cells"))
    b.heading(140, "logit_{*c*}", "in blocks of *w* positions")
    b.word("size", edge(16), 140, f"w = {w}", "end")
    path, dashes = f"M{edge(0) + 2} {top - 5}H{edge(16) - 2}", f"{column * w - 4} 4"
    b.part("path", "blocks", d=path, stroke="var(--faint)", stroke_width=3, stroke_dasharray=dashes)
    with b.group(stroke="var(--rule)"):
        for c in range(len(WINDOW["x"])):
            fill = "paper" if not first <= c <= last else "b" if c < block else "a"
            b.part("rect", "cell", x=edge(c), y=top, width=column, height=height, fill=f"var(--{fill})")
    for c, logit in enumerate(WINDOW["logit"]):
        b.text(edge(c + 0.5), top + 18, decimal(logit, 0), SMALL)
        b.text(edge(c + 0.5), top + height + 14, str(c), SMALL, fill="faint")
    place = {"x": edge(first), "y": top, "width": column * w, "height": height, "rx": 3}
    b.part("rect", "frame", **place, fill="none", stroke="var(--ink)", stroke_width=2.5)
    path = f"M{edge(first)} {rail}H{edge(last + 1)}m0 -5v10"
    b.part("path", "rail", d=path, fill="none", stroke="var(--ink)", stroke_width=THICK)
    b.part("circle", "knob", cx=edge(first), cy=rail, r=9, fill="var(--paper)", stroke="var(--forward)", stroke_width=3)


def paint_states(b: Board, ranges: list[tuple[int, int]], states: list[State]) -> None:
    for i, (name, fill) in enumerate((("suffix", "b"), ("prefix", "a"), ("both", "paper"))):
        left, (begin, end) = LEFT + 124 * i, ranges[i]
        b.rectangle(left, 242, 104, 90, fill, "ink" if i == 2 else "rule", THICK, radius=4)
        b.text(left + 8, 260, name, TEXT, "start", bold=True)
        b.word("range", left + 96, 260, f"{begin}–{end}", "end")
        for row, (word, value) in enumerate(vars(states[i]).items()):
            b.text(left + 8, 283 + 19 * row, word, TEXT, "start")
            b.word("number", left + 96, 283 + 19 * row, decimal(value, 2 if row else 0), "end")
    b.text(LEFT + 114, 292, "+", NAME)
    b.text(LEFT + 238, 292, "=", NAME)


def paint_gamma(b: Board, gamma: float) -> None:
    width = edge(16) - LEFT
    b.text(LEFT, 362, "*γ* =", NAME, "start")
    b.word("gamma", LEFT + 34, 362, decimal(gamma), "start")
    b.text(LEFT + 66, 362, "is the suffix’s share of the sum", SMALL, "start", "faint")
    b.rectangle(LEFT, 372, width, 18, "a", "none")
    b.part("rect", "part", x=LEFT, y=372, width=width * gamma, height=18, fill="var(--b)")
    b.rectangle(LEFT, 372, width, 18, "none", "rule")
