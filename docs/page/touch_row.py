"""The interactive picture of a row of attention, as it is shown without script; drawn from the definition."""

from __future__ import annotations

from collections.abc import Sequence

from svg import SMALL, decimal, number
from touch_pictures import COLUMN, LEFT, WIDTH, Board, at, average, middle, paint_sliders, weights

ROW = {
    "score": [0.5, -1.0, 2.0, 0.0, 1.0, -0.5, -2.0, 1.5],
    "value": [3.0, 1.0, 4.0, 2.0, 0.5, 3.0, 1.5, 3.5],
    "d_out": 2.0,
    "most": 3,  # largest absolute value of a score
    # Pixels, as for the logits.
    "left": LEFT,
    "column": COLUMN,
    "rows": {"score": [102, 16], "weight": [286, 66], "out": [402, 16], "d_score": [492, 22]},
}
HEIGHT = 558


def gradients(weight: Sequence[float], value: Sequence[float], d_out: float) -> list[float]:
    """Gradients of the scores: weight times (value - mean), times d_out."""
    out = average(weight, value)
    return [w * d_out * (v - out) for w, v in zip(weight, value)]


def draw_row() -> str:
    score, value, d_out = ROW["score"], ROW["value"], ROW["d_out"]
    weight = weights(score, 0, len(score) - 1)
    out, d_score = average(weight, value), gradients(weight, value, d_out)
    b = Board("touch-row", WIDTH, HEIGHT)
    right = WIDTH - LEFT
    b.heading(38, "score_{*s*}", "one per key")
    paint_sliders(b, "score", "*s*", ROW)
    b.heading(207, "weight_{*s*}", "softmax of the scores")
    b.heading(328, "value_{*s*}", "(dots) and their weighted mean (line)")
    b.heading(432, "d_score_{*s*}", f"for d_out = {d_out:g}")
    b.text(right - 36, 328, "out", SMALL, "end", "faint")
    b.word("out", right, 328, decimal(out), "end")
    b.text(right - 36, 432, "sum", SMALL, "end", "faint")
    b.word("total", right, 432, decimal(sum(d_score)), "end")
    for row in ("weight", "d_score"):
        b.line([(LEFT, at(row, 0, ROW)), (right, at(row, 0, ROW))], "rule")
    for s, w in enumerate(weight):
        m = middle(s)
        b.upright("share", m, at("weight", 0, ROW), at("weight", w, ROW), "forward", 18)
        b.word("weight", m, 302, decimal(w))
        b.upright("gap", m, at("out", value[s], ROW), at("out", out, ROW), "faint")
        b.upright("bar", m, at("d_score", 0, ROW), at("d_score", d_score[s], ROW), "backward", 18)
        b.word("d_score", m, 548, decimal(d_score[s]))
    path = f"M{LEFT} {number(at('out', out, ROW))}H{right}"
    b.part("path", "mean", d=path, fill="none", stroke="var(--forward)", stroke_width=2.5)
    for s, v in enumerate(value):
        b.circle(middle(s), at("out", v, ROW), 4.5, "paper")
    title = "A row of attention: scores, weights, the weighted mean of the values, and the gradients of the scores"
    description = (
        "One query and eight keys in columns. From the top: their scores as sliders; the weights as bars, which add up to "
        "1; the values as dots and their weighted mean as a line; the gradient of each score as bars, which add up to 0."
    )
    return b.page("row", title, description, "Drag a knob up or down, or use Tab and the arrow keys.", ROW)
