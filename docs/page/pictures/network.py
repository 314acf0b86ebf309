"""The map of the network: every layer and block is a link to its page.

Blocks, their layers, mixers and tooltips are read from the sources (Network); this file has the layout.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from pathlib import Path

import index
from pictures.picture import Picture
from sources import Calls, mixers, rooms
from svg import LINE, SMALL, TEXT, THICK, Drawing, text_width

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 360
TRUNK = 22  # column of the residual stream
LEFT, RIGHT = 10, 340  # left and right edges of boxes on the stream
INDENT = 48  # left edge of blocks beside the stream
CHIP = 27  # distance of two rows of layers in a block
TIE = 352  # column of the line from the token table to the logits
WAYS_OF_POOLING = ("pooling_decay", "pooling_sliding_window", "pooling_chunk", "pooling_bidirectional")


class Network:
    """The layers and blocks of a repository."""

    def __init__(self, root: Path) -> None:
        self.rooms = rooms(root)
        calls = Calls(root, self.rooms)
        self.layers_of = {room.name: calls.of_block(room) for room in self.rooms.values() if room.kind == "blocks"}
        self.block_of = mixers(root)  # block by mixer name
        self.sentences = dict(index.items(root))

    def mixers(self) -> list[tuple[str, ...]]:
        """In the order of the registry; mixers of the same block are together."""
        return [tuple(names) for _, names in groupby(self.block_of, self.block_of.__getitem__)]

    def room(self, name: str):
        return self.rooms[self.block_of.get(name, name)]

    def title(self, name: str) -> str:
        """The tooltip of a link: the sentence in the index."""
        return f"{name}: {self.sentences.get(self.room(name).chapter, '')}"


class Map:
    """The map, drawn from top to bottom; `y` is the current height."""

    def __init__(self, drawing: Drawing, network: Network):
        self.drawing, self.network, self.y = drawing, network, 8.0

    def link(self, name: str):
        """Links to the page of a layer, a block or a mixer."""
        return self.drawing.link(f"{self.network.room(name).page}.html", self.network.title(name))

    def page_box(self, name: str, x: float, y: float, width: float, dashed: bool = False) -> None:
        with self.link(name):
            self.drawing.box(x, y, width, 30, name, ink="link", dashed=dashed, bold=True)

    def flow(self, length: float = 18) -> None:
        """The stream, down to the next box."""
        self.drawing.arrow([(TRUNK, self.y), (TRUNK, self.y + length)], "forward", THICK)
        self.y += length

    def station(self, layer: str, note: str, optional: bool = False) -> float:
        """A layer on the stream itself. Returns the height of its middle."""
        d, height = self.drawing, 30
        with self.link(layer):
            d.rectangle(LEFT, self.y, RIGHT - LEFT, height, radius=5, dashed=optional)
            d.text(LEFT + 28, self.y + 19.5, layer, anchor="start", fill="link", bold=True)
        room = RIGHT - LEFT - 28 - 20 - text_width(layer, TEXT, bold=True)
        if text_width(note, SMALL) > room:
            raise ValueError(f"map: '{note}' does not fit")
        d.text(RIGHT - 10, self.y + 19.5, note, SMALL, "end", "faint")
        self.y += height
        return self.y - height / 2

    def name_of_block(self, block: str, x: float, y: float) -> float:
        """Returns the lower edge."""
        with self.link(block):
            self.drawing.text(x, y, block, 13, "start", "link", bold=True)
        return x + text_width(block, 13, bold=True)

    def panel(self, height: float, fill: str, left: float, right: float, dashed: bool = False) -> None:
        self.drawing.rectangle(left, self.y, right - left, height, fill, radius=6, dashed=dashed)

    def block(self, blocks: tuple[str, ...], note: str, left: float, right: float, dashed: bool = False) -> None:
        """A panel with the name of a block or of its mixers, and the layers that the block calls."""
        d, top, height = self.drawing, self.y, self.block_height(blocks[0], left, right)
        self.panel(height, "panel", left, right, dashed)
        end = left + 10.0
        for block in blocks:
            end = self.name_of_block(block, end, top + 19) + 12
        if note:
            d.text(right - 10, top + 19, note, SMALL, "end", "faint")
        if end + text_width(note, SMALL) > right - 10:
            raise ValueError(f"map: '{note}' does not fit")
        for layer, row, x, width in self.chips(blocks[0], left, right):
            with self.link(layer):
                d.box(x, top + 28 + CHIP * row, width, CHIP - 5, layer, SMALL, fill="paper", ink="link")
        self.y += height

    def branch(self, top: float, bottom: float) -> None:
        """The arrow from the stream to the top of a block, and the addition to the stream."""
        d = self.drawing
        d.arrow([(TRUNK, top + 14), (INDENT, top + 14)], "forward")
        d.arrow([(INDENT, bottom - 14), (TRUNK + 8, bottom - 14)], "forward")
        d.line([(TRUNK, top - 10), (TRUNK, bottom)], "forward", THICK)
        d.circle(TRUNK, bottom - 14, 7, stroke="forward")
        d.line([(TRUNK - 4, bottom - 14), (TRUNK + 4, bottom - 14)], "forward")
        d.line([(TRUNK, bottom - 18), (TRUNK, bottom - 10)], "forward")

    def mixers(self) -> None:
        """The panel of the mixers; each layer has one mixer."""
        d, top, left, right = self.drawing, self.y, INDENT + 7, RIGHT - 15
        heights = [self.block_height(names[0], left, right) for names in self.network.mixers()]
        self.panel(sum(heights) + 7 * len(heights) + 28, "none", INDENT, RIGHT - 8)
        d.text(INDENT + 10, top + 18, "mixer", 13, "start", bold=True)
        d.text(RIGHT - 18, top + 18, "one of these", SMALL, "end", "faint")
        self.y = top + 28
        for names in self.network.mixers():
            self.block(names, "", left, right)
            self.y += 7

    def chips(self, block: str, left: float, right: float) -> list[tuple[str, int, float, float]]:
        """The layers of a block in rows within its panel: layer, row, left edge, width."""
        placed, row, x = [], 0, left + 8
        for layer in self.network.layers_of[self.network.room(block).name]:
            width = text_width(layer, SMALL) + 10
            if x + width > right - 8:
                row, x = row + 1, left + 8
            placed.append((layer, row, x, width))
            x += width + 5
        return placed

    def block_height(self, block: str, left: float, right: float) -> float:
        rows = 1 + max((row for _, row, _, _ in self.chips(block, left, right)), default=-1)
        return 28 + CHIP * rows + 3


def paint(d: Drawing, network: Network) -> float:
    """Returns the lower edge."""
    m = Map(d, network)
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

    optimizers(m, m.y + 26)
    d.line([(LEFT, m.y), (RIGHT, m.y)], "rule", LINE)
    m.y += 12
    m.block(("cross",), "after the mixer of a decoder", LEFT, RIGHT)
    m.page_box("copy_rows", LEFT, m.y + 14, 94)
    d.text(LEFT + 102, m.y + 33, "copies rows from one chunk to the next", SMALL, "start", "faint")
    m.y += 58
    d.text(LEFT, m.y + 4, "pooling: decay, window, bidirectional, chunks", SMALL, "start", "faint")
    for i, layer in enumerate(WAYS_OF_POOLING):
        m.page_box(layer, LEFT + 145 * (i % 2), m.y + 12 + 38 * (i // 2), 137 + 48 * (i % 2))
    m.y += 98
    m.page_box("weighted_sum", LEFT, m.y, 118)
    d.text(LEFT + 126, m.y + 19, "two streams of a reversible network", SMALL, "start", "faint")
    m.y += 38
    m.page_box("kernel_regression", LEFT, m.y, 136)
    d.text(LEFT + 144, m.y + 19, "used in no network", SMALL, "start", "faint")
    m.y += 38
    others(m)
    return m.y


def others(m: Map) -> None:
    """Links to the pages that have no other place on the map."""
    rooms = [room for room in m.network.rooms.values() if f"{room.page}.html" not in m.drawing.addresses]
    if not rooms:
        return
    m.drawing.text(LEFT, m.y + 10, "other layers", SMALL, "start", "faint")
    m.y += 18
    x = LEFT
    for room in rooms:
        width = text_width(room.name, TEXT, bold=True) + 12
        if x + width > RIGHT:
            x, m.y = LEFT, m.y + 38
        m.page_box(room.name, x, m.y, width)
        x += width + 8
    m.y += 38


def optimizers(m: Map, top: float) -> None:
    """The operations on weights and gradients after the backward pass."""
    d, y, left = m.drawing, top + 32, 170
    d.line([(LEFT, top), (RIGHT, top)], "rule", LINE)
    d.text(LEFT, top + 20, "optimizer: gradients to weights", SMALL, "start", "faint")
    m.page_box("global_norm", LEFT, y + 22, 106)
    optimizers = (("muon", "matrices of", "linear maps"), ("adamw", "all other", "weights, or all"))
    for (layer, *note), row in zip(optimizers, (y, y + 44)):
        d.arrow([(LEFT + 106, y + 37), (144, y + 37), (144, row + 15), (left, row + 15)], "backward", radius=5)
        m.page_box(layer, left, row, 70)
        d.lines(left + 78, row + 12, note, 14, size=SMALL, anchor="start", fill="faint")
    d.arrow([(left + 35, y + 74), (left + 35, y + 92)], "forward")
    m.page_box("weight_average", left, y + 92, 128, dashed=True)
    d.text(left - 8, y + 111, "optional", SMALL, "end", "faint")
    m.y = y + 134


def picture(root: Path) -> Picture:
    network = Network(root)
    *names, last = network.block_of
    return Picture(
        name="map",
        page="index",
        after="",
        title="The network",
        description=(
            "From top to bottom: tokens, embedding, an optional layernorm, dropout. Then, for each layer, an optional "
            "convolution block, a mixer and a feed-forward block; each reads the residual stream and adds to it. Then "
            "layernorm, in a classifier a mean over positions, the logits, which use the token table again, and cross "
            f"entropy. The mixer is {', '.join(names)} or {last}. Below are the optimizers: global norm, Muon for the "
            "matrices of linear maps, AdamW for all other weights, and an optional average of all weights. Last come the "
            "cross-attention block of a decoder; copy_rows, which copies rows from one chunk of a sequence to the next; the "
            "other kinds of pooling; weighted_sum, for the two streams of a reversible network; kernel_regression, which no "
            "network uses; and other layers. Every box is a link to its page."
        ),
        caption="The network and its pages. The line on the left is the residual stream.",
        width=WIDTH,
        height=paint(Drawing("map", WIDTH, 0), network),
        paint=partial(paint, network=network),
        has_links=True,
    )


PICTURES = [picture(ROOT)]
