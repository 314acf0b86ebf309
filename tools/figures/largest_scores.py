"""Draws docs/results/largest_scores.svg for tools/largest_scores.py."""

import math

# Ink on paper for light, the reverse for dark, as in the pictures of the programs (src/pictures). Widths differ in
# brightness as well as in hue, and rescaled runs in dashes.
STYLE = """<style>
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#59636e}
.paper{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.name{fill:#1f2328}
.grid{stroke:#e4e8ec;stroke-width:1}
.axis{stroke:#9aa4af;stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.rescaled{stroke-dasharray:5 5}
.ink{stroke:#1f2328}
.width0{stroke:#4f94d8}
.width1{stroke:#174a80}
.width2{stroke:#c2410c}
@media (prefers-color-scheme:dark){
text{fill:#9aa4af}
.paper{fill:#0f141a}
.title,.name{fill:#eef2f6}
.grid{stroke:#232a32}
.axis{stroke:#57616c}
.ink{stroke:#eef2f6}
.width0{stroke:#3f76b3}
.width1{stroke:#9fc9f5}
.width2{stroke:#ffa05c}
}
</style>
"""
WIDTH, PANEL, LEFT, BETWEEN, TOP, HEIGHT, BELOW = 720, 296, 56, 48, 124, 220, 76


def ticks(low, high):
    """1, 2 and 5 times powers of ten, from the last that is not above `low` to the first that is not below `high`."""
    steps = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= low)
    last = min(i for i, step in enumerate(steps) if step >= high)
    return steps[first : last + 1]


class Svg:
    def __init__(self):
        self.parts = []

    def line(self, style, x1, y1, x2, y2):
        self.parts.append(f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n')

    def text(self, x, y, content, style="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{content}</text>\n')

    def curve(self, style, points):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{style}" points="{path}"/>\n')


def drawn(found, rates, widths, rescale):
    """found: the points of each (mixer, rate, width, rescale or 0); one row of panels a learning rate."""
    points = [point for series in found.values() for point in series]
    steps = max(point["step"] for point in points)
    levels = ticks(min(point["score"] for point in points), max(point["score"] for point in points))
    svg = Svg()

    svg.text(24, 32, "Largest score of a head in training, by absolute value", "title")
    x = 24
    for i, width in enumerate(widths):
        svg.line(f"line width{i}", x, 56, x + 22, 56)
        svg.text(x + 29, 60, f"{width:,} channels", "name")
        x += 140
    svg.line("line ink", 24, 80, 46, 80)
    svg.text(53, 84, "not rescaled", "name")
    svg.line("line ink rescaled", 164, 80, 186, 80)
    svg.text(193, 84, f"--rescale {rescale}", "name")

    for row, rate in enumerate(rates):
        for column, mixer in enumerate(("leap", "dot")):
            left, top = LEFT + column * (PANEL + BETWEEN), TOP + row * (HEIGHT + BELOW)
            bottom = top + HEIGHT

            def place(step, score):
                part = math.log(score / levels[0]) / math.log(levels[-1] / levels[0])
                return left + PANEL * step / steps, bottom - HEIGHT * part

            svg.text(left, top - 12, f"{mixer}, learning rate {float(rate):g}", "name")
            for level in levels:
                y = place(0, level)[1]
                svg.line("axis" if level == levels[0] else "grid", left, y, left + PANEL, y)
                svg.text(left - 8, y + 4, f"{level:,g}", anchor="end")
            for step in range(0, steps + 1, 100):
                x = place(step, levels[0])[0]
                svg.line("axis", x, bottom, x, bottom + 4)
                svg.text(x, bottom + 19, f"{step}", anchor="middle")
            svg.text(left + PANEL / 2, bottom + 38, "step", anchor="middle")
            for i, width in enumerate(widths):
                for c in (0, rescale):
                    series = found[mixer, rate, width, c]
                    svg.curve(f"line width{i}" + (" rescaled" if c else ""),
                              [place(point["step"], point["score"]) for point in series])

    height = TOP + len(rates) * (HEIGHT + BELOW) - 20
    ends = "; ".join(
        f"{mixer}, learning rate {float(rate):g}, {width:,} channels: {found[mixer, rate, width, 0][-1]['score']:.1f}, "
        f"rescaled {found[mixer, rate, width, rescale][-1]['score']:.1f}"
        for rate in rates for mixer in ("leap", "dot") for width in widths)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="scores-title scores-desc">\n'
        '<title id="scores-title">Largest score of a head in training</title>\n'
        f'<desc id="scores-desc">Largest absolute score over {steps} steps, at the end: {ends}.</desc>\n'
        f'{STYLE}<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>\n{"".join(svg.parts)}</svg>\n')
