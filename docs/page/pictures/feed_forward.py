"""The feed-forward block: its arrays forward, their widths, and their gradients backward."""

from pictures.flow import Flow, legend, made_faults, rows
from pictures.picture import Constant, Picture
from svg import SMALL, Drawing

STREAM, MAIN = 14, 206  # columns
ROWS = rows("x norm h up wide act hidden down y drop out".split(), {})
MADE = {"h": 1, "up_bcf": 2, "hidden": 3, "y": 4, "out": 5, "d_y": 6, "d_down_df": 7, "d_hidden": 8, "d_up_bcf": 9}
MADE |= {"d_up_fd": 10, "d_h": 11, "d_x": 12}
FACTOR = "4"  # F of a D
NARROW = 54  # pixels of D channels


def paint(d: Drawing) -> None:
    f = Flow(d, "ffn", ROWS)
    legend(d, 254)
    f.into(MAIN, "x", "norm", MADE["d_x"])
    f.out_of(MAIN, "norm", "h", MADE["h"])
    f.into(MAIN, "h", "up", MADE["d_h"])
    f.out_of(MAIN, "up", "wide", MADE["up_bcf"])
    f.into(MAIN, "wide", "act", MADE["d_up_bcf"])
    f.out_of(MAIN, "act", "hidden", MADE["hidden"])
    f.into(MAIN, "hidden", "down", MADE["d_hidden"])
    f.out_of(MAIN, "down", "y", MADE["y"])
    f.into(MAIN, "y", "drop", MADE["d_y"])
    f.out_of(MAIN, "drop", "out", MADE["out"])
    f.around(MAIN - NARROW / 2 + 15, STREAM, "x", "drop", MAIN - 58)
    for row, label, layer, width in (
        ("norm", "layernorm", "layernorm", 84),
        ("up", "linear", "linear", 52),
        ("act", "gelu", "gelu", 52),
        ("down", "linear", "linear", 52),
        ("drop", "*x* + dropout(*y*)", "dropout", 116),
    ):
        f.operation(MAIN, row, label, layer, width)
    f.weights(MAIN - 26, "up", MADE["d_up_fd"])
    f.weights(MAIN - 26, "down", MADE["d_down_df"])
    for row, name, channels in (
        ("x", "*x*", ""),
        ("h", "*h*", "*D* channels"),
        ("wide", "up", ""),
        ("hidden", "hidden", ""),
        ("y", "*y*", "*D* channels"),
        ("out", "out", ""),
    ):
        wide = row in ("wide", "hidden")
        f.array(MAIN, row, name, NARROW * (int(FACTOR) if wide else 1))
        if channels:
            d.text(MAIN + NARROW / 2 + 10, ROWS[row] + 4, channels, SMALL, "start", "faint")
    d.text(MAIN + 40, ROWS["act"] + 4, f"*F* = {FACTOR} *D* channels", SMALL, "start", "faint")


PICTURES = [
    Picture(
        name="ffn-flow",
        page="blocks/ffn",
        after="Forward",
        title="Data flow of the feed-forward block",
        description=(
            f"From top to bottom: layernorm of x gives h, with D channels; a linear map gives up, with {FACTOR} D channels; "
            "GELU of each element gives hidden; a second linear map gives y, with D channels; x plus dropout of y is the "
            "output. A second path leads x around the block to this sum. Next to every arrow down, an arrow up shows "
            "the gradient. Numbers are equations of this chapter."
        ),
        caption="Positions are independent. The width of an oval is the width of the row. Numbers are tags: (4) is (ffn.4).",
        width=360,
        height=ROWS["out"] + 20,
        paint=paint,
        constants=(Constant("src/blocks/ffn.hpp", r"By default, F = (\d) D\.\n", FACTOR),),
        more_faults=lambda root: made_faults(root, "ffn", "src/blocks/ffn.hpp", MADE),
        has_links=True,
    )
]
