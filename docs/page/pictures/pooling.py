"""Pooling: states and their backward accumulators, a window in two parts, a scan over tiles."""

from pictures.picture import Constant, Picture
from svg import NAME, SMALL, TEXT, THICK, Drawing

WIDTH = 360


def tag(
    d: Drawing, x: float, y: float, equation: int, anchor: str = "middle", ink: str = "link", layer: str = "pooling"
) -> None:
    """A number that leads to the equation of this chapter."""
    with d.link(f"#{layer}.{equation}", f"equation {layer}.{equation}"):
        d.text(x, y, f"({equation})", SMALL, anchor, ink)


# ---- The chain of states ----

COLUMNS = (("*c*−1", 60), ("*c*", 180), ("*c*+1", 300))
MIDDLES = [x for _, x in COLUMNS]
HALF = 41  # of a state's width
DRIFT = 21  # from the middle of a column to the left edge of its drift


def chain(d: Drawing, y: float, left_half: float, ink: str, forward: bool) -> list[float]:
    """Arrows from column to column, and to and from those that are not shown. Returns the middles of the inner ones."""
    rights = [x + HALF for x in MIDDLES]
    lefts = [x - left_half for x in MIDDLES]
    for left, right in zip([3, *rights], [*lefts, WIDTH - 3]):
        d.arrow([(left, y), (right, y)] if forward else [(right, y), (left, y)], ink, THICK)
    return [(left + right) / 2 for left, right in zip(rights, lefts[1:])]


def paint_states(d: Drawing) -> None:
    top = 66
    d.text(4, 13, "forward", SMALL, "start", "faint")
    for index, x in COLUMNS:
        d.text(x, 34, f"logit_{{{index}}}, *x*_{{{index}}}", NAME)
        d.arrow([(x, 42), (x, top)], "forward")
        d.rectangle(x - HALF, top, 2 * HALF, 66, "panel", "forward", radius=4)
        for i, (name, equation) in enumerate((("max", 2), ("sum", 3), ("out", 5))):
            y = top + 18 + 19 * i
            d.text(x - (13 if index == "*c*" else 0), y, f"{name}_{{{index}}}", NAME)
            if index == "*c*":
                tag(d, x + 25, y, equation)
        d.arrow([(x, top + 66), (x, top + 84)], "forward")
        d.text(x, top + 98, f"out_{{{index}}}", NAME)
    chain(d, top + 33, HALF, "forward", True)
    d.line([(4, top + 114), (WIDTH - 4, top + 114)], "rule", dashed=True)
    d.text(4, top + 131, "backward", SMALL, "start", "faint")
    paint_carries(d, top + 178)


def paint_carries(d: Drawing, adjoint: float) -> None:
    drift = adjoint + 74
    payload, kappa = -38, -29  # where they go down, from the middle of a column
    for index, x in COLUMNS:
        d.text(x, adjoint - 27, f"d_out_{{{index}}}", NAME)
        d.arrow([(x, adjoint - 20), (x, adjoint)], "backward")
        d.box(x - HALF, adjoint, 2 * HALF, 30, f"adjoint_{{{index}}}", NAME, "b", "backward")
        d.text(x + kappa + 7, adjoint + 57, f"*κ*_{{{index}}}", NAME, "start")
        d.box(x - DRIFT, drift, HALF + DRIFT, 30, f"drift_{{{index}}}", NAME, "c", "backward")
        d.arrow([(x + payload, adjoint + 30), (x + payload, drift + 58)], "backward")
        d.text(x + payload + 4, drift + 72, f"d_x_{{{index}}}", NAME)
        # The kappa of a position joins behind the drift of that position; d_logit is made of both.
        d.line([(x + kappa, adjoint + 30), (x + kappa, drift + 44), (x + 14, drift + 44)], "backward", radius=5)
        d.arrow([(x + 14, drift + 30), (x + 14, drift + 80)], "backward")
        d.text(x + 14, drift + 94, f"d_logit_{{{index}}}", NAME)
    for y, half, equation, aside in ((adjoint + 15, HALF, 7, 0), (drift + 15, DRIFT, 11, -10)):
        middles = chain(d, y, half, "backward", False)
        for (index, _), x in zip(COLUMNS[1:], middles):
            d.text(x + aside, y - 8, f"*β*_{{{index}}}", NAME)
        tag(d, middles[0] + aside, y + 16, equation)
    for _, x in COLUMNS:
        d.circle(x + kappa, drift + 15, 3, "backward", "backward")
        d.circle(x + 14, drift + 44, 3, "backward", "backward")
    x = MIDDLES[1]
    tag(d, x + 4, adjoint + 56, 9, "start")
    tag(d, x - 61, drift + 72, 8, "end")
    tag(d, x + 50, drift + 94, 10, "start")


# ---- A window ----

WINDOW, THIRD = 8, 2  # positions; a position's place in its block, counted from 0


