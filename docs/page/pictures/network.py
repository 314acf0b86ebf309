"""The map of the network: every layer and block is a link to its page."""

from pathlib import Path

from fault import Fault
from pictures.picture import Constant, Picture
from sources import Calls, rooms
from svg import LINE, SMALL, TEXT, THICK, Drawing, text_width

WIDTH = 360
TRUNK = 22  # where the residual stream runs
LEFT, RIGHT = 10, 340  # boxes that the stream passes through
INDENT = 48  # of the blocks that it passes by
CHIP = 27  # from one row of layers in a block to the next
TIE = 352  # where the table of tokens is handed to the logits

# The layers that each block calls, in the order in which it calls them first. Compared with its tagged lines.
BLOCKS = {
    "conv": ("layernorm", "causal_conv", "dropout"),
    "additive": ("layernorm", "linear", "pooling_logits", "pooling", "dropout", "gate"),
    "dot": ("layernorm", "linear", "rescale", "rotary", "attention", "gather_rows", "merge_softmax", "dropout"),
    "bahdanau": ("layernorm", "linear", "bahdanau_attention", "dropout"),
    "transformer_xl": ("layernorm", "linear", "relative_attention", "dropout"),
    "lsh": ("layernorm", "linear", "lsh_attention", "dropout"),
    "metric": ("layernorm", "linear", "metric_key", "rotary", "attention", "dropout"),
    "leap": ("layernorm", "linear", "rescale", "leap_logits", "pooling", "leap_gate", "dropout"),
    "average": ("layernorm", "pooling", "dropout"),
    "identity": ("layernorm", "dropout"),
    "ffn": ("layernorm", "linear", "gelu", "relu", "dropout"),
    "cross": ("layernorm", "linear", "attention", "dropout"),
}

# The tooltips of the links.
LAYER_TITLES = {
    "adaptive_span": "adaptive span: every head learns the length of its window",
    "adamw": "AdamW: updates every weight by two running means of its gradient",
    "attention": "attention: softmax attention in tiles, without storing the score matrix",
    "bahdanau_attention": "additive attention: a small network scores each pair of query and key",
    "causal_conv": "causal convolution: over the current and a few previous positions",
    "cross_entropy": "cross entropy: the loss of the logits",
    "dropout": "dropout: zeroes random elements in training",
    "embedding": "embedding: a vector per token and one per position",
    "gate": "gate: multiplies the pooled vector with another branch",
    "gather_rows": "gather rows: rows of a sequence in another order",
    "gelu": "GELU: the non-linearity of the feed-forward block",
    "global_norm": "global norm: clips the gradient by its global norm",
    "kernel_regression": "kernel regression: a mean of values, weighted by the distance of their keys",
    "layernorm": "layernorm: normalises a row to mean 0 and variance 1",
    "leap_gate": "gate of LEAP: query and pooled key gate the pooled value",
    "leap_logits": "logits of LEAP: focus times key, per position and head",
    "linear": "linear: multiplies every row by a matrix",
    "lsh_attention": "LSH attention: attention within hash buckets",
    "masked_mean": "masked mean: the mean over positions, for a classifier",
    "merge_softmax": "merge softmax: combines attention over parts of the keys",
    "metric_key": "keys of metric attention: from one projection and a learned metric",
    "muon": "Muon: updates a matrix by its orthogonalised gradient",
    "copy_rows": "copy_rows: copies rows from one chunk of a sequence to the next",
    "pooling": "pooling: a running average, weighted by one logit per position",
    "pooling_chunk": "pooling at a chunk border: one position replaces all earlier ones",
    "pooling_decay": "pooling with decay: earlier positions weigh less",
    "pooling_logits": "pooling logits: one number per position and head",
    "pooling_bidirectional": "bidirectional pooling: one average per sequence",
    "pooling_sliding_window": "pooling over a window: a merge of a suffix and a prefix",
    "relative_attention": "relative attention: content and distance, in segments with a memory",
    "relu": "ReLU: sets negative elements to zero",
    "rescale": "rescale: normalises each head to mean 0 and standard deviation 1",
    "rotary": "rotary: rotates queries and keys by their position",
    "weight_average": "weight average: the mean of the weights over many steps",
    "weighted_sum": "weighted sum: a weighted sum of two arrays, for reversible networks",
}
BLOCK_TITLES = {
    "conv": "convolution block: a causal convolution before a mixer",
    "additive": "additive block: two poolings and two gates, linear in the sequence length",
    "dot": "dot block: multi-head softmax attention",
    "metric": "metric block: one projection for queries, keys and values, with a learned metric",
    "quadratic": "quadratic block, in the chapter of metric: the metric block with an unconstrained matrix",
    "bahdanau": "Bahdanau block: scores from a small network of query plus key",
    "transformer_xl": "Transformer-XL block: attention in segments with a memory",
    "lsh": "LSH block: attention within hash buckets",
    "leap": "LEAP block: pooled keys and values, gated by the query",
    "average": "average block: the mean of all positions so far",
    "identity": "identity block: no interaction between positions",
    "ffn": "feed-forward block: applied to each position",
    "cross": "cross-attention block: queries from one sequence, keys and values from another",
}
WAYS_OF_POOLING = ("pooling_decay", "pooling_sliding_window", "pooling_chunk", "pooling_bidirectional")
PAGE_OF_BLOCK = {"quadratic": "metric"}  # a block without a chapter of its own
# Together: those that call the same layers.
MIXERS = (("additive",), ("metric", "quadratic"), ("dot",), ("bahdanau",), ("transformer_xl",), ("lsh",), ("leap",), ("average",), ("identity",))


