"""The dot-product attention block: its arrays forward, and their gradients backward."""

from pictures.flow import ARRAY, OPERATION, Flow, legend, made_faults, rows
from pictures.picture import Picture
from svg import SMALL, Drawing

STREAM, QUERY, KEY, VALUE = 14, 114, 206, 298  # columns; the main path is the column of the keys
ROWS = rows(
    "x norm h maps rows rescale rotary core t output y drop out".split(),
    {"rows": 4, "maps": 6, "core": 6},
)
# Number of the equation that computes each array, by the array's name in the header.
MADE = {"h": 1, "query_bch": 2, "t": 5, "y": 6, "out": 7, "d_y": 8, "d_output_dh": 9, "d_t": 10, "d_query_bch": 11}
MADE |= {"d_query_hd": 14, "d_h": 15, "d_x": 16}
RESCALE, ROTARY, RESCALE_BACKWARD, ROTARY_BACKWARD = 3, 4, 13, 12  # equations that change arrays in place


def paint_maps(f: Flow) -> None:
    """h feeds three maps; their gradients are added."""
    d, at = f.drawing, f.at
    top = at["maps"] - OPERATION / 2
    f.into(KEY, "h", "maps")
    for x, side in ((QUERY, -15), (VALUE, 15)):
        d.pair([(KEY + side, at["h"]), (x, at["h"]), (x, top)])
    f.tag(KEY + 11, at["h"] + 22, MADE["d_h"], "start", "backward")
    for x, name in ((QUERY, "query"), (KEY, "key"), (VALUE, "value")):
        f.operation(x, "maps", "linear", "linear", 52)
        f.out_of(x, "maps", "rows", MADE["query_bch"])
        f.array(x, "rows", name)
    f.weights(QUERY - 26, "maps", MADE["d_query_hd"])


def paint_core(f: Flow) -> None:
    """Queries and keys pass two optional in-place operations before attention."""
    d, at = f.drawing, f.at
    middle, width = (QUERY + KEY) / 2, KEY - QUERY + 56
    for x in (QUERY, KEY):
        first = x == QUERY
        f.down(x, at["rows"] + ARRAY / 2, at["rescale"] - OPERATION / 2, backward=RESCALE_BACKWARD * first)
        f.down(x, at["rescale"] + OPERATION / 2, at["rotary"] - OPERATION / 2, RESCALE * first, ROTARY_BACKWARD * first)
        f.down(x, at["rotary"] + OPERATION / 2, at["core"] - OPERATION / 2, ROTARY * first, MADE["d_query_bch"] * first)
    f.down(VALUE, at["rows"] + ARRAY / 2, at["core"] - OPERATION / 2)
    f.tag(VALUE + 11, at["core"] - OPERATION / 2 - 14, MADE["d_query_bch"], "start", "backward")
    f.operation(middle, "rescale", "rescale", "rescale", width, dashed=True)
    f.operation(middle, "rotary", "rotary", "rotary", width, dashed=True)
    f.operation(KEY, "core", "attention, head by head", "attention", VALUE - QUERY + 56)
    d.text(QUERY - 40, at["rescale"] + 4, "optional", SMALL, "end", "faint")
    d.text(QUERY - 40, at["rotary"] + 4, "optional", SMALL, "end", "faint")


def paint(d: Drawing) -> None:
    f = Flow(d, "dot", ROWS)
    legend(d, 254)
    f.into(KEY, "x", "norm", MADE["d_x"])
    f.out_of(KEY, "norm", "h", MADE["h"])
    paint_maps(f)
    paint_core(f)
    f.out_of(KEY, "core", "t", MADE["t"])
    f.into(KEY, "t", "output", MADE["d_t"])
    f.out_of(KEY, "output", "y", MADE["y"])
    f.into(KEY, "y", "drop", MADE["d_y"])
    f.out_of(KEY, "drop", "out", MADE["out"])
    f.around(KEY, STREAM, "x", "drop", KEY - 58)
    f.operation(KEY, "norm", "layernorm", "layernorm", 84)
    f.operation(KEY, "output", "linear", "linear", 52)
    f.weights(KEY - 26, "output", MADE["d_output_dh"])
    f.operation(KEY, "drop", "*x* + dropout(*y*)", "dropout", 116)
    for row, name in (("x", "*x*"), ("h", "*h*"), ("t", "*t*"), ("y", "*y*"), ("out", "out")):
        f.array(KEY, row, name)


PICTURES = [
    Picture(
        name="dot-flow",
        page="blocks/dot",
        after="Forward",
        title="Data flow of the dot block",
        description=(
            "From top to bottom: layernorm of x gives h; three linear maps of h give query, key and value. Query and key "
            "pass rescale and rotary if these are set. Attention of the three gives t, a linear map of t gives y, and "
            "x plus dropout of y is the output. A second path leads x around the block to this sum. Next to every "
            "arrow down, an arrow up shows the gradient. Numbers are equations of this chapter."
        ),
        caption=(
            "Numbers are tags: (5) is (dot.5). The dashed operations are optional: --rescale and --positions rotary. The "
            "gradients of the three maps are added in d_h, (dot.15)."
        ),
        width=360,
        height=ROWS["out"] + 20,
        paint=paint,
        more_faults=lambda root: made_faults(root, "dot", "src/blocks/dot.hpp", MADE),
        has_links=True,
    )
]
