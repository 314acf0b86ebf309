"""Attention masks of the sparse patterns."""

from typing import Callable

from pictures.pairs import C, HEIGHT, WIDTH, paint_pairs
from pictures.picture import Constant, Picture
from svg import Drawing

STRIDE, SUMMARY = 8, 2


def strided(i: int, j: int) -> str:
    """Part of the pattern that contains a pair: a, b, or none."""
    if j > i:
        return ""
    return "a" if i - j < STRIDE else "b" if (i - j) % STRIDE == 0 else ""


def fixed(i: int, j: int) -> str:
    if j > i:
        return ""
    return "a" if i // STRIDE == j // STRIDE else "b" if j % STRIDE >= STRIDE - SUMMARY else ""


def paint(part: Callable[[int, int], str], labels: tuple[str, str]) -> Callable[[Drawing], None]:
    def painted(d: Drawing) -> None:
        paint_pairs(d, STRIDE, part, dict(zip("ab", labels)), grid=True)

    return painted


def pairs(part: Callable[[int, int], str]) -> int:
    return sum(bool(part(i, j)) for i in range(C) for j in range(C))


PATTERN = "extras/sparse/pattern.hpp"
PICTURES = [
    Picture(
        name="sparse-strided",
        page="docs/sparse",
        after="The attention mask",
        title="Attention mask of the strided pattern",
        description=(
            f"Rows are {C} queries, columns {C} keys. The unmasked pairs are a band of {STRIDE} along the diagonal, and lines "
            f"parallel to it, {STRIDE} apart."
        ),
        caption=(
            f"Stride {STRIDE}: {pairs(strided)} of the {C * (C + 1) // 2} causal pairs. They are the window, and lines "
            f"{STRIDE} apart, whose keys have the same remainder modulo {STRIDE} as the query."
        ),
        width=WIDTH,
        height=HEIGHT,
        paint=paint(strided, (f"the last {STRIDE}", f"every {STRIDE}th")),
        constants=(
            Constant(PATTERN, r"const bool first = form == Form::strided \? (c - s < stride) :", "c - s < stride"),
            Constant(PATTERN, r"const bool second = form == Form::strided \? (\(c - s\) % stride == 0) :", "(c - s) % stride == 0"),
        ),
    ),
    Picture(
        name="sparse-fixed",
        page="docs/sparse",
        after="The attention mask",
        title="Attention mask of the fixed pattern",
        description=(
            f"Rows are {C} queries, columns {C} keys. The unmasked pairs are triangles of {STRIDE} positions along the diagonal, "
            f"and below each triangle {SUMMARY} columns down to the last query."
        ),
        caption=(
            f"Blocks of {STRIDE} with {SUMMARY} summary positions: {pairs(fixed)} pairs. They are the pairs within a block, "
            "and the summary columns, which all later blocks attend to."
        ),
        width=WIDTH,
        height=HEIGHT,
        paint=paint(fixed, ("its own block", "ends of earlier blocks")),
        constants=(
            Constant(PATTERN, r"c - s < stride : (c / stride == s / stride);", "c / stride == s / stride"),
            Constant(PATTERN, r"% stride == 0 : (s % stride >= stride - summary);", "s % stride >= stride - summary"),
        ),
    ),
]