class Map:
    """The map from top to bottom: `y` is how far down it has come."""

    def __init__(self, drawing: Drawing):
        self.drawing, self.y = drawing, 8.0

    def flow(self, length: float = 18) -> None:
        """The stream, down to the next box."""
        self.drawing.arrow([(TRUNK, self.y), (TRUNK, self.y + length)], "forward", THICK)
        self.y += length

    def station(self, layer: str, note: str, optional: bool = False) -> float:
        """A layer that the stream itself passes through. Returns the height of its middle."""
        d, height = self.drawing, 30
        with d.link(f"layers/{layer}.html", LAYER_TITLES[layer]):
            d.rectangle(LEFT, self.y, RIGHT - LEFT, height, radius=5, dashed=optional)
            d.text(LEFT + 28, self.y + 19.5, layer, anchor="start", fill="link", bold=True)
        room = RIGHT - LEFT - 28 - 20 - text_width(layer, TEXT, bold=True)
        if text_width(note, SMALL) > room:
            raise ValueError(f"map: '{note}' does not fit")
        d.text(RIGHT - 10, self.y + 19.5, note, SMALL, "end", "faint")
        self.y += height
        return self.y - height / 2

    def name_of_block(self, block: str, x: float, y: float) -> float:
        """Returns where it ends."""
        with self.drawing.link(f"blocks/{PAGE_OF_BLOCK.get(block, block)}.html", BLOCK_TITLES[block]):
            self.drawing.text(x, y, block, 13, "start", "link", bold=True)
        return x + text_width(block, 13, bold=True)

    def panel(self, height: float, fill: str, left: float, right: float, dashed: bool = False) -> None:
        self.drawing.rectangle(left, self.y, right - left, height, fill, radius=6, dashed=dashed)

    def block(self, blocks: tuple[str, ...], note: str, left: float, right: float, dashed: bool = False) -> None:
        """A panel with the name of a block, or of two that call the same layers, and these layers."""
        d, top, height = self.drawing, self.y, block_height(blocks[0], left, right)
        self.panel(height, "panel", left, right, dashed)
        end = left + 10.0
        for block in blocks:
            end = self.name_of_block(block, end, top + 19) + 12
        if note:
            d.text(right - 10, top + 19, note, SMALL, "end", "faint")
        if end + text_width(note, SMALL) > right - 10:
            raise ValueError(f"map: '{note}' does not fit")
        for layer, row, x, width in chips(blocks[0], left, right):
            with d.link(f"layers/{layer}.html", LAYER_TITLES[layer]):
                d.box(x, top + 28 + CHIP * row, width, CHIP - 5, layer, SMALL, fill="paper", ink="link")
        self.y += height

    def branch(self, top: float, bottom: float) -> None:
        """The read of the stream at the top of a block, and the addition to it."""
        d = self.drawing
        d.arrow([(TRUNK, top + 14), (INDENT, top + 14)], "forward")
        d.arrow([(INDENT, bottom - 14), (TRUNK + 8, bottom - 14)], "forward")
        d.line([(TRUNK, top - 10), (TRUNK, bottom)], "forward", THICK)
        d.circle(TRUNK, bottom - 14, 7, stroke="forward")
        d.line([(TRUNK - 4, bottom - 14), (TRUNK + 4, bottom - 14)], "forward")
        d.line([(TRUNK, bottom - 18), (TRUNK, bottom - 10)], "forward")

    def mixers(self) -> None:
        """The panel of the mixers; each layer has one of them."""
        d, top, left, right = self.drawing, self.y, INDENT + 7, RIGHT - 15
        heights = [block_height(blocks[0], left, right) for blocks in MIXERS]
        self.panel(sum(heights) + 7 * len(heights) + 28, "none", INDENT, RIGHT - 8)
        d.text(INDENT + 10, top + 18, "mixer", 13, "start", bold=True)
        d.text(RIGHT - 18, top + 18, "one of these", SMALL, "end", "faint")
        self.y = top + 28
        for blocks in MIXERS:
            self.block(blocks, "", left, right)
            self.y += 7