def paint_window(d: Drawing) -> None:
    cell, left, height = 20, 20, 24

    def x_of(position: float) -> float:
        return left + position * cell

    for block, name in enumerate(("block *t* − 1", "block *t*")):
        d.brace(x_of(block * WINDOW) + 1, x_of((block + 1) * WINDOW) - 1, 24, -6)
        d.text(x_of((block + 0.5) * WINDOW), 17, name)

    def row(y: float, place: int) -> tuple[int, int]:
        """A window by the place of its last position; returns its first and last."""
        first, last = place + 1, WINDOW + place
        fills = ["paper" if not first <= i <= last else "b" if i < WINDOW else "a" for i in range(2 * WINDOW)]
        d.cells(x_of(0), y, cell, height, [""] * (2 * WINDOW), fills)
        d.rectangle(x_of(last), y, cell, height, "none", "ink", THICK)
        d.centred(x_of(last + 0.5), y + height / 2, "*c*", NAME)
        return first, last

    y = 40
    first, last = row(y, THIRD)
    middle = x_of(WINDOW)
    d.arrow([(middle - 3, y + height + 12), (x_of(first) + 1, y + height + 12)], "ink", THICK)
    d.arrow([(middle + 3, y + height + 12), (x_of(last + 1) - 1, y + height + 12)], "ink", THICK)
    d.text((x_of(first) + middle) / 2, y + height + 30, "suffix_{*c*−*w*+1}", NAME)
    d.text((x_of(last + 1) + middle) / 2, y + height + 30, "prefix_{*c*}", NAME)
    merge_y = y + height + 62
    d.arrow([((x_of(first) + middle) / 2, y + height + 38), ((x_of(first) + middle) / 2, merge_y)], radius=0)
    d.arrow([((x_of(last + 1) + middle) / 2, y + height + 38), ((x_of(last + 1) + middle) / 2, merge_y)])
    box_left, box_right = x_of(first) + 14, x_of(last + 1) + 14
    d.box(box_left, merge_y, box_right - box_left, 28, "merge", fill="panel")
    d.arrow([(box_right, merge_y + 14), (box_right + 26, merge_y + 14)])
    d.text(box_right + 30, merge_y + 19, "out_{*c*}", NAME, "start")
    for i, equation in enumerate((1, 2, 3)):
        tag(d, x_of(0) + 8 + 24 * i, merge_y + 18, equation, layer="pooling_sliding_window")

    y = merge_y + 58
    d.text(x_of(0), y, "The next windows:", SMALL, "start", "faint")
    y += 8
    for place in range(THIRD + 1, WINDOW):
        row(y, place)
        y += height + 6


# ---- A scan over tiles ----

RUN_LENGTH, TILE_RUNS, TILE_LANES, PACK = 16, 16, 16, 4
TILE = RUN_LENGTH * TILE_RUNS
TILES = 4


def paint_scan(d: Drawing) -> None:
    left, width, height = 24, 78, 30

    def x_of(tile: float) -> float:
        return left + tile * width

    def tiles(y: float, fill: str, label: str) -> None:
        for tile in range(TILES):
            d.box(x_of(tile), y, width, height, label.format(tile), fill=fill, radius=0)

    y = 24
    for edge in range(TILES + 1):
        d.text(x_of(edge), y - 8, f"{edge * TILE:,}", SMALL, fill="faint")
    tiles(y, "panel", "tile {0}")
    y += height
    d.text(4, y + 22, "1", TEXT, "start", bold=True)
    for tile in range(TILES - 1):
        middle = x_of(tile + 0.5)
        d.arrow([(middle, y), (middle, y + 30)])
        d.box(middle - 34, y + 30, 68, 24, "keep, add", SMALL, "c")
    d.text(x_of(TILES - 0.5), y + 46, "not needed", SMALL, fill="faint")
    y += 54
    carry_y = y + 36
    d.text(4, y + 26, "2", TEXT, "start", bold=True)
    for tile in range(TILES):
        middle = x_of(tile + 0.5)
        d.box(middle - 24, carry_y, 48, 26, "0" if tile == 0 else f"state_{{{tile}}}", TEXT, "b")
        if tile:
            d.arrow([(middle - width + 24, carry_y + 13), (middle - 24, carry_y + 13)], "ink", THICK)
            d.arrow(
                [
                    (middle - width, y),
                    (middle - width, y + 14),
                    (middle - width / 2, y + 14),
                    (middle - width / 2, carry_y + 10),
                ],
                radius=5,
            )
    y = carry_y + 26
    d.text(4, y + 24, "3", TEXT, "start", bold=True)
    for tile in range(TILES):
        middle = x_of(tile + 0.5)
        d.arrow([(middle, y), (middle, y + 30)])
    y += 30
    tiles(y, "a", "all states")
    paint_tile(d, y + height + 26)


