"""Encoder and decoder: two stacks, the memory between them, and the order of the backward pass."""

from pictures.flow import legend
from pictures.picture import Picture
from svg import SMALL, Drawing

WIDTH = 360
ENCODER, BUS, DECODER = 84, 176, 268  # columns
PITCH, TOP, BOX = 46, 82, 28
LAYERS = 2
BLOCKS = {ENCODER: ("mixer", "ffn"), DECODER: ("mixer", "cross", "ffn")}
LINKS = {
    "embedding": "../layers/embedding.html",
    "norm": "../layers/layernorm.html",
    "linear": "../layers/linear.html",
    "loss": "../layers/cross_entropy.html",
    "cross": "../blocks/cross.html",
    "ffn": "../blocks/ffn.html",
}
ENDS = {ENCODER: ("norm", "memory"), DECODER: ("norm", "linear", "loss")}


def rows(column: int) -> list[str]:
    return ["tokens", "embedding", *BLOCKS[column] * LAYERS, *ENDS[column]]


def y_of(row: int) -> float:
    return TOP + row * PITCH


def panels(d: Drawing, column: int) -> None:
    """A panel for the blocks of each layer."""
    count = len(BLOCKS[column])
    for layer in range(LAYERS):
        first = 2 + layer * count
        top = y_of(first) - BOX / 2 - 6
        d.rectangle(column - 52, top, 104, (count - 1) * PITCH + BOX + 12, "panel", "rule", radius=6)


def stack(d: Drawing, column: int, name: str) -> None:
    panels(d, column)
    names = rows(column)
    for row, (one, following) in enumerate(zip(names, names[1:])):
        d.pair([(column, y_of(row) + (12 if one == "tokens" else BOX / 2)), (column, y_of(row + 1) - BOX / 2)])
    for row, one in enumerate(names):
        y = y_of(row)
        if one in ("tokens", "memory"):
            d.box(column - 38, y - 12, 76, 24, name if one == "tokens" else one, 14, "paper", "ink", radius=12)
            continue
        if one not in LINKS:
            d.box(column - 40, y - BOX / 2, 80, BOX, one, fill="paper")
            continue
        with d.link(LINKS[one], {"ffn": "feed-forward block", "cross": "cross-attention block"}.get(one, f"layer of {one}")):
            d.box(column - 40, y - BOX / 2, 80, BOX, one, fill="paper", ink="link")


def memory(d: Drawing) -> None:
    """Lines from the memory to the cross-attention of every layer; backward the gradients are added."""
    start = y_of(rows(ENCODER).index("memory"))
    crossed = [y_of(row) for row, name in enumerate(rows(DECODER)) if name == "cross"]
    d.pair([(ENCODER + 38, start), (BUS, start), (BUS, crossed[0]), (DECODER - 40, crossed[0])])
    for y in crossed[1:]:
        d.arrow([(BUS + 5, y + 5), (DECODER - 40, y + 5)], "forward")
        d.line([(DECODER - 40, y - 5), (BUS - 5, y - 5)], "backward")
        d.circle(BUS + 5, y + 5, 1.5, "forward", "forward")
        d.circle(BUS - 5, y - 5, 1.5, "backward", "backward")


def order(d: Drawing) -> None:
    """Parts of the backward pass in their order."""
    encoder, decoder = rows(ENCODER), rows(DECODER)
    for column, names, first, last, number in (
        (DECODER, decoder, "norm", "loss", 1),
        (DECODER, decoder, "mixer", "ffn", 2),
        (DECODER, decoder, "embedding", "embedding", 3),
        (ENCODER, encoder, "mixer", "norm", 4),
        (ENCODER, encoder, "embedding", "embedding", 5),
    ):
        end = len(names) - 1 - names[::-1].index(last)
        top, bottom = y_of(names.index(first)) - BOX / 2, y_of(end) + BOX / 2
        x = column + 60 if column == DECODER else column - 60
        turn = 5 if column == DECODER else -5
        d.line([(x - turn, top), (x, top), (x, bottom), (x - turn, bottom)], "backward")
        d.text(x + turn, (top + bottom) / 2 + 4, str(number), anchor="start" if column == DECODER else "end", fill="backward")


def paint(d: Drawing) -> None:
    legend(d, 8)
    d.text(ENCODER, 60, "encoder", bold=True)
    d.text(DECODER, 60, "decoder", bold=True)
    stack(d, ENCODER, "source")
    stack(d, DECODER, "target")
    memory(d)
    order(d)
    bottom = y_of(len(rows(DECODER)) - 1)
    d.text(WIDTH / 2, bottom + 36, "the decoder is given: begin *t*_{0} *t*_{1} ...", SMALL, fill="faint")
    d.text(WIDTH / 2, bottom + 54, "the loss compares with: *t*_{0} *t*_{1} ... end", SMALL, fill="faint")


PICTURES = [
    Picture(
        name="seq2seq-stacks",
        page="docs/seq2seq",
        after="The two stacks",
        title="Data flow of encoder and decoder",
        description=(
            f"Two stacks side by side. Left, the encoder: source tokens, embedding, {LAYERS} layers of a mixer and a "
            f"feed-forward block, a norm, and the memory. Right, the decoder: target tokens, embedding, {LAYERS} layers of "
            "a mixer, cross-attention and a feed-forward block, a norm, a linear map to logits, and the loss. The memory "
            "leads to the cross-attention of every decoder layer. Next to every arrow, a second arrow shows the gradient. "
            "The backward pass has five parts: loss and head, the layers of the decoder, the embedding of the target, the "
            "encoder, the embedding of the source."
        ),
        caption=(
            "Numbers show the order of the backward pass. The gradient of the memory is the sum over all layers of the "
            "decoder; part 4 starts when this sum is complete."
        ),
        width=WIDTH,
        height=y_of(len(rows(DECODER)) - 1) + 66,
        paint=paint,
        has_links=True,
    )
]