def chips(block: str, left: float, right: float) -> list[tuple[str, int, float, float]]:
    """The layers of a block in rows within its panel: layer, row, left edge, width."""
    placed, row, x = [], 0, left + 8
    for layer in BLOCKS[block]:
        width = text_width(layer, SMALL) + 10
        if x + width > right - 8:
            row, x = row + 1, left + 8
        placed.append((layer, row, x, width))
        x += width + 5
    return placed


def block_height(block: str, left: float, right: float) -> float:
    return 28 + CHIP * (chips(block, left, right)[-1][1] + 1) + 3


def paint(d: Drawing) -> None:
    m = Map(d)
    d.text(LEFT + 2, m.y + 12, "tokens", TEXT, "start")
    m.y += 18
    m.flow()
    embedding = m.station("embedding", "a vector per token and position")
    m.flow()
    m.station("layernorm", "optional", optional=True)
    m.flow()
    m.station("dropout", "in training")
    m.flow(16)

    frame = m.y
    d.line([(TRUNK, m.y), (TRUNK, m.y + 36)], "forward", THICK)
    d.text(RIGHT - 8, m.y + 18, "repeated for each layer", SMALL, "end", "faint")
    m.y += 28
    for name, note, dashed in (("conv", "optional", True), ("mixer", "", False), ("ffn", "", False)):
        top = m.y
        if name == "mixer":
            m.mixers()
        else:
            m.block((name,), note, INDENT, RIGHT - 8, dashed)
        m.branch(top, m.y)
        m.y += 10
    d.rectangle(2, frame, RIGHT - 2, m.y - frame, "none", "faint", radius=8)
    d.line([(TRUNK, m.y - 12), (TRUNK, m.y)], "forward", THICK)

    m.flow(20)
    m.station("layernorm", "optional", optional=True)
    m.flow()
    m.station("masked_mean", "in a classifier", optional=True)
    m.flow()
    logits = m.station("linear", "logits, from the token table")
    m.flow()
    m.station("cross_entropy", "the loss")
    d.arrow([(RIGHT, embedding), (TIE, embedding), (TIE, logits), (RIGHT, logits)], "faint", dashed=True, radius=5)

    m.y = optimizers(d, m.y + 26)
    d.line([(LEFT, m.y), (RIGHT, m.y)], "rule", LINE)
    m.y += 12
    m.block(("cross",), "after the mixer of a decoder", LEFT, RIGHT)
    with d.link("layers/copy_rows.html", LAYER_TITLES["copy_rows"]):
        d.box(LEFT, m.y + 14, 94, 30, "copy_rows", ink="link", bold=True)
    d.text(LEFT + 102, m.y + 33, "copies rows from one chunk to the next", SMALL, "start", "faint")
    m.y += 58
    d.text(LEFT, m.y + 4, "pooling: decay, window, bidirectional, chunks", SMALL, "start", "faint")
    for i, layer in enumerate(WAYS_OF_POOLING):
        with d.link(f"layers/{layer}.html", LAYER_TITLES[layer]):
            d.box(LEFT + 145 * (i % 2), m.y + 12 + 38 * (i // 2), 137 + 48 * (i % 2), 30, layer, ink="link", bold=True)
    m.y += 94
    m.y += 4
    with d.link("layers/weighted_sum.html", LAYER_TITLES["weighted_sum"]):
        d.box(LEFT, m.y, 118, 30, "weighted_sum", ink="link", bold=True)
    d.text(LEFT + 126, m.y + 19, "two streams of a reversible network", SMALL, "start", "faint")
    m.y += 38
    with d.link("layers/kernel_regression.html", LAYER_TITLES["kernel_regression"]):
        d.box(LEFT, m.y, 136, 30, "kernel_regression", ink="link", bold=True)
    d.text(LEFT + 144, m.y + 19, "used in no network", SMALL, "start", "faint")
    m.y += 38


def optimizers(d: Drawing, top: float) -> float:
    """The path from the gradients to the weights. Returns the lower edge."""
    d.line([(LEFT, top), (RIGHT, top)], "rule", LINE)
    d.text(LEFT, top + 20, "optimizer: gradients to weights", SMALL, "start", "faint")
    y, left = top + 32, 170
    with d.link("layers/global_norm.html", LAYER_TITLES["global_norm"]):
        d.box(LEFT, y + 22, 106, 30, "global_norm", ink="link", bold=True)
    optimizers = (("muon", "matrices of", "linear maps"), ("adamw", "all other", "weights, or all"))
    for (layer, *note), row in zip(optimizers, (y, y + 44)):
        d.arrow([(LEFT + 106, y + 37), (144, y + 37), (144, row + 15), (left, row + 15)], "backward", radius=5)
        with d.link(f"layers/{layer}.html", LAYER_TITLES[layer]):
            d.box(left, row, 70, 30, layer, ink="link", bold=True)
        d.lines(left + 78, row + 12, note, 14, size=SMALL, anchor="start", fill="faint")
    d.arrow([(left + 35, y + 74), (left + 35, y + 92)], "forward")
    with d.link("layers/weight_average.html", LAYER_TITLES["weight_average"]):
        d.box(left, y + 92, 128, 30, "weight_average", ink="link", dashed=True, bold=True)
    d.text(left - 8, y + 111, "optional", SMALL, "end", "faint")
    return y + 134


def blocks_faults(root: Path) -> list[Fault]:
    """Blocks whose lines call other layers than the map shows, and pages that the map does not link."""
    faults = []
    found = rooms(root)
    calls = Calls(root, found)
    for block, layers in BLOCKS.items():
        header = found[block].header
        called = {layer for line in header.lines if line.tags for layer in calls.of(header, header.statement(line.number))}
        for layer in sorted(called ^ set(layers)):
            what = "does not show" if layer in called else "shows, and it does not call,"
            faults.append(Fault(header.path, f"the picture map {what} the layer {layer} of this block"))
    for room in found.values():
        if room.name not in (LAYER_TITLES if room.kind == "layers" else BLOCKS):
            faults.append(Fault(room.chapter, "the picture map does not show this page"))
    return faults


PICTURES = [
    Picture(
        name="map",
        page="index",
        after="",
        title="The network",
        description=(
            "From top to bottom: tokens, embedding, an optional layernorm, dropout. Then, for each layer, an optional "
            "convolution block, a mixer and a feed-forward block; each reads the residual stream and adds to it. Then "
            "layernorm, in a classifier a mean over positions, the logits, which use the token table again, and cross "
            "entropy. The mixer is additive, metric, quadratic, dot, bahdanau, transformer_xl, lsh, leap, average or "
            "identity. Below are the optimizers: global norm, Muon for the matrices of linear maps, AdamW for all other "
            "weights, and an optional average of all weights. Then follow the cross-attention block of a decoder; copy_rows, "
            "which copies rows from one chunk of a sequence to the next; the other kinds of pooling; weighted_sum, for the "
            "two streams of a reversible network; and kernel_regression, which no network uses. Every box is a link to its "
            "page."
        ),
        caption="The network and its pages. The line on the left is the residual stream.",
        width=WIDTH,
        height=1896,
        paint=paint,
        constants=(
            Constant(
                "src/network/mixers.hpp",
                r"using Mixers = MixerList<((?:[\w,\s]|#if .*|#endif)*)>;",
                ", ".join("".join(map(str.capitalize, name.split("_"))) + "Mixer" for names in MIXERS for name in names),
            ),
        ),
        more_faults=blocks_faults,
        has_links=True,
    )
]