def paint_tile(d: Drawing, y: float) -> None:
    """The steps of one thread block with one tile."""
    cell, left = 8, 52
    d.line([(4, y - 8), (WIDTH - 4, y - 8)], "rule")
    d.text(4, y + 12, f"A tile: {TILE} positions by {TILE_LANES} packs of {PACK} channels", TEXT, "start", bold=True)
    top = y + 42
    d.text(left + TILE_LANES * cell / 2, top - 7, f"{TILE_LANES} lanes", SMALL, fill="faint")
    lane, run = 5, 9
    d.rectangle(left + lane * cell, top, cell, run * cell, "b", "none")
    d.rectangle(left + lane * cell, top + run * cell, cell, cell, "a", "none")
    d.grid(left, top, cell, cell, TILE_LANES, TILE_RUNS)
    d.rectangle(left + lane * cell, top + run * cell, cell, cell, "none", "ink", THICK)
    for r in (0, run, TILE_RUNS - 1):
        d.text(left - 6, top + (r + 0.5) * cell + 4, f"run {r}", SMALL, "end", "faint")
    x = left + TILE_LANES * cell + 14
    steps = (
        ("a", "A thread scans its run of", f"{RUN_LENGTH} positions, from 0."),
        ("b", "It combines the results", "of the runs before it,"),
        ("a", "and scans its run again", "from the correct state."),
    )
    for i, (fill, *text) in enumerate(steps):
        d.rectangle(x, top + 7 + 46 * i, 10, 10, fill)
        d.lines(x + 16, top + 16 + 46 * i, text, 15, size=SMALL, anchor="start")


PICTURES = [
    Picture(
        name="pooling-states",
        page="layers/pooling",
        after="Backward, by the recurrence",
        title="The states of a pooling, and its two backward accumulators",
        description=(
            "Three neighbouring positions. Forward, the state of a head (max, sum, out) passes from each position to the next, "
            "which updates it with logit and x. Backward, two accumulators pass in the opposite direction. The adjoint adds "
            "d_out of every position, and gives d_x and a number kappa. The drift is one number. Kappa and drift of a "
            "position give its d_logit; kappa then updates the drift for the previous position."
        ),
        caption=(
            "State of a head between positions. Forward, to the right: K + 2 numbers. Backward, to the left: the adjoint with K "
            "numbers, and the drift with one number."
        ),
        width=WIDTH,
        height=420,
        paint=paint_states,
        has_links=True,
    ),
    Picture(
        name="pooling-window",
        page="layers/pooling_sliding_window",
        after="The window: merge, do not subtract",
        title="A window as a suffix and a prefix",
        description=(
            f"Two blocks of {WINDOW} positions. The window that ends at c, the third position of its block, consists of "
            f"a suffix, the last {WINDOW - THIRD - 1} positions of the previous block, and a prefix, the first "
            f"{THIRD + 1} of its own block. The two are merged. For larger c the suffix is shorter and the prefix "
            "longer, until the window is the whole block."
        ),
        caption=(
            f"Windows of w = {WINDOW}. Suffixes are computed from the end of a block, prefixes from its start. For every w, a "
            "position costs one step of a suffix, one step of a prefix and one merge."
        ),
        width=WIDTH,
        height=338,
        paint=paint_window,
        has_links=True,
    ),
    Picture(
        name="pooling-scan",
        page="docs/layers/parts/pooling_fast",
        after="On the GPU",
        title="A scan over tiles, with its carry",
        description=(
            f"A sequence of {TILE * TILES:,} positions in {TILES} tiles of {TILE}. First, every tile except the last is "
            "reduced to its effect on a state, keep and add. Then the states before all tiles are computed one after "
            "another, from 0. Then every tile computes all its states from the state before it. Within a tile, "
            f"{TILE_RUNS * TILE_LANES} threads do the same with runs of {RUN_LENGTH} positions."
        ),
        caption=(
            f"Three kernels for a sequence of more than one tile: totals of tiles (1), the carry (2), all states (3). "
            f"Below, one tile: one kernel does the same with runs of {RUN_LENGTH} positions instead of tiles. This scan "
            "runs up. If rows are not aligned, a pack is one channel."
        ),
        width=WIDTH,
        height=438,
        paint=paint_scan,
        constants=(
            Constant("cuda/pooling_scan.hpp", r"constexpr int tile_lanes = width > 4 \? 64 / width : (\d+);", str(TILE_LANES)),
            Constant("cuda/pooling_scan.hpp", r"constexpr int tile_runs = (\d+);", str(TILE_RUNS)),
            Constant("cuda/pooling_scan.hpp", r"constexpr int run_length = (\d+);", str(RUN_LENGTH)),
            Constant(
                "cuda/pooling_scan.hpp",
                r"A tile is 256 positions by (16 packs) of `width` channels",
                f"{TILE_LANES} packs",
            ),
            Constant("cuda/kernel.hpp", r"return K % (\d+) == 0 && widest_fits<float>\(stride, rows", str(PACK)),
        ),
    ),
]
