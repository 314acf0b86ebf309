"""The pairs that LSH attention selects in two rounds."""

import random

from pictures.pairs import C, HEIGHT, WIDTH, paint_pairs
from pictures.picture import Constant, Picture
from svg import Drawing

PIECE, K, R, ROUNDS = 8, 8, 4, 2  # positions of a piece, channels, rotated coordinates


def places() -> list[list[int]]:
    """Place of each position in the sorted order of every round. Neighbouring rows are similar, as in a text."""
    numbers = random.Random(1)
    rows = [[numbers.gauss(0, 1) for _ in range(K)]]
    while len(rows) < C:
        rows.append([0.7 * x + 0.7 * numbers.gauss(0, 1) for x in rows[-1]])
    orders = []
    for _ in range(ROUNDS):
        rotations = [[numbers.gauss(0, 1) for _ in range(K)] for _ in range(R)]
        rotated = [[sum(x * y for x, y in zip(row, to)) for to in rotations] for row in rows]
        buckets = [max(range(2 * R), key=[*row, *(-x for x in row)].__getitem__) for row in rotated]
        order = sorted(range(C), key=lambda c: (buckets[c], c))
        orders.append([order.index(c) for c in range(C)])
    return orders


PLACES = places()


def meets(c: int, s: int) -> int:
    """Number of rounds in which query c attends to key s."""
    return sum(s < c and place[c] // PIECE - place[s] // PIECE in (0, 1) for place in PLACES)


def pairs(rounds: int) -> int:
    return sum(meets(c, s) == rounds for c in range(C) for s in range(c))


def paint(d: Drawing) -> None:
    paint_pairs(d, PIECE, lambda c, s: ("", "a", "b")[meets(c, s)], {"a": "selected in one round", "b": "in both"})


PICTURES = [
    Picture(
        name="lsh-attention-pairs",
        page="layers/lsh_attention",
        after="The selected pairs",
        title="Attention mask of LSH attention",
        description=(
            f"A square of {C} queries and {C} keys. The selected pairs are scattered below the diagonal, denser near it: "
            f"{pairs(1)} of {C * (C - 1) // 2} in one of two rounds and {pairs(2)} in both. No row of the mask is a window, "
            "and no row is complete."
        ),
        caption=(
            f"Selected pairs in {ROUNDS} rounds of {2 * R} buckets and pieces of {PIECE}, for rows that are similar to their "
            f"predecessors: {pairs(1)} of {C * (C - 1) // 2} pairs in one round (blue), {pairs(2)} in both (orange)."
        ),
        width=WIDTH,
        height=HEIGHT,
        paint=paint,
        constants=(
            Constant("extras/lsh/lsh_attention_cuda.cu", r"return \((apart == 0 \|\| apart == 1)\) &&", "apart == 0 || apart == 1"),
        ),
    ),
]
