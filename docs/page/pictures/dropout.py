"""Dropout of twelve elements: the random words, the factors, and the results forward and backward."""

from math import ceil

from pictures.picture import Constant, Picture
from svg import SMALL, Drawing, decimal

WIDTH = 360
FACTORS = ("0xD2511F53", "0xCD9E8D57")  # multipliers of the generator
KEYS = ("0x9E3779B9", "0xBB67AE85")
ROUNDS, SITE = "10", "3"  # the site of the embedding's dropout
SEED, STEPS, COUNT, P = 1, (0, 1), 12, 0.25
IN = (1.0, -0.5, 0.75, 1.25, -1.0, 0.5, 1.0, -0.75, 0.25, 1.5, -1.25, 0.75)
D_OUT = (0.5, 1.0, -0.5, 0.75, 1.0, -1.0, 0.25, 0.5, 1.25, -0.75, 0.5, 1.0)
LEFT, COLUMN = 62, 24
WORD = 44  # pixels for a word of 2^32


def philox_block(seed: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The four words of a counter, as computed by philox_block in src/base/random.hpp."""
    mask = 0xFFFFFFFF
    factor0, factor1 = (int(factor, 16) for factor in FACTORS)
    key0, key1 = seed & mask, seed >> 32
    for _ in range(int(ROUNDS)):
        low, high = factor0 * counter[0], factor1 * counter[2]
        counter = (high >> 32 ^ counter[1] ^ key0, high & mask, low >> 32 ^ counter[3] ^ key1, low & mask)
        key0, key1 = (key0 + int(KEYS[0], 16)) & mask, (key1 + int(KEYS[1], 16)) & mask
    return counter


def word(i: int, step: int) -> int:
    return philox_block(SEED, (i // 4, 0, step, int(SITE)))[i % 4]


def factor(i: int, step: int) -> float:
    return 1 / (1 - P) if word(i, step) >= ceil(P * 2**32) else 0.0


def name(d: Drawing, y: float, label: str, fill: str = "ink") -> None:
    d.text(LEFT - 8, y + 4, label, anchor="end", fill=fill)


def paint_words(d: Drawing, zero: float, step: int) -> None:
    """A bar for each word with the bound for dropped elements, and the factor under it."""
    name(d, zero - WORD / 2, "word")
    for i in range(COUNT):
        height = word(i, step) / 2**32 * WORD
        d.rectangle(LEFT + i * COLUMN + 4, zero - height, COLUMN - 8, height, "a" if factor(i, step) else "b", "none")
    bound = zero - P * WORD
    d.line([(LEFT, bound), (LEFT + COUNT * COLUMN, bound)], "backward", dashed=True)
    d.line([(LEFT, zero), (LEFT + COUNT * COLUMN, zero)], "faint", 1)
    name(d, zero + 16, "factor")
    for i in range(COUNT):
        d.text(LEFT + (i + 0.5) * COLUMN, zero + 20, "4/3" if factor(i, step) else "0", SMALL)


def paint_values(d: Drawing, zero: float, label: str, values: list[float], fill: str) -> None:
    name(d, zero, label, fill)
    for i, value in enumerate(values):
        height = value * 13
        d.rectangle(LEFT + i * COLUMN + 4, zero - max(height, 0), COLUMN - 8, abs(height), fill, "none")
    d.line([(LEFT, zero), (LEFT + COUNT * COLUMN, zero)], "faint", 1)


def paint(d: Drawing) -> None:
    for block in range(COUNT // 4):
        left = LEFT + 4 * block * COLUMN
        d.text(left + 2 * COLUMN, 14, f"block {block}", SMALL, fill="faint")
        d.brace(left + 3, left + 4 * COLUMN - 3, 20, -5)
    name(d, 34, "*i*")
    for i in range(COUNT):
        d.text(LEFT + (i + 0.5) * COLUMN, 38, str(i), SMALL, fill="faint")
    d.text(LEFT, 62, f"training step {STEPS[0]}", SMALL, "start", "faint")
    paint_words(d, 116, STEPS[0])
    factors = [factor(i, STEPS[0]) for i in range(COUNT)]
    for y, label, values, fill in (
        (176, "in", IN, "forward"),
        (224, "out", [f * x for f, x in zip(factors, IN)], "forward"),
        (272, "d_out", D_OUT, "backward"),
        (320, "d_in", [f * x for f, x in zip(factors, D_OUT)], "backward"),
    ):
        paint_values(d, y, label, list(values), fill)
    d.line([(4, 350), (WIDTH - 4, 350)], "rule")
    d.text(LEFT, 370, f"training step {STEPS[1]}", SMALL, "start", "faint")
    paint_words(d, 424, STEPS[1])


DROPPED = [[str(i) for i in range(COUNT) if not factor(i, step)] for step in STEPS]

PICTURES = [
    Picture(
        name="dropout-factors",
        page="layers/dropout",
        after="Backward",
        title=f"Dropout of {COUNT} elements with p = {P}",
        description=(
            f"{COUNT} columns, one for each element. A bar shows the random word of the element; a line at {P} of its range is "
            "the bound. If the word is below the bound, the factor is 0, else 4/3. Below are the input, the output, the "
            "gradient of the output and the gradient of the input: the same elements are 0 forward and backward. In training "
            f"step {STEPS[0]} these are {', '.join(DROPPED[0])}, in step {STEPS[1]} {', '.join(DROPPED[1])}."
        ),
        caption=(
            f"Random words of seed {SEED} at the site of the embedding's dropout. Four elements share a block of the generator. "
            "The backward pass draws the same words again; another training step draws other words."
        ),
        width=WIDTH,
        height=452,
        paint=paint,
        constants=(
            Constant("src/base/random.hpp", r"factor0 = (\w+),", FACTORS[0]),
            Constant("src/base/random.hpp", r"factor1 = (\w+);", FACTORS[1]),
            Constant("src/base/random.hpp", r"key0 \+= (\w+);", KEYS[0]),
            Constant("src/base/random.hpp", r"key1 \+= (\w+);", KEYS[1]),
            Constant("src/base/random.hpp", r"round < (\d+);", ROUNDS),
            Constant("src/base/random.hpp", r"embedding_dropout = (\d+);", SITE),
            Constant(
                "plain/dropout.cpp",
                r"return T\((.*)\);  // \(dropout.1\)",
                "word >= std::ceil(dropout.p * 0x1p32) ? 1 / (1 - dropout.p) : 0",
            ),
        ),
    )
]
