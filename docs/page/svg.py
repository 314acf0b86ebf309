"""Drawing of the pictures: boxes, labels, arrows, rows of cells, braces.

A picture has only the page's colour variables, so that it follows light and dark, and no script. The browser chooses
the font, so text is measured with the widths of a wide font. Text that does not fit its box is an error here, before a
reader sees it. Coordinates are rounded when they are printed: equal pictures have equal bytes.
"""

import math
import re
import xml.etree.ElementTree as xml
from contextlib import contextmanager
from html import escape
from typing import Iterator, NamedTuple, Sequence

VARIABLES = frozenset("paper ink faint rule panel mark link forward backward a b c d".split())

# Sizes of text in pixels: notes and indices, plain labels, names of arrays.
SMALL, TEXT, NAME = 11, 12, 14
LINE = 1.25  # width of every line, except emphasised lines
THICK = 2
HEAD = 7  # length of an arrow's head

Point = tuple[float, float]


def number(x: float) -> str:
    """A coordinate with at most two decimals, and without trailing zeros."""
    text = f"{x:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def decimal(value: float, digits: int = 2) -> str:
    """A number for readers, with a minus sign, in the format of the script that moves pictures."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def colour(variable: str) -> str:
    if variable == "none":
        return variable
    if variable not in VARIABLES:
        raise ValueError(f"no colour of the page: {variable}")
    return f"var(--{variable})"


# ---- Text ----

# Widths for size 1: those of DejaVu Sans, rounded up. Few fonts of readers are wider.
_WIDTHS = {
    character: width
    for characters, width in (
        ("ijlI'|.,:; ", 0.34),
        ("frtJ()[]{}/-", 0.43),
        ("csxyzkLTF_", 0.6),
        ("mwMW%", 0.99),
        ("+=−<>≤≥×±·→←√∞", 0.84),
        ("ABCDEGHKNOPQRSUVXYZ", 0.79),
    )
    for character in characters
}
_OTHER_WIDTH = 0.65
_BOLD = 1.12  # ratio of bold to normal width


class Run(NamedTuple):
    """A piece of a label in one style. Level: -1 an index, 1 an exponent."""

    text: str
    italic: bool
    level: int


_MARKUP = re.compile(r"_\{(?P<low>[^}]*)\}|\^\{(?P<high>[^}]*)\}|\*(?P<italic>[^*]+)\*|(?P<plain>[^_^*]+|[_^*])")


def runs_of(label: str) -> list[Run]:
    """The pieces of a label. *x* is italic, _{...} an index, ^{...} an exponent; other text has no markup."""
    runs = []
    for match in _MARKUP.finditer(label):
        level = {"low": -1, "high": 1}.get(match.lastgroup or "", 0)
        for part in _MARKUP.finditer(match.group(match.lastgroup)) if level else [match]:
            runs.append(Run(part.group(part.lastgroup), part.lastgroup == "italic", level))
    return runs


def index_size(size: float) -> float:
    """Size of an index: smaller than its name, but never too small to read."""
    return max(SMALL, 0.78 * size)


def width_of_string(text: str, size: float, bold: bool = False) -> float:
    return size * sum(_WIDTHS.get(character, _OTHER_WIDTH) for character in text) * (_BOLD if bold else 1)


def text_width(label: str, size: float = TEXT, bold: bool = False) -> float:
    """Largest width of a label without its markup."""
    return sum(width_of_string(run.text, index_size(size) if run.level else size, bold) for run in runs_of(label))


class TextBox(NamedTuple):
    """Estimated box of a text."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "TextBox") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def text_boxes(source: str) -> list[TextBox]:
    """The boxes of all texts of a drawing, from its source alone; for tests."""
    root = xml.fromstring(source)
    boxes = []
    for element in root.iter("text"):
        size = float(element.get("font-size", TEXT))
        bold = element.get("font-weight") is not None
        width = width_of_string(element.text or "", size, bold)
        for part in element:
            width += width_of_string(part.text or "", float(part.get("font-size", size)), bold)
        shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[element.get("text-anchor", "middle")]
        left = float(element.get("x", 0)) - shift * width
        baseline = float(element.get("y", 0))
        top, bottom = baseline - 0.76 * size, baseline + 0.22 * size
        boxes.append(TextBox("".join(element.itertext()), left, top, left + width, bottom))
    return boxes


# ---- Drawing ----


