"""Pairs of channels as points that are rotated by their position: products depend only on the distance."""

from math import atan2, cos, degrees, hypot, sin

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing, Point, decimal

WIDTH = 360
BASE, K, PAIR = "10000.0", 16, 1  # base, channels of a head, and the rotated pair
QUERY, KEY = (10.0, 5.0), (5.0, 10.0)  # the key: input of the worked example
PLACES = ((6, 2), (8, 4))  # positions of query and key, with the same distance
PAIRS, POSITIONS = 4, 9  # size of the figure with hands
RADIUS, TOP = 66, 34


def angle(position: int, pair: int) -> float:
    return position * float(BASE) ** (-2 * pair / K)


def turned(x: Point, by: float) -> Point:
    return cos(by) * x[0] - sin(by) * x[1], sin(by) * x[0] + cos(by) * x[1]


def product(query: int, key: int) -> float:
    """Term of the pair in the score of a query and a key at these positions."""
    q, k = turned(QUERY, angle(query, PAIR)), turned(KEY, angle(key, PAIR))
    return q[0] * k[0] + q[1] * k[1]


def arc(d: Drawing, centre: Point, radius: float, start: float, end: float, ink: str) -> None:
    steps = [start + (end - start) * i / 24 for i in range(25)]
    d.arrow([(centre[0] + radius * cos(a), centre[1] - radius * sin(a)) for a in steps], ink)


def paint_places(d: Drawing, left: float, query: int, key: int) -> None:
    """One query and one key, before and after rotation, and the angle between them."""
    centre, unit = (left + RADIUS, TOP + RADIUS), RADIUS / hypot(*KEY)

    def at(x: Point) -> Point:
        return centre[0] + unit * x[0], centre[1] - unit * x[1]

    pairs = [(QUERY, query, "forward", 0.62), (KEY, key, "ink", 0.36)]
    first, last = (atan2(x[1], x[0]) + angle(position, PAIR) for x, position, *_ in pairs[::-1])
    rim = [turned((RADIUS / unit, 0), first + (last - first) * i / 24) for i in range(25)]
    d.circle(*centre, RADIUS, "panel", "rule")
    d.polygon([centre, *map(at, rim)], "mark")
    for x, position, ink, part in pairs:
        start = atan2(x[1], x[0])
        d.line([centre, at(x)], ink, dashed=True)
        arc(d, centre, part * RADIUS, start, start + angle(position, PAIR), ink)
        end = turned(x, angle(position, PAIR))
        d.arrow([centre, at(end)], ink, THICK)
    d.text(centre[0], 14, f"query at {query}, key at {key}")
    d.text(centre[0], TOP + 2 * RADIUS + 22, f"product {decimal(product(query, key))}", bold=True)


def paint_hands(d: Drawing, top: float) -> None:
    """The angle of each pair at each position."""
    radius, left, column, row = 12, 92, 31, 32
    d.line([(4, top - 12), (WIDTH - 4, top - 12)], "rule")
    d.text(left - 20, top + 10, "position", SMALL, "end", "faint")
    for position in range(POSITIONS):
        d.text(left + position * column, top + 10, str(position), SMALL, fill="faint")
    for pair in range(PAIRS):
        y = top + 34 + pair * row
        d.text(left - 20, y + 4, f"pair {pair}, {degrees(angle(1, pair)):.0f}°", SMALL, "end")
        for position in range(POSITIONS):
            x, a = left + position * column, angle(position, pair)
            d.circle(x, y, radius, "mark" if pair == PAIR and position in sum(PLACES, ()) else "paper", "rule")
            d.line([(x, y), (x + radius * cos(a), y - radius * sin(a))], "ink", THICK)


def paint(d: Drawing) -> None:
    for left, places in zip((22, WIDTH - 22 - 2 * RADIUS), PLACES):
        paint_places(d, left, *places)
    paint_hands(d, 220)


PICTURES = [
    Picture(
        name="rotary-turn",
        page="layers/rotary",
        after="Forward",
        title="A query and a key, rotated by their positions",
        description=(
            f"A pair of channels of a query and of a key as arrows, rotated by {degrees(angle(1, PAIR)):.0f} degrees per "
            f"position. With the query at {PLACES[0][0]} and the key at {PLACES[0][1]}, and with both "
            f"{PLACES[1][1] - PLACES[0][1]} positions later, the angle between them is the same, and so is their product, "
            f"{decimal(product(*PLACES[0]))}. Below, the angles of the first {PAIRS} pairs of a head of {K} channels at "
            f"positions 0 to {POSITIONS - 1}: the first pair turns by {degrees(angle(1, 0)):.0f} degrees per position, and "
            "each further pair turns by less."
        ),
        caption=(
            f"Above: pair {PAIR} of a query (blue) and of a key, dashed before the rotation. If both positions grow by the "
            "same number, both angles grow, and the angle between the arrows stays the same. Below: the angles of the first "
            f"{PAIRS} pairs of K = {K} channels at each position; the pair shown above is marked."
        ),
        width=WIDTH,
        height=374,
        paint=paint,
        constants=(
            Constant(
                "src/blocks/parts/positions.hpp",
                r"static_cast<double>\(c\) \* std::pow\(([\d.]+), -2\.0 \* static_cast<double>\(i\) / ",
                BASE,
            ),
            Constant(
                "extras/positions/rotary.md", r"\n\| in \| (\d+ \| \d+) \|", " | ".join(f"{value:g}" for value in KEY)
            ),
            Constant(
                "extras/positions/rotary_plain.cpp",
                r"out\(b, c, n, k\) = ([^;]+); +// \(rotary\.1\)",
                "cosine * first - sine * second",
            ),
        ),
    )
]
