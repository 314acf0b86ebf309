"""The cross-attention block: a sequence on the left, its memory on the right."""

from pictures.flow import ARRAY, OPERATION, Flow, legend, made_faults, rows
from pictures.picture import Picture
from svg import SMALL, Drawing

STREAM, QUERY, KEY, VALUE = 10, 100, 216, 320  # columns
MEMORY, CORE = (KEY + VALUE) / 2, (QUERY + VALUE) / 2
ROWS = rows("x norm h maps rows core t output y drop out".split(), {"maps": 6, "rows": 4, "core": 2})
MADE = {"h": 1, "query_bch": 2, "key_bsh": 3, "t": 4, "y": 5, "out": 6, "d_y": 7, "d_output_dh": 8, "d_t": 9}
MADE |= {"d_query_bch": 10, "d_key_he": 11, "d_memory": 12, "d_query_hd": 13, "d_h": 14, "d_x": 15}


def paint_memory(f: Flow) -> None:
    """The memory feeds two maps; their gradients are added to those of other layers."""
    d, at = f.drawing, f.at
    f.down(MEMORY, at["norm"] + OPERATION / 2, at["h"] - ARRAY / 2, backward=MADE["d_memory"])
    with d.link("../docs/seq2seq.html", "encoder and decoder"):
        d.box(MEMORY - 33, at["norm"] - OPERATION / 2, 66, OPERATION, "encoder", ink="link")
    for x, side in ((KEY, -32), (VALUE, 32)):
        d.pair([(MEMORY + side, at["h"]), (x, at["h"]), (x, at["maps"] - OPERATION / 2)])
    for x, name in ((KEY, "key"), (VALUE, "value")):
        f.operation(x, "maps", "linear", "linear", 46)
        f.out_of(x, "maps", "rows", MADE["key_bsh"])
        f.array(x, "rows", name)
    f.weights(KEY - 23, "maps", MADE["d_key_he"])
    f.array(MEMORY, "h", "memory")


def paint(d: Drawing) -> None:
    f = Flow(d, "cross", ROWS)
    legend(d, 254)
    at = f.at
    f.into(QUERY, "x", "norm", MADE["d_x"])
    f.out_of(QUERY, "norm", "h", MADE["h"])
    f.into(QUERY, "h", "maps", MADE["d_h"])
    f.operation(QUERY, "maps", "linear", "linear", 46)
    f.out_of(QUERY, "maps", "rows", MADE["query_bch"])
    f.weights(QUERY - 23, "maps", MADE["d_query_hd"])
    paint_memory(f)
    for x in (QUERY, KEY, VALUE):
        f.down(x, at["rows"] + ARRAY / 2, at["core"] - OPERATION / 2, backward=MADE["d_query_bch"])
    f.operation(CORE, "core", "attention", "attention", VALUE - QUERY + 56)
    f.out_of(CORE, "core", "t", MADE["t"])
    f.into(CORE, "t", "output", MADE["d_t"])
    f.out_of(CORE, "output", "y", MADE["y"])
    f.into(CORE, "y", "drop", MADE["d_y"])
    f.out_of(CORE, "drop", "out", MADE["out"])
    f.around(QUERY, STREAM, "x", "drop", CORE - 58)
    f.operation(QUERY, "norm", "layernorm", "layernorm", 84)
    f.operation(CORE, "output", "linear", "linear", 52)
    f.weights(CORE - 26, "output", MADE["d_output_dh"])
    f.operation(CORE, "drop", "*x* + dropout(*y*)", "dropout", 116)
    for x, row, name in ((QUERY, "x", "*x*"), (QUERY, "h", "*h*"), (QUERY, "rows", "query"), (CORE, "t", "*t*")):
        f.array(x, row, name)
    for row, name in (("y", "*y*"), ("out", "out")):
        f.array(CORE, row, name)
    d.text(QUERY + 24, at["x"] + 4, "*C* positions", SMALL, "start", "faint")
    d.text(MEMORY - 42, at["norm"] + 4, "*S* positions", SMALL, "end", "faint")


PICTURES = [
    Picture(
        name="cross-flow",
        page="blocks/cross",
        after="Forward",
        title="Data flow of the cross-attention block",
        description=(
            "Two sequences side by side. On the left, x with C positions: layernorm gives h, and a linear map of h gives "
            "the query. On the right, the memory with S positions, the output of an encoder: two linear maps of it give "
            "key and value. Attention of the three gives t, with C positions; a linear map of t gives y, and x plus "
            "dropout of y is the output. Next to every arrow down, an arrow up shows the gradient. Numbers are "
            "equations of this chapter."
        ),
        caption=(
            "Numbers are tags: (4) is (cross.4). Every layer of a decoder adds its gradient to d_memory, (cross.12), "
            "and the encoder receives the sum."
        ),
        width=360,
        height=ROWS["out"] + 20,
        paint=paint,
        more_faults=lambda root: made_faults(root, "cross", "extras/seq2seq/cross.hpp", MADE),
        has_links=True,
    )
]
