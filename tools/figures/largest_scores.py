"""Draws docs/results/largest_scores.svg for tools/largest_scores.py."""

import math

from figures.chart import Chart, ticks

# Widths have different brightness and hue; rescaled runs have dashed lines.
LIGHT = """.rescaled{stroke-dasharray:5 5}
.ink{stroke:#1f2328}
.width0{stroke:#4f94d8}
.width1{stroke:#174a80}
.width2{stroke:#c2410c}
"""
DARK = """.ink{stroke:#eef2f6}
.width0{stroke:#3f76b3}
.width1{stroke:#9fc9f5}
.width2{stroke:#ffa05c}
"""
WIDTH, PANEL, LEFT, BETWEEN, TOP, HEIGHT, BELOW = 720, 296, 56, 48, 124, 220, 76


def drawn(found, rates, widths, rescale):
    """found: (mixer, rate, width, rescale or 0) -> points. The chart has one row of panels per learning rate."""
    points = [point for series in found.values() for point in series]
    steps = max(point["step"] for point in points)
    levels = ticks(min(point["score"] for point in points), max(point["score"] for point in points))
    chart = Chart()

    chart.text(24, 32, "Largest score of a head in training, by absolute value", "title")
    x = 24
    for i, width in enumerate(widths):
        chart.line(f"line width{i}", x, 56, x + 22, 56)
        chart.text(x + 29, 60, f"{width:,} channels", "name")
        x += 140
    chart.line("line ink", 24, 80, 46, 80)
    chart.text(53, 84, "not rescaled", "name")
    chart.line("line ink rescaled", 164, 80, 186, 80)
    chart.text(193, 84, f"--rescale {rescale}", "name")

    for row, rate in enumerate(rates):
        for column, mixer in enumerate(("leap", "dot")):
            left, top = LEFT + column * (PANEL + BETWEEN), TOP + row * (HEIGHT + BELOW)
            bottom = top + HEIGHT

            def place(step, score):
                part = math.log(score / levels[0]) / math.log(levels[-1] / levels[0])
                return left + PANEL * step / steps, bottom - HEIGHT * part

            chart.text(left, top - 12, f"{mixer}, learning rate {float(rate):g}", "name")
            for level in levels:
                y = place(0, level)[1]
                chart.line("axis" if level == levels[0] else "grid", left, y, left + PANEL, y)
                chart.text(left - 8, y + 4, f"{level:,g}", anchor="end")
            for step in range(0, steps + 1, 100):
                x = place(step, levels[0])[0]
                chart.line("axis", x, bottom, x, bottom + 4)
                chart.text(x, bottom + 19, f"{step}", anchor="middle")
            chart.text(left + PANEL / 2, bottom + 38, "step", anchor="middle")
            for i, width in enumerate(widths):
                for c in (0, rescale):
                    series = found[mixer, rate, width, c]
                    chart.curve(f"line width{i}" + (" rescaled" if c else ""),
                                [place(point["step"], point["score"]) for point in series])

    height = TOP + len(rates) * (HEIGHT + BELOW) - 20
    ends = "; ".join(
        f"{mixer}, learning rate {float(rate):g}, {width:,} channels: {found[mixer, rate, width, 0][-1]['score']:.1f}, "
        f"rescaled {found[mixer, rate, width, rescale][-1]['score']:.1f}"
        for rate in rates for mixer in ("leap", "dot") for width in widths)
    return chart.file("scores", WIDTH, height, "Largest score of a head in training",
                      f"Largest absolute score over {steps} steps, at the end: {ends}.", LIGHT, DARK)
