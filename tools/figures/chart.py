"""Charts of the scripts in tools/: dark lines on a light background or the reverse, as in the pictures of the programs
(src/pictures)."""

_STYLE = """<style>
text{{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#59636e}}
.paper{{fill:#ffffff}}
.title{{font-size:15px;font-weight:600;fill:#1f2328}}
.name{{fill:#1f2328}}
.grid{{stroke:#e4e8ec;stroke-width:1}}
.axis{{stroke:#9aa4af;stroke-width:1}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}}
{light}@media (prefers-color-scheme:dark){{
text{{fill:#9aa4af}}
.paper{{fill:#0f141a}}
.title,.name{{fill:#eef2f6}}
.grid{{stroke:#232a32}}
.axis{{stroke:#57616c}}
{dark}}}
</style>
"""


def ticks(low, high, digits=(1, 2, 5)):
    """`digits` times powers of ten, from the last value <= `low` to the first value >= `high`."""
    steps = [digit * 10.0**power for power in range(-6, 13) for digit in digits]
    first = max(i for i, step in enumerate(steps) if step <= low)
    last = min(i for i, step in enumerate(steps) if step >= high)
    return steps[first : last + 1]


class Chart:
    def __init__(self):
        self.parts = []

    def line(self, style, x1, y1, x2, y2):
        self.parts.append(f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n')

    def text(self, x, y, content, style="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{content}</text>\n')

    def curve(self, style, points):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{style}" points="{path}"/>\n')

    def file(self, name, width, height, title, description, light, dark):
        """The complete SVG file. light and dark: additional style rules, one rule per line."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-labelledby="{name}-title {name}-desc">\n'
            f'<title id="{name}-title">{title}</title>\n'
            f'<desc id="{name}-desc">{description}</desc>\n'
            f'{_STYLE.format(light=light, dark=dark)}<rect class="paper" width="{width}" height="{height}" rx="8"/>\n'
            f'{"".join(self.parts)}</svg>\n')
