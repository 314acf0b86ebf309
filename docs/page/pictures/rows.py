"""The sum of a row of channels, on a CPU core with SIMD vectors and in a warp."""

from pictures.picture import Constant, Picture
from svg import SMALL, Drawing

WIDTH = 360
D = 300  # channels of the example, a multiple neither of the SIMD width nor of the warp

LANE_BYTES = {"baseline": 16, "avx2": 32, "avx512": 64}
LANES = {isa: count // 4 for isa, count in LANE_BYTES.items()}
TURNS = 4  # accumulators, used in turn
WHOLE, REST = divmod(D, TURNS * LANES["avx2"])  # steps of all accumulators, and remaining channels
VECTORS, SCALARS = divmod(REST, LANES["avx2"])

WARP = 32
PACK = 16 // 4  # floats in one access of a thread
ACCESSES = -(-D // (WARP * PACK))
DISTANCES = [WARP >> i for i in range(1, WARP.bit_length())]  # distances of the lanes that are added
MARKED = 5  # highlighted lane


def paint_core(d: Drawing) -> float:
    """The vectors of one core, and the additions of its accumulators. Returns the lower edge."""
    lanes, left, piece, height, y = LANES["avx2"], 8, 38, 26, 54
    d.text(4, 14, f"A core, {lanes} floats at a time", bold=True, anchor="start")
    d.text(left + TURNS * piece / 2, y - 18, f"{WHOLE} times {TURNS * lanes} channels", SMALL)
    d.brace(left + 1, left + TURNS * piece - 1, y - 11, -5)
    for turn, fill in enumerate("abcd"):
        d.box(left + turn * piece, y, piece, height, str(lanes), fill=fill, radius=0)
    vector = left + TURNS * piece + 36
    d.text(vector - 18, y + 17, "· · ·")
    d.text(vector + piece / 2, y - 8, "once", SMALL)
    d.box(vector, y, piece * VECTORS, height, str(lanes), fill="mark", radius=0)
    scalar = vector + piece * VECTORS
    d.text(scalar + 9 * SCALARS, y - 8, "one by one", SMALL)
    d.cells(scalar, y, 18, height, ["1"] * SCALARS, ["panel"] * SCALARS)

    sums, joint, vector_y = y + height + 26, y + height + 64, y + height + 78
    middles = [left + (turn + 0.5) * piece for turn in range(TURNS)] + [vector + piece / 2]
    for middle, fill in zip(middles, ("a", "b", "c", "d", "mark")):
        d.arrow([(middle, y + height), (middle, sums)])
        d.box(middle - 15, sums, 30, 22, "Σ", fill=fill)
        d.line([(middle, sums + 22), (middle, joint)])
    d.line([(middles[0], joint), (middles[-1], joint)])
    tail = scalar + 9 * SCALARS
    d.arrow([(tail, y + height), (tail, sums)])
    d.box(tail - 15, sums, 30, 22, "Σ", fill="panel")

    cell, x, count = 14, left, lanes
    d.arrow([(middles[0], joint), (middles[0], vector_y)])
    while True:
        d.cells(x, vector_y, cell, 20, [""] * count, ["paper"] * count, stroke="ink")
        x += count * cell
        if count == 1:
            break
        d.arrow([(x + 2, vector_y + 10), (x + 16, vector_y + 10)])
        x, count = x + 18, count // 2
    d.line([(tail, sums + 22), (tail, joint), (x + 17, joint), (x + 17, vector_y + 3)], radius=5)
    d.line([(x, vector_y + 10), (x + 10, vector_y + 10)])
    d.circle(x + 17, vector_y + 10, 7)
    d.text(x + 17, vector_y + 14.5, "+")
    d.arrow([(x + 17, vector_y + 17), (x + 17, vector_y + 38)])
    d.text(x + 17, vector_y + 52, "sum of the row", SMALL)
    d.text(left, vector_y + 36, "elements are added by halves", SMALL, "start", "faint")
    return vector_y + 60


def paint_warp(d: Drawing, top: float) -> None:
    """The lanes of a warp over the same row, and the exchanges that give every lane the sum."""
    cell, left, y = 10, 28, top + 54
    d.line([(4, top), (WIDTH - 4, top)], "rule")
    d.text(4, top + 22, f"A warp, {WARP} lanes of {PACK} channels at a time", bold=True, anchor="start")
    for access in range(ACCESSES):
        first = access * WARP * PACK
        last = min(D, first + WARP * PACK) - 1
        busy = (last - first) // PACK + 1
        d.text(left, y - 5, f"channels {first} to {last}", SMALL, "start", "faint")
        fills = ["paper" if lane >= busy else "b" if lane == MARKED else "a" for lane in range(WARP)]
        d.cells(left, y, cell, 16, [""] * WARP, fills)
        y += 38
    d.text(left + WARP * cell, top + 49, f"lane {WARP - 1}", SMALL, "end", "faint")
    y += 6
    d.text(left, y - 5, "then every lane adds the sum of the lane at distance:", SMALL, "start", "faint")
    for distance in DISTANCES:
        d.text(left - 6, y + 12, str(distance), SMALL, "end")
        fills = ["c" if lane // distance % 2 else "panel" for lane in range(WARP)]
        d.cells(left, y, cell, 16, [""] * WARP, fills)
        here, there = (left + (lane + 0.5) * cell for lane in (MARKED, MARKED ^ distance))
        d.circle(here, y + 8, 2.5, "ink")
        d.circle(there, y + 8, 2.5, "paper")
        y += 20


def paint(d: Drawing) -> None:
    paint_warp(d, paint_core(d) + 12)


PICTURES = [
    Picture(
        name="row-lanes",
        page="layers/layernorm",
        after="On the GPU",
        title="The sum of a row: SIMD vectors and a warp",
        description=(
            f"The sum of a row of {D} channels. A core with vectors of {LANES['avx2']} floats adds {TURNS} vectors per "
            f"step, each to its own accumulator, {WHOLE} times; {VECTORS} vector and {SCALARS} single channels remain. The "
            "accumulators are added, then the elements of the vector by halves, then the sum of the single channels. A warp "
            f"reads {WARP * PACK} channels per access, {PACK} per lane. Then each lane adds the sums of the lanes at distance "
            f"{', '.join(map(str, DISTANCES[:-1]))} and 1; after that every lane has the sum of the row."
        ),
        caption=(
            f"The sum of a row of {D} channels in the forward pass, on a core with AVX2 (vectors of {LANES['avx2']} floats; "
            f"without it {LANES['baseline']}, with AVX-512 {LANES['avx512']}), and in float on a GPU. The lower rows mark a "
            "lane and its partner."
        ),
        width=WIDTH,
        height=516,
        paint=paint,
        constants=(
            *(
                Constant("cpu/lanes.hpp", rf"#define ABH_ISA {isa}\n#define ABH_LANE_BYTES (\d+)", str(count))
                for isa, count in LANE_BYTES.items()
            ),
            Constant("cpu/lanes.hpp", r"lane_width<float> = (ABH_LANE_BYTES / 4);", "ABH_LANE_BYTES / 4"),
            Constant("cpu/layernorm.cpp", r"static constexpr int turns = (\d+);", str(TURNS)),
            Constant("cuda/kernel.hpp", r"constexpr int warp_size = (\d+);", str(WARP)),
            Constant("cuda/kernel.hpp", r"constexpr int widest = (\d+) / static_cast<int>\(sizeof\(T\)\);", "16"),
        ),
    )
]
