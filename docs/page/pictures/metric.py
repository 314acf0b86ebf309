"""The packed triangle of a symmetric matrix."""

from pictures.picture import Constant, Picture
from svg import NAME, SMALL, TEXT, THICK, Drawing

WIDTH = 360
K = 5
MARKED = (1, 3)  # k and k' of the highlighted element and its mirror image
FILLS = ("a", "b", "c", "d", "mark")  # per row of the triangle
CELL, LEFT, TOP = 36, 44, 48


def place(k: int, other: int) -> int:
    """Index l of the element (k, other)."""
    return k * K - k * (k - 1) // 2 + (other - k) if k <= other else place(other, k)


def paint(d: Drawing) -> None:
    d.text(LEFT + K * CELL / 2, 16, "*k*′")
    d.text(12, TOP + K * CELL / 2 + 4, "*k*")
    for k in range(K):
        d.text(LEFT + (k + 0.5) * CELL, TOP - 10, str(k), SMALL, fill="faint")
        d.text(LEFT - 12, TOP + (k + 0.5) * CELL + 4, str(k), SMALL, fill="faint")
        for other in range(K):
            x, y, stored = LEFT + other * CELL, TOP + k * CELL, k <= other
            d.rectangle(x, y, CELL, CELL, FILLS[k] if stored else "paper")
            d.centred(
                x + CELL / 2,
                y + CELL / 2,
                str(place(k, other)),
                NAME if stored else TEXT,
                fill="ink" if stored else "faint",
            )
    for k, other in (MARKED, MARKED[::-1]):
        d.rectangle(LEFT + other * CELL, TOP + k * CELL, CELL, CELL, "none", "ink", THICK)
    k, other = MARKED
    x = LEFT + K * CELL + 20
    d.lines(
        x,
        TOP + 1.5 * CELL - 4,
        [f"*M*_{{{k}{other}}} and *M*_{{{other}{k}}}", "are one number,", f"*l* = {place(*MARKED)}"],
        19,
        anchor="start",
    )
    d.lines(x, TOP + 3.3 * CELL, ["its gradient is", f"*G*_{{{k}{other}}} + *G*_{{{other}{k}}}"], 19, anchor="start")

    count, cell, y = K * (K + 1) // 2, 22, TOP + K * CELL + 52
    left = (WIDTH - count * cell) / 2
    for k in range(K):
        row = [place(k, other) for other in range(k, K)]
        d.cells(left + row[0] * cell, y, cell, 24, [str(l) for l in row], [FILLS[k]] * len(row))
        d.brace(left + row[0] * cell + 2, left + (row[-1] + 1) * cell - 2, y - 6, -4)
        d.text(
            left + (row[0] + len(row) / 2) * cell, y - 15, f"row {k}" if len(row) > 1 else str(k), SMALL, fill="faint"
        )
    l = place(*MARKED)
    d.rectangle(left + l * cell, y, cell, 24, "none", "ink", THICK)


PICTURES = [
    Picture(
        name="packed-triangle",
        page="layers/metric_key",
        after="Forward",
        title="The packed triangle of M",
        description=(
            f"A symmetric matrix with K = {K}. Each element shows its place l among the {K * (K + 1) // 2} stored numbers: "
            f"the elements on and above the diagonal, row after row, {K} in the first row, 1 in the last. An element below "
            "the diagonal has the place of its mirror image: "
            f"{MARKED} and {MARKED[::-1]} both have l = {place(*MARKED)}."
        ),
        caption=(
            f"Places l in a packed metric of K = {K} channels: above as a matrix, below in memory, with "
            f"{K}, {', '.join(str(K - k) for k in range(1, K))} numbers per row."
        ),
        width=WIDTH,
        height=308,
        paint=paint,
        constants=(
            Constant(
                "plain/metric_key.cpp",
                r"return k <= m \? (.*) : place_of\(form, m, k, K\);",
                "k * K - k * (k - 1) / 2 + (m - k)",
            ),
        ),
    )
]
