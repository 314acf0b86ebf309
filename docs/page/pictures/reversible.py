"""Two streams, forward and inverted: the reads of each block, and the saved arrays."""

from pictures.picture import Constant, Picture
from svg import SMALL, TEXT, THICK, Drawing

WIDTH = 360
BLOCKS = ("mixer", "ffn", "mixer", "ffn")  # two layers without a convolution
STEP, TOP = 52, 50  # distance of two blocks, and top of the first block
LANES = ((56, 140), (232, 316))  # columns of the two arrays, forward and backward
BOX = (44, 24)


def reads(i: int) -> int:
    """The array that block i reads: block 0 reads the input array, then the blocks alternate."""
    return (i + 1) % 2


def paint_way(d: Drawing, lanes: tuple[int, int], back: bool) -> None:
    bottom = TOP + STEP * len(BLOCKS)
    sign, stroke = ("−", "backward") if back else ("+", "forward")
    for lane in lanes:
        ends = [(lane, bottom + 6), (lane, TOP - 18)] if back else [(lane, TOP - 18), (lane, bottom + 6)]
        d.arrow(ends, stroke, THICK)
    for i, name in enumerate(BLOCKS):
        y = TOP + STEP * i + 8
        read, added = lanes[reads(i)], lanes[1 - reads(i)]
        middle = sum(lanes) / 2
        toward = 1 if added > read else -1
        d.arrow([(read, y + 12), (middle - toward * BOX[0] / 2, y + 12)], stroke)
        d.arrow([(middle + toward * BOX[0] / 2, y + 12), (added - toward * 9, y + 12)], stroke)
        d.box(middle - BOX[0] / 2, y, *BOX, name, SMALL, fill="mark" if back else "panel")
        d.circle(added, y + 12, 8, stroke=stroke)
        d.text(added, y + 16, sign, TEXT)


def paint(d: Drawing) -> None:
    d.text(sum(LANES[0]) / 2, 14, "forward", bold=True)
    d.text(sum(LANES[1]) / 2, 14, "backward: inverted", bold=True)
    paint_way(d, LANES[0], False)
    paint_way(d, LANES[1], True)
    bottom = TOP + STEP * len(BLOCKS) + 6
    for lanes in LANES:
        for lane in lanes:
            d.circle(lane, TOP - 20, 3, "ink")
    d.arrow([(LANES[0][1] + 12, bottom + 10), (LANES[1][0] - 12, bottom + 10)], "ink")
    d.text(WIDTH / 2, bottom + 30, "two streams; no other activation is kept", SMALL, fill="faint")


PICTURES = [
    Picture(
        name="reversible-streams",
        page="docs/reversible",
        after="Two streams",
        title="Two streams, forward and inverted",
        description=(
            "Two pictures of two vertical lines, the streams. On the left, from top to bottom: a mixer reads the right line "
            "and adds to the left one, a feed-forward block reads the left line and adds to the right one, for two layers. "
            "On the right, from bottom to top: each block reads the same line as before, and its result is subtracted from "
            "the other line, which restores the earlier values of both."
        ),
        caption=(
            "Two layers. A block does not change the line that it reads, so the backward pass can compute its result again "
            "and subtract it. The yellow boxes share one region of memory for saved activations."
        ),
        width=WIDTH,
        height=TOP + STEP * len(BLOCKS) + 44,
        paint=paint,
        constants=(
            Constant(
                "extras/reversible/reversible.hpp",
                r"return (i % 2 == 0 \? Streams\{other_bcd, in_bcd\} : Streams\{in_bcd, other_bcd\});",
                "i % 2 == 0 ? Streams{other_bcd, in_bcd} : Streams{in_bcd, other_bcd}",
            ),
        ),
    )
]
