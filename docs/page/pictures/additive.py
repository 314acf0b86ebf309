"""The additive block: its arrays forward, and their gradients backward."""

from pictures.flow import ARRAY, OPERATION, Flow, legend, rows
from pictures.picture import Picture
from svg import NAME, SMALL, Drawing, text_width

# Columns: the skip from the stream, the outer skip (h, then r), the main path, key, value; and LOGITS, the centre of
# the logits' operations.
STREAM, AROUND, MAIN, KEY, VALUE = 12, 66, 206, 282, 334
LOGITS = 114
# Rows, named by their content, and additional space before some of them.
ROWS = rows(
    "x norm h maps q pool P drop z mix p first r mid t pool_2 u second out".split(),
    {"q": 4, "pool": 16, "P": 14, "pool_2": 16, "u": 14, "second": 10, "out": 6},
)


class Additive(Flow):
    """The block with its two poolings and two gates."""

    def weight(self, right: float, row: str, name: str, equation: int) -> None:
        """The gradient of a weight, to the left of its operation; the operation begins at `right`."""
        d, y = self.drawing, self.at[row]
        d.arrow([(right, y), (right - 16, y)], "backward")
        d.text(right - 20, y + 4, name, SMALL, "end", "backward")
        self.tag(right - 24 - text_width(name, SMALL), y, equation, "end", "backward")

    def pooling(self, payload: str, row: str, pooled: str, logits: str, vector: str, tags: dict[str, int]) -> None:
        """A pooling: its input also gives its logits."""
        d, top, y = self.drawing, self.at[payload], self.at[row]
        d.pair([(MAIN - 15, top), (LOGITS, top), (LOGITS, y - OPERATION / 2)])
        self.tag(LOGITS + 11, (top + y) / 2 + 2, tags["d_logits"], "start", "backward")
        d.pair([(LOGITS + 28, y), (MAIN - 26, y)])
        d.text((LOGITS + MAIN) / 2, y - 11, logits, NAME)
        self.tag((LOGITS + MAIN) / 2, y + 17, tags["logits"], "middle", "forward")
        d.arrow([(LOGITS, y + OPERATION / 2), (LOGITS, y + OPERATION / 2 + 13)], "backward")
        d.text(LOGITS, y + OPERATION / 2 + 25, f"d_{vector}", SMALL, fill="backward")
        self.operation(LOGITS, row, "logits", "pooling_logits", 56)
        self.into(MAIN, payload, row, tags["d_pool"])
        self.operation(MAIN, row, "pool", "pooling", 52)
        self.out_of(MAIN, row, pooled, tags["pool"])

    def maps(self) -> None:
        """h feeds three maps; their gradients are added."""
        d, at = self.drawing, self.at
        top = at["maps"] - OPERATION / 2
        d.pair([(AROUND + 15, at["h"]), (VALUE, at["h"]), (VALUE, top)])
        for x in (MAIN, KEY):
            d.arrow([(x - 5, at["h"] + 5), (x - 5, top)], "forward")
            d.line([(x + 5, top), (x + 5, at["h"] - 5)], "backward")
            d.circle(x - 5, at["h"] + 5, 1.5, "forward", "forward")
            d.circle(x + 5, at["h"] - 5, 1.5, "backward", "backward")
        for x, label, width, name in ((MAIN, "query", 50, "*q*"), (KEY, "key", 40, "*k*"), (VALUE, "value", 44, "*v*")):
            self.operation(x, "maps", label, "linear", width)
            self.out_of(x, "maps", "q", 2)
            self.array(x, "q", name)
        self.tag(AROUND + 20, at["h"] - 14, 24, "start", "backward")
        self.weight(MAIN - 25, "maps", "weights", 23)

    def gates(self) -> None:
        """Both products, with their operands on the left and right."""
        d, at = self.drawing, self.at
        d.pair([(AROUND, at["h"] + ARRAY / 2), (AROUND, at["first"]), (MAIN - 42, at["first"])])
        for x, row, half, equation in ((KEY, "first", 42, 17), (VALUE, "second", 64, 13)):
            d.pair([(x, at["q"] + ARRAY / 2), (x, at[row]), (MAIN + half, at[row])])
            self.tag(x - 11, at["pool"], equation, "end", "backward")
        d.pair(
            [(MAIN - 15, at["r"]), (AROUND, at["r"]), (AROUND, at["second"] - 8), (MAIN - 64, at["second"] - 8)],
            gap=4,
            dashed=True,
        )
        d.pair(
            [(AROUND - 15, at["x"]), (STREAM, at["x"]), (STREAM, at["second"] + 8), (MAIN - 64, at["second"] + 8)],
            gap=4,
            dashed=True,
        )
        self.operation(MAIN, "first", "*h* + *p* *k*", "gate", 84)
        self.operation(MAIN, "second", "skip + drop(*u*) *v*", "gate", 128)
        d.text(AROUND + 14, at["second"] - 26, "normed", SMALL, "start", "faint")
        self.tag(AROUND + 18 + text_width("normed", SMALL), at["second"] - 30, 12, "start", "forward")
        d.text(AROUND - 30, at["second"] + 30, "stream", SMALL, "start", "faint")
        self.tag(AROUND - 26 + text_width("stream", SMALL), at["second"] + 26, 11, "start", "forward")


