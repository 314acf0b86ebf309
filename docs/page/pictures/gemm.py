"""A tile of a matrix product on the CPU."""

from pictures.picture import Constant, Picture
from svg import NAME, SMALL, THICK, Drawing

WIDTH = 360
LANES = 16
ROWS, NARROW_ROWS = 12, 6
VECTORS = 2
SUMS = ROWS * VECTORS
BLOCK_COLUMNS = 256
MAX_K, BLOCK_K = 512, 384
K = 1536  # steps of the example
BLOCKS = -(-K // BLOCK_K)
MARKED = (4, 0)  # row and vector of the sum that is pointed out

ROW, LANE = 11, 6  # pixels of a row of `out`, of a lane
SPAN, GAP = 116, 14  # pixels of all steps, and between operand and tile
OUT_X, OUT_Y = 152, 164
STEP = 1.5 * SPAN / BLOCKS - ROW / 2  # from the beginning of the steps to the one that is drawn


def paint_operands(d: Drawing) -> None:
    """`a` to the left of the tile and `b` above it: blocks of steps, of which one is worked on, and in it one step."""
    width, height, part = VECTORS * LANES * LANE, ROWS * ROW, SPAN / BLOCKS
    left, top = OUT_X - GAP - SPAN, OUT_Y - GAP - SPAN
    for block in range(BLOCKS):
        fill = "a" if block == 1 else "panel"
        d.rectangle(left + block * part, OUT_Y, part, height, fill)
        d.rectangle(OUT_X, top + block * part, width, part, fill)
    for row in range(ROWS):
        d.rectangle(left + STEP, OUT_Y + row * ROW, ROW, ROW, "b", "faint", 1)
    for vector in range(VECTORS):
        d.rectangle(OUT_X + vector * LANES * LANE, top + STEP, LANES * LANE, ROW, "b", "faint", 1)
    row, vector = MARKED
    d.rectangle(left + STEP, OUT_Y + row * ROW, ROW, ROW, "ink", "ink", 1)
    d.rectangle(OUT_X + vector * LANES * LANE, top + STEP, LANES * LANE, ROW, "none", "ink", THICK)
    d.text(left + STEP + ROW / 2, OUT_Y - 6, "*k*", NAME)
    d.text(OUT_X - 6, top + STEP + ROW - 1, "*k*", NAME, "end")
    d.text(OUT_X + width / 2, top - 10, f"*b*: {VECTORS} vectors of {LANES} lanes")
    d.text(left + SPAN / 2, OUT_Y + height + 18, f"*a*: {ROWS} rows")


def paint_sums(d: Drawing) -> None:
    width, height = VECTORS * LANES * LANE, ROWS * ROW
    for row in range(ROWS):
        for vector in range(VECTORS):
            d.rectangle(OUT_X + vector * LANES * LANE, OUT_Y + row * ROW, LANES * LANE, ROW, "c", "faint", 1)
    row, vector = MARKED
    x, y = OUT_X + vector * LANES * LANE, OUT_Y + row * ROW
    d.rectangle(x, y, LANES * LANE, ROW, "mark", "ink", THICK)
    for lane in range(1, LANES):
        d.line([(x + lane * LANE, y + 2), (x + lane * LANE, y + ROW - 2)], "faint", 1)
    d.text(OUT_X + width / 2, OUT_Y + height + 18, f"out: {SUMS} registers of sums")


def paint(d: Drawing) -> None:
    paint_operands(d)
    paint_sums(d)
    labels = (
        f"{K:,} steps,",
        f"{BLOCKS} blocks of about",
        f"{BLOCK_K}. At step *k*:",
        f"{VECTORS} loads of *b*,",
        f"{ROWS} numbers of *a*,",
        f"{SUMS} multiply-adds",
    )
    d.lines(OUT_X - GAP - SPAN, OUT_Y - GAP - SPAN + 12, labels, 17, size=SMALL, anchor="start")


PICTURES = [
    Picture(
        name="gemm-tile",
        page="docs/layers/parts/linear_fast",
        after="On the CPU",
        title="A tile of a matrix product in registers",
        description=(
            f"The tile of out has {ROWS} rows of {VECTORS} vectors of {LANES} floats: {SUMS} accumulators in registers. To its "
            f"left are {ROWS} rows of a, above it {VECTORS} vectors of every row of b. Step k multiplies each number of a "
            "column of a by a row of b and adds the products to the accumulators. The steps are cut into blocks: "
            f"{K:,} of them into {BLOCKS} blocks of about {BLOCK_K}."
        ),
        caption=(
            f"The tile with AVX-512; with fewer registers it has {NARROW_ROWS} rows. Up to {MAX_K} steps are one block; longer "
            f"sums are cut into blocks of about {BLOCK_K}. The rows of a then stay in the L1 cache, and a block of up to "
            f"{BLOCK_COLUMNS} columns of b stays in the L2 cache."
        ),
        width=WIDTH,
        height=OUT_Y + ROWS * ROW + 30,
        paint=paint,
        constants=(
            Constant("cpu/gemm_tile.hpp", r"tile_rows = lanes == 16 \? (\d+) : \d+;", str(ROWS)),
            Constant("cpu/gemm_tile.hpp", r"tile_rows = lanes == 16 \? \d+ : (\d+);", str(NARROW_ROWS)),
            Constant("cpu/gemm_tile.hpp", r"tile_vectors = by_element \? \d+ : (\d+);", str(VECTORS)),
            Constant("cpu/gemm_tile.hpp", r"block_columns = lanes == 16 \? (\d+) : \d+;", str(BLOCK_COLUMNS)),
            Constant("cpu/gemm_rows.hpp", r"max_k = (\d+), block_k = \d+;", str(MAX_K)),
            Constant("cpu/gemm_rows.hpp", r"max_k = \d+, block_k = (\d+);", str(BLOCK_K)),
            Constant("cpu/lanes.hpp", r"ABH_ISA avx512\n#define ABH_LANE_BYTES (\d+)", str(4 * LANES)),
        ),
    )
]