class Drawing:
    """A picture that is being drawn. Coordinates are pixels at natural size, from the upper left corner."""

    def __init__(self, name: str, width: float, height: float):
        self.name, self.width, self.height = name, width, height
        self.addresses: set[str] = set()  # link targets
        self._parts: list[str] = []

    def render(self, title: str, description: str, has_links: bool) -> str:
        """The whole element. With links its role is a group: screen readers do not reach links in an image."""
        title_id, description_id = f"{self.name}-title", f"{self.name}-description"
        head = (
            f'<svg role="{"group" if has_links else "img"}" aria-labelledby="{title_id} {description_id}" '
            f'viewBox="0 0 {number(self.width)} {number(self.height)}" width="{number(self.width)}" '
            f'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="{TEXT}" '
            f'text-anchor="middle" fill="var(--ink)">\n'
            f'<title id="{title_id}">{escape(title)}</title>\n'
            f'<desc id="{description_id}">{escape(description)}</desc>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"

    def add(self, markup: str) -> None:
        self._parts.append(markup)

    @contextmanager
    def link(self, address: str, title: str) -> Iterator[None]:
        """Makes a link of everything drawn inside. The title is shown to pointers and read by screen readers."""
        self.addresses.add(address)
        self.add(f'<a href="{escape(address)}"><title>{escape(title)}</title>')
        yield
        self.add("</a>")

    # -- Shapes --

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "panel",
        stroke: str = "rule",
        line: float = LINE,
        radius: float = 0,
        dashed: bool = False,
    ) -> None:
        self.add(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
            + (f' rx="{number(radius)}"' if radius else "")
            + f' fill="{colour(fill)}"'
            + _stroke(stroke, line, dashed)
            + "/>"
        )

    def circle(self, x: float, y: float, radius: float, fill: str = "paper", stroke: str = "ink") -> None:
        self.add(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{colour(fill)}"'
            + _stroke(stroke, LINE, False)
            + "/>"
        )

    def polygon(self, points: Sequence[Point], fill: str, stroke: str = "none") -> None:
        self.add(f'<path d="{_outline(points)}Z" fill="{colour(fill)}"' + _stroke(stroke, LINE, False) + "/>")

    def line(
        self, points: Sequence[Point], stroke: str = "ink", line: float = LINE, dashed: bool = False, radius: float = 0
    ) -> None:
        """A line through all points; corners are rounded by `radius`."""
        outline = _rounded(points, radius) if radius else _outline(points)
        self.add(f'<path d="{outline}" fill="none"' + _stroke(stroke, line, dashed) + "/>")

    def arrow(
        self,
        points: Sequence[Point],
        stroke: str = "ink",
        line: float = LINE,
        dashed: bool = False,
        radius: float = 0,
        both: bool = False,
    ) -> None:
        """The same with a head at its end, or at both ends."""
        points = list(points)
        ends = [(points[-2], points[-1])] + ([(points[1], points[0])] if both else [])
        body = points[:]
        body[-1] = _towards(points[-1], points[-2], HEAD - 1)
        if both:
            body[0] = _towards(points[0], points[1], HEAD - 1)
        self.line(body, stroke, line, dashed, radius)
        for start, tip in ends:
            base = _towards(tip, start, HEAD)
            across = ((tip[1] - base[1]) / HEAD * 3.25, (base[0] - tip[0]) / HEAD * 3.25)
            left, right = (base[0] + across[0], base[1] + across[1]), (base[0] - across[0], base[1] - across[1])
            self.polygon([tip, left, right], fill=stroke)

    def pair(self, points: Sequence[Point], gap: float = 5, dashed: bool = False) -> None:
        """Two arrows along a path of horizontal and vertical pieces: values forward, their gradient backward."""
        radius = 6
        self.arrow(_beside(points, -gap), "forward", dashed=dashed, radius=radius)
        self.arrow(_beside(points, gap)[::-1], "backward", dashed=dashed, radius=radius)

    def cells(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        labels: Sequence[str],
        fills: Sequence[str],
        size: float = SMALL,
        stroke: str = "rule",
        ink: str = "ink",
    ) -> None:
        """Elements of an array, side by side; neighbours of the same colour are one shape."""
        first = 0
        for i, fill in enumerate(fills):
            if i + 1 == len(fills) or fills[i + 1] != fill:
                self.rectangle(x + first * width, y, (i + 1 - first) * width, height, fill, "none")
                first = i + 1
        self.grid(x, y, width, height, len(fills), 1, stroke)
        for i, label in enumerate(labels):
            if label:
                self.centred(x + (i + 0.5) * width, y + height / 2, label, size, room=width - 2, fill=ink)

    def grid(
        self, x: float, y: float, width: float, height: float, columns: int, rows: int, stroke: str = "rule"
    ) -> None:
        """The lines of a table, as one shape."""
        across, down = number(columns * width), number(rows * height)
        lines = [f"M{_at((x, y + row * height))}h{across}" for row in range(rows + 1)]
        lines += [f"M{_at((x + column * width, y))}v{down}" for column in range(columns + 1)]
        self.add(f'<path d="{"".join(lines)}" fill="none"' + _stroke(stroke, LINE, False, square=True) + "/>")

    def brace(self, left: float, right: float, y: float, depth: float = 6, stroke: str = "faint") -> None:
        """A square bracket along a row; with a depth below 0 it opens downwards."""
        self.line([(left, y - depth), (left, y), (right, y), (right, y - depth)], stroke)

    # -- Text --

    def text(
        self,
        x: float,
        y: float,
        label: str,
        size: float = TEXT,
        anchor: str = "middle",
        fill: str = "ink",
        bold: bool = False,
        halo: bool = False,
    ) -> None:
        """A label on its baseline. A halo keeps it readable over a line."""
        if not label or size < SMALL:
            raise ValueError(f"{self.name}: '{label}' cannot be read")
        attributes = "" if size == TEXT else f' font-size="{number(size)}"'
        attributes += "" if anchor == "middle" else f' text-anchor="{anchor}"'
        attributes += "" if fill == "ink" else f' fill="{colour(fill)}"'
        attributes += ' font-weight="600"' if bold else ""
        attributes += ' stroke="var(--paper)" stroke-width="4" paint-order="stroke"' if halo else ""
        self.add(f'<text x="{number(x)}" y="{number(y)}"{attributes}>{_spans(label, size)}</text>')

    def centred(
        self, x: float, y: float, label: str, size: float = TEXT, room: float | None = None, **style: object
    ) -> None:
        """A label with its middle at (x, y). An error if it is wider than `room`."""
        if room is not None and text_width(label, size, bool(style.get("bold"))) > room:
            raise ValueError(f"{self.name}: '{label}' does not fit into {number(room)} pixels")
        self.text(x, y + 0.35 * size, label, size, **style)

    def lines(self, x: float, y: float, labels: Sequence[str], leading: float = 16, **style: object) -> None:
        """Several lines of text; y is the baseline of the first line."""
        for i, label in enumerate(labels):
            self.text(x, y + i * leading, label, **style)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        label: str,
        size: float = TEXT,
        fill: str = "panel",
        stroke: str = "rule",
        ink: str = "ink",
        dashed: bool = False,
        bold: bool = False,
        radius: float = 4,
    ) -> None:
        """A rectangle around its label."""
        self.rectangle(x, y, width, height, fill, stroke, radius=radius, dashed=dashed)
        self.centred(x + width / 2, y + height / 2, label, size, room=width - 6, fill=ink, bold=bold)


