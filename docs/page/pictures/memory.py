"""Layout of arrays in memory: heads side by side, and queries, keys and values as slices of one row."""

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing

B, C, N, K = 2, 3, 2, 3  # sizes of the example
H = N * K
MARKED = (1, 2, 1, 1)  # b, c, n, k of the highlighted element
WIDTH = 360
CELL, HEIGHT = 36, 22
LEFT, TOP = 132, 66


def address(b: int, c: int, n: int, k: int) -> int:
    return ((b * C + c) * N + n) * K + k


def paint_array(d: Drawing) -> float:
    """The array (B, C, N, K), one row per position, with the offset of every element. Returns its lower edge."""
    for n in range(N):
        left = LEFT + n * K * CELL
        d.text(left + K * CELL / 2, 14, f"*n* = {n}")
        d.brace(left + 3, left + K * CELL - 3, 20, -5)
    for name, y, value in (("*k*", 41, lambda h: h % K), ("*h* = *n* *K* + *k*", 58, lambda h: h)):
        d.text(LEFT - 10, y, name, anchor="end")
        for h in range(H):
            d.text(LEFT + (h + 0.5) * CELL, y, str(value(h)), SMALL, fill="faint")
    for b in range(B):
        top = TOP + b * (C * HEIGHT + 6)
        d.line([(64, top + 3), (58, top + 3), (58, top + C * HEIGHT - 3), (64, top + C * HEIGHT - 3)], "faint")
        d.text(52, top + C * HEIGHT / 2 + 4, f"*b* = {b}", anchor="end")
        for c in range(C):
            y = top + c * HEIGHT
            places = [address(b, c, h // K, h % K) for h in range(H)]
            d.cells(LEFT, y, CELL, HEIGHT, [str(place) for place in places], ["ab"[h // K] for h in range(H)])
            d.text(LEFT - 10, y + 15, f"*c* = {c}", anchor="end")
    b, c, n, k = MARKED
    y = TOP + b * (C * HEIGHT + 6) + c * HEIGHT
    d.rectangle(LEFT + (n * K + k) * CELL, y, CELL, HEIGHT, "none", "ink", THICK)
    y += HEIGHT
    d.text(WIDTH / 2, y + 22, "place = ((*b* *C* + *c*) *N* + *n*) *K* + *k*")
    d.text(WIDTH / 2, y + 40, f"(({b} · {C} + {c}) · {N} + {n}) · {K} + {k} = {address(*MARKED)}")
    return y + 52


def paint_slice(d: Drawing, top: float) -> None:
    """Two neighbouring rows of queries, keys and values in memory."""
    left, cell = 18, 9
    part = H * cell
    d.line([(4, top), (WIDTH - 4, top)], "rule")
    y = top + 44
    for row, name in enumerate(("position *c*", "position *c* + 1")):
        start = left + row * 3 * part
        d.text(start + 1.5 * part, y - 19, name)
        d.brace(start + 2, start + 3 * part - 2, y - 12, -5)
        for i, (label, fill) in enumerate((("query", "a"), ("key", "b"), ("value", "c"))):
            d.box(start + i * part, y, part, 28, label, fill=fill, radius=0)
    y += 28
    key = left + part
    for x in (key, key + 3 * part):
        d.line([(x, y + 2), (x, y + 40)], "ink", 1)
    d.arrow([(key, y + 14), (key + part, y + 14)], both=True)
    d.text(key + part / 2, y + 30, "*H* wide", SMALL)
    d.arrow([(key, y + 38), (key + 3 * part, y + 38)], both=True)
    d.text(key + 1.5 * part, y + 56, "stride 3 *H*")


def paint(d: Drawing) -> None:
    paint_slice(d, paint_array(d))


PICTURES = [
    Picture(
        name="memory",
        page="conventions",
        after="Arrays and their letters",
        title="An array (B, C, N, K) in memory, and slices of a wider row",
        description=(
            f"An array with B = {B}, C = {C}, N = {N} and K = {K}, one row per position of each sequence, with {H} "
            f"numbers h = n K + k per row. The rows are adjacent in memory. The element with b, c, n, k = "
            f"{', '.join(map(str, MARKED))} has place {address(*MARKED)}. Below, two rows hold query, key and value side "
            "by side: the keys are H wide, and their stride is 3 H."
        ),
        caption=(
            f"Above: places in memory of an array (B, C, N, K) = ({B}, {C}, {N}, {K}). Below: keys as slices of rows "
            "of queries, keys and values; their stride is larger than their width."
        ),
        width=WIDTH,
        height=396,
        paint=paint,
        constants=(
            Constant("plain/view.hpp", r"return \{first, \{(C \* row, row, K, 1)\}\};", "C * row, row, K, 1"),
            Constant(
                "src/blocks/parts/key_value_cache.hpp",
                r"return \{qkv_bcq, qkv_bcq \+ H, qkv_bcq \+ 2 \* H, (3 \* H), 3 \* H\};",
                "3 * H",
            ),
        ),
    )
]
