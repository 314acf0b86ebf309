"""An attention mask as a square: queries down, keys across."""

from typing import Callable

from svg import SMALL, Drawing

WIDTH = 360
C, CELL, LEFT, TOP = 64, 5, 28, 34  # positions, size of a pair, left and upper edges
SIZE = C * CELL
HEIGHT = TOP + SIZE + 8


def paint_pairs(
    d: Drawing, step: int, part_of: Callable[[int, int], str], labels: dict[str, str], grid: bool = False
) -> None:
    """part_of(query, key): colour of a pair; empty if the pair is not drawn. Every `step` positions there are numbers
    and, with a grid, lines."""
    d.text(LEFT + SIZE / 2, 12, "keys")
    for place in range(0, C + 1, step):
        d.text(LEFT + place * CELL, TOP - 6, str(place), SMALL, fill="faint")
        d.text(LEFT - 5, TOP + place * CELL + 4, str(place), SMALL, "end", "faint")
    d.rectangle(LEFT, TOP, SIZE, SIZE, "paper")
    for query in range(C):
        begin = 0
        while begin < C:
            fill, end = part_of(query, begin), begin + 1
            while end < C and part_of(query, end) == fill:  # neighbours of the same colour are one rectangle
                end += 1
            if fill:
                d.rectangle(LEFT + begin * CELL, TOP + query * CELL, (end - begin) * CELL, CELL, fill, "none")
            begin = end
    for place in range(step, C, step) if grid else ():
        d.line([(LEFT + place * CELL, TOP), (LEFT + place * CELL, TOP + SIZE)], "rule", 0.5)
        d.line([(LEFT, TOP + place * CELL), (LEFT + SIZE, TOP + place * CELL)], "rule", 0.5)
    y = TOP + 22
    for fill, label in labels.items():
        d.rectangle(LEFT + SIZE - 138, y, 12, 12, fill)
        d.text(LEFT + SIZE - 120, y + 11, label, SMALL, "start")
        y += 20