def _stroke(stroke: str, line: float, dashed: bool, square: bool = False) -> str:
    if stroke == "none":
        return ""
    width = "" if line == 1 else f' stroke-width="{number(line)}"'
    ends = ' stroke-linecap="square"' if square else ""
    return f' stroke="{colour(stroke)}"{width}{ends}' + (' stroke-dasharray="4 3"' if dashed else "")


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def _outline(points: Sequence[Point]) -> str:
    return "M" + "L".join(_at(point) for point in points)


def _towards(start: Point, end: Point, distance: float) -> Point:
    """The point at this distance from `start` in the direction of `end`."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    part = distance / ((dx * dx + dy * dy) ** 0.5)
    return start[0] + part * dx, start[1] + part * dy


def _rounded(points: Sequence[Point], radius: float) -> str:
    path = "M" + _at(points[0])
    for before, corner, after in zip(points, points[1:], points[2:]):
        path += f"L{_at(_towards(corner, before, radius))}Q{_at(corner)} {_at(_towards(corner, after, radius))}"
    return path + "L" + _at(points[-1])


def _beside(points: Sequence[Point], distance: float) -> list[Point]:
    """A path parallel to a path of horizontal and vertical pieces; a negative distance is to the left of a downward
    path."""
    sides = []
    for (x, y), (next_x, next_y) in zip(points, points[1:]):
        length = abs(next_x - x) + abs(next_y - y)
        sides.append(((next_y - y) / length * distance, (x - next_x) / length * distance))
    beside = [(points[0][0] + sides[0][0], points[0][1] + sides[0][1])]
    for point, before, after in zip(points[1:], sides, sides[1:]):
        beside.append((point[0] + before[0] + after[0], point[1] + before[1] + after[1]))
    beside.append((points[-1][0] + sides[-1][0], points[-1][1] + sides[-1][1]))
    return beside


def _spans(label: str, size: float) -> str:
    """A label's pieces as elements. Each index moves the baseline; the next piece moves it back."""
    runs, spans, shift = runs_of(label), [], 0.0
    low, small = 0.25 * size, number(index_size(size))
    for run in runs:
        wanted = -run.level * low
        attributes = "" if wanted == shift else f' dy="{number(wanted - shift)}"'
        attributes += f' font-size="{small}"' if run.level and small != number(size) else ""
        attributes += ' font-style="italic"' if run.italic else ""
        shift = wanted
        text = escape(run.text, quote=False)
        spans.append(f"<tspan{attributes}>{text}</tspan>" if attributes else text)
    # Text searches lose plain text between elements, so a label consists of plain text only or of elements only.
    if any(span.startswith("<") for span in spans):
        spans = [span if span.startswith("<") else f"<tspan>{span}</tspan>" for span in spans]
    return "".join(spans)
