"""Score tiles of a causal head, and the online softmax of one of its queries."""

from math import exp, sin

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing

WIDTH = 360
TILE = 64
TILES = 6
OWN = 3  # the marked tile of queries
QUERY = 230  # a query in this tile
FULL = TILES * (TILES - 1) // 2


def score(key: int) -> float:
    """Example scores; their values do not matter."""
    return 1.1 * sin(key / 17) + 0.7 * sin(key / 2.9) + key / 120 - 0.8


def running_softmax() -> list[tuple[float, float, float]]:
    """After each tile of keys: the factor on the old sum, the largest score so far, the sum so far."""
    states, most, total = [], float("-inf"), 0.0
    for first in range(0, QUERY + 1, TILE):
        scores = [score(key) for key in range(first, min(first + TILE, QUERY + 1))]
        new = max(most, *scores)
        shrink = exp(most - new)
        total = total * shrink + sum(exp(s - new) for s in scores)
        most = new
        states.append((shrink, most, total))
    return states


def paint_tiles(d: Drawing) -> None:
    cell, left, top = 32, 58, 42
    d.text(left + TILES * cell / 2, 14, "keys")
    for i in range(TILES + 1):
        d.text(left + i * cell, top - 8, str(i * TILE), SMALL, fill="faint")
    d.text(left - 8, top + 0.5 * cell, "queries", anchor="end")
    for row in range(TILES):
        for column in range(TILES):
            x, y = left + column * cell, top + row * cell
            d.rectangle(x, y, cell, cell, "a" if column < row else "paper")
            if column == row:
                d.polygon([(x, y), (x, y + cell), (x + cell, y + cell)], "b", "rule")
    y = top + OWN * cell
    d.rectangle(left, y, (OWN + 1) * cell, cell, "none", "ink", THICK)
    d.arrow([(left - 22, y + cell / 2), (left + (OWN + 0.8) * cell, y + cell / 2)], "ink", THICK)
    x = left + TILES * cell + 22
    kinds = (("a", FULL, "whole"), ("b", TILES, "diagonal"), ("paper", FULL, "skipped"))
    for i, (fill, count, label) in enumerate(kinds):
        y = top + 26 + 26 * i
        d.rectangle(x, y, 14, 14, fill)
        if fill == "b":
            d.rectangle(x, y, 14, 14, "paper")
            d.polygon([(x, y), (x, y + 14), (x + 14, y + 14)], "b", "rule")
        d.text(x + 20, y + 11, f"{count} {label}", SMALL, "start")


def paint_softmax(d: Drawing, top: float) -> None:
    left, width, base = 20, 80, top + 104
    d.text(left, top, f"the scores of query {QUERY}, and the largest so far", SMALL, "start", "faint")
    states = running_softmax()
    lowest, highest = min(map(score, range(QUERY + 1))), states[-1][1]
    scale = (base - top - 26) / (highest - lowest)  # pixels per unit of score

    def at(key: float, value: float) -> tuple[float, float]:
        return left + key * width / TILE, base - 8 - (value - lowest) * scale

    d.rectangle(left, top + 10, (QUERY + 1) * width / TILE, base - top - 10, "panel", "none")
    for tile in range(len(states) + 1):
        x = left + tile * width
        d.line([(x, top + 10), (x, base + 56)], "rule", 1)
        d.text(x, base + 70, str(tile * TILE), SMALL, fill="faint")
    d.line([at(key + 0.5, score(key)) for key in range(QUERY + 1)], "forward")
    before = None
    for tile, (shrink, most, total) in enumerate(states):
        (x, y), (end, _) = at(tile * TILE, most), at((tile + 1) * TILE, most)
        d.line([(x, y), (end, y)] if before is None else [(x, before), (x, y), (end, y)], "ink", THICK)
        before = y
        middle = left + (tile + 0.5) * width
        labels = [f"shrink {shrink:.2f}" if tile else "from −∞, 0", f"max {most:.2f}", f"sum {total:.2f}"]
        d.lines(middle, base + 16, [label.replace("-", "−") for label in labels], 16, size=SMALL)


def paint(d: Drawing) -> None:
    paint_tiles(d)
    paint_softmax(d, 268)


PICTURES = [
    Picture(
        name="attention-tiles",
        page="layers/attention",
        after="The online softmax",
        title="Score tiles of a causal head, with the online softmax",
        description=(
            f"{TILES} by {TILES} tiles of {TILE} queries by {TILE} keys. The {FULL} tiles below the diagonal are computed "
            f"completely, the {TILES} on it partly; the {FULL} above it are skipped. A tile of queries reads the "
            f"tiles of keys from left to right. Below, the scores of query {QUERY}. After every tile of keys, the largest "
            "score so far and the sum of exponentials relative to it are "
            + "; ".join(f"{most:.2f} and {total:.2f}" for _, most, total in running_softmax())
            + "."
        ),
        caption=(
            f"Scores of a causal head of {TILES * TILE} positions. If a tile raises the maximum of a query, the old sum "
            "is multiplied by shrink, the exponential of the old maximum minus the new maximum. The keys after query "
            f"{QUERY} are masked. The scores are an example; all other numbers are computed from them."
        ),
        width=WIDTH,
        height=446,
        paint=paint,
        constants=(
            Constant("cuda/attention_tiles.hpp", r"constexpr int tile = (\d+);", str(TILE)),
            Constant("cpu/attention_tiles.hpp", r"constexpr Index tile = (\d+);", str(TILE)),
        ),
    )
]
