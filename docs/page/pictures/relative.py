"""Segments with a memory: the attention mask, and the products with distances in a tile."""

from pictures.picture import Constant, Picture
from svg import SMALL, THICK, Drawing

WIDTH = 360
C, S, M = 64, 16, 24  # positions, length of a segment, length of the memory before it
CELL, LEFT, TOP = 4, 70, 42  # size of a pair, left and upper edges
QUERY = 38  # the marked query
ROWS, KEYS = 3, 5  # size of the tile below
SMALL_CELL, TILE_TOP = 24, 372


def first_of(query: int) -> int:
    return query - query % S


def sees(query: int) -> range:
    """Keys of a query: positions in its memory and its segment."""
    return range(max(0, first_of(query) - M), query + 1)


def diagonal(row: int, key: int) -> int:
    """Number of a pair's diagonal in a tile; the largest distance has number 0."""
    return ROWS - 1 - row + key


def paint_pairs(d: Drawing) -> None:
    d.text(LEFT + C * CELL / 2, 14, "keys")
    for position in range(0, C + 1, S):
        d.text(LEFT + position * CELL, TOP - 8, str(position), SMALL, fill="faint")
        d.text(LEFT - 8, TOP + position * CELL + 4, str(position), SMALL, "end", "faint")
    d.rectangle(LEFT, TOP, C * CELL, C * CELL, "paper")
    for query in range(C):
        first, y = first_of(query), TOP + query * CELL
        memory = range(sees(query).start, first)
        if memory:
            d.rectangle(LEFT + memory.start * CELL, y, len(memory) * CELL, CELL, "b", "none")
        d.rectangle(LEFT + first * CELL, y, (query + 1 - first) * CELL, CELL, "a", "none")
    for border in range(S, C, S):
        d.line([(LEFT, TOP + border * CELL), (LEFT + C * CELL, TOP + border * CELL)], "rule")
    y, seen = TOP + QUERY * CELL, sees(QUERY)
    d.rectangle(LEFT + seen.start * CELL, y, len(seen) * CELL, CELL, "none", "ink", THICK)
    d.text(LEFT - 8, y + 5, f"query {QUERY}", SMALL, "end")
    for i, (fill, label) in enumerate((("a", "its own segment"), ("b", "memory: no gradient"))):
        x = LEFT + 150 * i
        d.rectangle(x, TOP + C * CELL + 12, 12, 12, fill)
        d.text(x + 18, TOP + C * CELL + 22, label, SMALL, "start")


def paint_tile(d: Drawing) -> None:
    d.line([(4, TILE_TOP - 28), (WIDTH - 4, TILE_TOP - 28)], "rule")
    d.text(4, TILE_TOP - 8, f"{ROWS} queries times {ROWS + KEYS - 1} rows of distances", anchor="start", bold=True)
    for row in range(ROWS):
        y = TILE_TOP + 8 + row * SMALL_CELL
        d.text(LEFT - 8, y + 16, f"c = {row}", SMALL, "end")
        used = range(diagonal(row, 0), diagonal(row, KEYS - 1) + 1)
        diagonals = range(ROWS + KEYS - 1)
        numbers = [f"s {r - used.start}" if r in used else "" for r in diagonals]
        d.cells(LEFT, y, SMALL_CELL, SMALL_CELL, numbers, ["b" if r in used else "paper" for r in diagonals])
    for r in range(ROWS + KEYS - 1):
        y = TILE_TOP + 24 + ROWS * SMALL_CELL
        d.text(LEFT + (r + 0.5) * SMALL_CELL, y, str(r), SMALL, fill="faint")
    d.text(LEFT - 8, TILE_TOP + 24 + ROWS * SMALL_CELL, "r =", SMALL, "end", "faint")


def paint(d: Drawing) -> None:
    paint_pairs(d)
    paint_tile(d)


PICTURES = [
    Picture(
        name="relative-attention-pairs",
        page="layers/relative_attention",
        after="The attention mask",
        title="Attention mask of segments with a memory",
        description=(
            f"A square of {C} queries and {C} keys, cut into segments of {S}. A query attends to the keys of its segment up "
            f"to its own position, a triangle, and to the {M} keys before the segment, a rectangle that is the same for all "
            f"queries of the segment. Query {QUERY} attends to keys {sees(QUERY).start} to {QUERY}. Below, the products of "
            f"{ROWS} queries with {ROWS + KEYS - 1} rows of distances: every query uses {KEYS} of them, and the first used "
            "product moves one place to the left from query to query."
        ),
        caption=(
            f"Segments of {S} and a memory of {M}: keys of the same segment (blue) and of the memory (orange). Query {QUERY} "
            f"attends to keys {sees(QUERY).start} to {QUERY}. Below, a tile of {ROWS} queries and {KEYS} keys: the products "
            "with the distances of the keys are in the row of the query, shifted by one place from row to row."
        ),
        width=WIDTH,
        height=TILE_TOP + 34 + ROWS * SMALL_CELL,
        paint=paint,
        constants=(
            Constant(
                "extras/transformer_xl/relative_attention.hpp",
                r"const Index first = begin_of\(c\) \+ (offset - memory);",
                "offset - memory",
            ),
            Constant(
                "extras/transformer_xl/relative_attention_cpu.cpp",
                r"Index first_diagonal\(Index c\) const \{ return (count\(queries\) - 1 - c); \}",
                "count(queries) - 1 - c",
            ),
        ),
    ),
]
