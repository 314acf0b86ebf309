"""Who sees whom in the patterns of attention."""

from collections.abc import Iterator
from typing import Callable

from pictures.picture import Constant, Picture
from svg import SMALL, Drawing

WIDTH = 360
C, STRIDE, SUMMARY = 64, 8, 2
CELL, LEFT, TOP = 5, 28, 34  # of a picture of C x C cells


def strided(i: int, j: int) -> str:
    """Which part of the pattern a pair is in: a, b, or none."""
    if j > i:
        return ""
    return "a" if i - j < STRIDE else "b" if (i - j) % STRIDE == 0 else ""


def fixed(i: int, j: int) -> str:
    if j > i:
        return ""
    return "a" if i // STRIDE == j // STRIDE else "b" if j % STRIDE >= STRIDE - SUMMARY else ""


def runs(part: Callable[[int, int], str]) -> Iterator[tuple[int, int, int, str]]:
    """Row, first column, columns and part of pairs that stand side by side."""
    for i in range(C):
        j = 0
        while j < C:
            end = j + 1
            while end < C and part(i, end) == part(i, j):
                end += 1
            if part(i, j):
                yield i, j, end - j, part(i, j)
            j = end


def paint(part: Callable[[int, int], str], labels: tuple[str, str]) -> Callable[[Drawing], None]:
    def painted(d: Drawing) -> None:
        size = C * CELL
        d.text(LEFT + size / 2, 12, "keys")
        for place in range(0, C + 1, STRIDE):
            d.text(LEFT + place * CELL, TOP - 6, str(place), SMALL, fill="faint")
            d.text(LEFT - 5, TOP + place * CELL + 4, str(place), SMALL, "end", "faint")
        d.rectangle(LEFT, TOP, size, size, "paper")
        for i, j, columns, fill in runs(part):
            d.rectangle(LEFT + j * CELL, TOP + i * CELL, columns * CELL, CELL, fill, "none")
        for place in range(STRIDE, C, STRIDE):
            d.line([(LEFT + place * CELL, TOP), (LEFT + place * CELL, TOP + size)], "rule", 0.5)
            d.line([(LEFT, TOP + place * CELL), (LEFT + size, TOP + place * CELL)], "rule", 0.5)
        y = TOP + 22
        for fill, label in zip("ab", labels):
            d.rectangle(LEFT + size - 138, y, 12, 12, fill)
            d.text(LEFT + size - 120, y + 11, label, SMALL, "start")
            y += 20

    return painted


def pairs(part: Callable[[int, int], str]) -> int:
    return sum(bool(part(i, j)) for i in range(C) for j in range(C))


PATTERN = "src/blocks/parts/pattern.hpp"
PICTURES = [
    Picture(
        name="sparse-strided",
        page="docs/sparse",
        after="Who sees whom",
        title="The strided pattern: who sees whom",
        description=(
            f"{C} queries down, {C} keys across. A band of {STRIDE} along the diagonal, and beside it lines parallel to it, "
            f"{STRIDE} apart."
        ),
        caption=(
            f"Strided by {STRIDE}. {pairs(strided)} of the {C * (C + 1) // 2} pairs that are not behind: the window, and "
            f"lines {STRIDE} apart, each cell of which belongs to the residue class of its query."
        ),
        width=WIDTH,
        height=TOP + C * CELL + 8,
        paint=paint(strided, (f"the last {STRIDE}", f"every {STRIDE}th")),
        constants=(
            Constant(PATTERN, r"const bool first = form == Form::strided \? (c - s < stride) :", "c - s < stride"),
            Constant(PATTERN, r"const bool second = form == Form::strided \? (\(c - s\) % stride == 0) :", "(c - s) % stride == 0"),
        ),
    ),
    Picture(
        name="sparse-fixed",
        page="docs/sparse",
        after="Who sees whom",
        title="The fixed pattern: who sees whom",
        description=(
            f"{C} queries down, {C} keys across. Triangles of {STRIDE} positions along the diagonal, and below each "
            f"{SUMMARY} columns that go on to the last query."
        ),
        caption=(
            f"Fixed, in blocks of {STRIDE} with {SUMMARY} of summary. {pairs(fixed)} pairs: every block by itself, and the "
            "columns of its summary, which all later blocks see."
        ),
        width=WIDTH,
        height=TOP + C * CELL + 8,
        paint=paint(fixed, ("its own block", "ends of those before")),
        constants=(
            Constant(PATTERN, r"c - s < stride : (c / stride == s / stride);", "c / stride == s / stride"),
            Constant(PATTERN, r"% stride == 0 : (s % stride >= stride - summary);", "s % stride >= stride - summary"),
        ),
    ),
]