def paint(d: Drawing) -> None:
    flow = Additive(d, "additive", ROWS)
    legend(d, 236, "one of the two")
    flow.into(AROUND, "x", "norm", 25)
    flow.out_of(AROUND, "norm", "h", 1)
    flow.gates()
    flow.maps()
    flow.pooling("q", "pool", "P", "*a*", "query_pool", {"d_logits": 22, "logits": 3, "d_pool": 21, "pool": 4})
    flow.into(MAIN, "P", "drop", 20)
    flow.out_of(MAIN, "drop", "z", 5)
    flow.into(MAIN, "z", "mix", 19)
    flow.out_of(MAIN, "mix", "p", 6)
    flow.into(MAIN, "p", "first", 17)
    flow.out_of(MAIN, "first", "r", 7)
    flow.into(MAIN, "r", "mid", 16)
    flow.out_of(MAIN, "mid", "t", 8)
    flow.pooling("t", "pool_2", "u", "*e*", "key_pool", {"d_logits": 15, "logits": 9, "d_pool": 14, "pool": 10})
    flow.into(MAIN, "u", "second", 13)
    flow.out_of(MAIN, "second", "out")
    flow.operation(AROUND, "norm", "layernorm", "layernorm", 84)
    flow.operation(MAIN, "drop", "dropout", "dropout", 64)
    flow.operation(MAIN, "mix", "mix", "linear", 44)
    flow.weight(MAIN - 22, "mix", "d_mix", 18)
    flow.operation(MAIN, "mid", "layernorm_mid", "layernorm", 104)
    for row, name, x in (
        ("x", "*x*", AROUND),
        ("h", "*h*", AROUND),
        ("P", "*P*", MAIN),
        ("z", "*z*", MAIN),
        ("p", "*p*", MAIN),
        ("r", "*r*", MAIN),
        ("t", "*t*", MAIN),
        ("u", "*u*", MAIN),
        ("out", "out", MAIN),
    ):
        flow.array(x, row, name)


PICTURES = [
    Picture(
        name="additive-flow",
        page="blocks/additive",
        after="Backward",
        title="Data flow of the additive block",
        description=(
            "From top to bottom: layernorm of x gives h; three linear maps of h give query, key and value. The query gives "
            "logits, and is pooled with them. Dropout and a linear map of the pooled query, times the key, plus h give r. "
            "Layernorm of r gives t; t gives logits, and is pooled with them. Dropout of this average times the value, plus "
            "x or r, is the output. Next to every arrow down, an arrow up shows the gradient. Numbers are equations of "
            "this chapter."
        ),
        caption=(
            "The block with own values and a projection. Numbers are tags: (4) is (additive.4). Gradients of the same array are "
            "added: d_q and d_t each have one term from the pooling and one from its logits; d_h has four terms."
        ),
        width=360,
        height=ROWS["out"] + 20,
        paint=paint,
        has_links=True,
    )
]
