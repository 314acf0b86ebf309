"""Draws docs/results/contexts.svg for tools/compare_contexts.py."""

import math

from figures.chart import Chart, ticks

# Curves that grow with the length have one colour, constant curves another. The reference, dot, has the text colour.
LIGHT = """.dense{stroke:#1f2328}
.part{stroke:#c2410c}
.state{stroke:#2f74c0}
.lead{stroke:#9aa4af;stroke-width:0.75}
"""
DARK = """.dense{stroke:#eef2f6}
.part{stroke:#ffa05c}
.state{stroke:#7db4f0}
.lead{stroke:#57616c;stroke-width:0.75}
"""
WIDTH, PANEL, LEFT, TOP, HEIGHT, BELOW, APART = 720, 430, 64, 84, 230, 96, 14


def style_of(name):
    if name == "dot":
        return "dense"
    return "state" if name.split(",")[0] in ("additive", "leap", "average") else "part"


def spread(wanted, low, high):
    """Heights of labels in this order, with a distance of at least APART, as close to `wanted` as possible."""
    heights = []
    for each in wanted:
        heights.append(max(each, heights[-1] + APART if heights else low))
    excess = heights[-1] - high
    for i in range(len(heights) - 1, -1, -1):
        heights[i] = min(heights[i], high - (len(heights) - 1 - i) * APART) if excess > 0 else heights[i]
    return heights


def draw_panel(chart, top, title, series):
    """series: name -> [(length, value), ...]."""
    values = [value for points in series.values() for _, value in points]
    levels = ticks(min(values), max(values), digits=(1, 3))
    lengths = sorted({length for points in series.values() for length, _ in points})

    def place(length, value):
        across = math.log(length / lengths[0]) / math.log(lengths[-1] / lengths[0])
        up = math.log(value / levels[0]) / math.log(levels[-1] / levels[0])
        return LEFT + PANEL * across, top + HEIGHT * (1 - up)

    chart.text(LEFT, top - 18, title, "name")
    for level in levels:
        y = place(lengths[0], level)[1]
        chart.line("axis" if level == levels[0] else "grid", LEFT, y, LEFT + PANEL, y)
        chart.text(LEFT - 8, y + 4, f"{level:,g}" if level < 1e6 else f"{level / 1e6:,g} M", anchor="end")
    for length in lengths:
        x = place(length, levels[0])[0]
        chart.line("axis", x, top + HEIGHT, x, top + HEIGHT + 4)
        chart.text(x, top + HEIGHT + 19, f"{length:,}", anchor="middle")
    chart.text(LEFT + PANEL / 2, top + HEIGHT + 38, "positions", anchor="middle")
    ends = {}
    for name, points in series.items():
        places = [place(*point) for point in points]
        chart.curve(f"line {style_of(name)}", places)
        ends.setdefault(round(places[-1][1], 1), []).append(name)  # lines with the same end share a label
    ordered = sorted(ends)
    for y, at in zip(ordered, spread(ordered, top, top + HEIGHT)):
        chart.line("lead", LEFT + PANEL + 2, y, LEFT + PANEL + 14, at)
        chart.text(LEFT + PANEL + 18, at + 4, "; ".join(ends[y]))


def drawn(time, state):
    """time: microseconds per token in training; state: bytes of the inference state. Both: name -> [(length, value),
    ...]."""
    chart = Chart()
    chart.text(24, 32, "What a longer context costs", "title")
    draw_panel(chart, TOP, "microseconds a token, in training", time)
    draw_panel(chart, TOP + HEIGHT + BELOW, "bytes kept from position to position, in inference", state)
    last = max(length for points in time.values() for length, _ in points)
    said = "; ".join(f"{name} {points[-1][1]:.0f}" for name, points in time.items())
    kept = "; ".join(f"{name} {points[-1][1]:,.0f}" for name, points in state.items())
    return chart.file("contexts", WIDTH, TOP + 2 * HEIGHT + BELOW + 56, "What a longer context costs",
                      f"Microseconds a token at {last:,} positions: {said}. Bytes kept from position to position: {kept}.",
                      LIGHT, DARK)
