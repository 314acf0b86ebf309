"""A sequence in chunks: the states that the forward pass keeps, and the gradients."""

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing

WIDTH = 360
S, CHUNKS = 4, 3  # positions per chunk, number of chunks
J, W = 4, 6  # taps of a convolution, window size
CELL, LEFT, GAP, HEIGHT = 20, 94, 10, 18
SCHEDULE, PASTS = 26, 300  # upper edges of the two parts


def left_of(position: int) -> float:
    return LEFT + position * CELL + position // S * GAP


def border(j: int) -> float:
    """Height between chunk j and the next chunk."""
    return left_of((j + 1) * S) - GAP / 2


def schedule() -> list[tuple[int, bool]]:
    """The chunks in order; true: the chunk is also differentiated."""
    return [(j, False) for j in range(CHUNKS - 1)] + [(j, True) for j in reversed(range(CHUNKS))]


def rows() -> list[tuple[int, str, float]]:
    """Chunk, direction and upper edge of every pass over a chunk."""
    passes, y = [], SCHEDULE
    for j, both in schedule():
        for direction in ("forward", "backward")[: 1 + both]:
            passes.append((j, direction, y))
            y += HEIGHT + 4
        y += 12
    return passes


def paint_schedule(d: Drawing) -> None:
    passes = rows()
    for j in range(CHUNKS):
        d.text(left_of(j * S) + S * CELL / 2, 14, f"chunk {j}")
    for time, (j, direction, y) in enumerate(passes):
        again = direction == "forward" and j in [other for other, name, _ in passes[:time] if name == direction]
        d.text(LEFT - 8, y + 13, direction + (" again" if again else ""), SMALL, "end", direction)
        d.cells(left_of(j * S), y, CELL, HEIGHT, [""] * S, ["a" if direction == "forward" else "b"] * S)
        start, end = left_of(j * S), left_of(j * S) + S * CELL
        d.arrow([(start, y + HEIGHT / 2), (end, y + HEIGHT / 2)][:: 1 if direction == "forward" else -1], direction)
    for j in range(CHUNKS - 1):
        x = border(j)
        # The state leaves chunk j when the chunk is first computed; every computation of the next chunk reads it.
        leaves = [y for chunk, direction, y in passes if (chunk, direction) == (j, "forward")][0]
        read = [y for chunk, direction, y in passes if (chunk, direction) == (j + 1, "forward")]
        kept = [y + HEIGHT / 2 for y in (leaves, *read)]
        backward = [y + HEIGHT / 2 for chunk, direction, y in passes if direction == "backward" and chunk in (j, j + 1)]
        d.line([(x, kept[0]), (x, kept[-1])], "forward", THICK)
        for y in kept:
            d.circle(x, y, 3, "forward", "forward")
        d.arrow([(x, backward[0]), (x, backward[1])], "backward", THICK)


def pasts() -> list[tuple[str, range, str]]:
    """The input state of the last chunk per layer: its positions and their content."""
    first = (CHUNKS - 1) * S
    return [
        (f"kernel {J}", range(first - (J - 1), first), ""),
        (f"window {W}", range(first - (W - 1), first), ""),
        ("global", range(first - 1, first), "ζ"),
        ("attention", range(first), ""),
    ]


def paint_pasts(d: Drawing) -> None:
    d.line([(4, PASTS - 18), (WIDTH - 4, PASTS - 18)], "rule")
    d.text(4, PASTS + 4, f"Input state of chunk {CHUNKS - 1}", anchor="start", bold=True)
    y = PASTS + 16
    for name, positions, says in pasts():
        d.text(LEFT - 8, y + 13, name, SMALL, "end")
        for first in range(0, CHUNKS * S, S):
            own = range(first, first + S)
            fills = ["a" if first == (CHUNKS - 1) * S else "mark" if c in positions else "paper" for c in own]
            d.cells(left_of(first), y, CELL, HEIGHT, [says * (c in positions) for c in own], fills)
        y += HEIGHT + 8


def paint(d: Drawing) -> None:
    paint_schedule(d)
    paint_pasts(d)


PICTURES = [
    Picture(
        name="chunks-schedule",
        page="docs/chunks",
        after="The schedule",
        title="A sequence in chunks, forward and backward",
        description=(
            f"A sequence of {CHUNKS} chunks of {S} positions; time goes down. Chunks "
            + " and ".join(str(j) for j, both in schedule() if not both)
            + " are computed forward, and the state after each is kept. Then follow chunks "
            + ", ".join(str(j) for j, both in schedule() if both)
            + ": each is computed forward again, from the kept state, then backward, and passes a gradient to the previous "
            f"chunk. Below, the input state of the last chunk: for a convolution of {J} taps the last {J - 1} rows, for a "
            f"window of {W} the last {W - 1} positions, for a pooling of all positions one position, for attention the keys "
            "and values of all positions."
        ),
        caption=(
            "Time goes down. The state at a border is kept (blue line) until the next chunk has been computed with its loss; "
            "its gradient (red) goes to the previous chunk. Below, in yellow, the input state: of a convolution; of a pooling "
            f"with a window, which here spans two chunks of {S}; of a pooling without a window, where one position with the "
            "logit ζ replaces all earlier positions; and of attention."
        ),
        width=WIDTH,
        height=PASTS + 124,
        paint=paint,
        constants=(
            Constant("extras/chunks/chunks.hpp", r"\n    for \(Index j = 0; (j \+ 1 < J); \+\+j\) \{", "j + 1 < J"),
            Constant("extras/chunks/chunks.hpp", r"for \(Index j = J; (j-- > 0);\) \{", "j-- > 0"),
            Constant("src/blocks/conv.hpp", r"past_\(layout, config\.conv_kernel (- 1),", "- 1"),
            Constant(
                "extras/chunks/pooling_past.hpp",
                r"most_ = (global_ \? 1 : shape\.window - 1);",
                "global_ ? 1 : shape.window - 1",
            ),
        ),
    )
]
