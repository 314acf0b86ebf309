"""The rows of docs/peers.md: one measurement per row, which takes the functions of a library.

Each other file in this folder measures one library: it defines functions with @cell(ROW), which return the text of a
cell, usually with a measurement of this file, and ends with main(). Needs NumPy.
"""

import math
import sys

import numpy as np

CELLS = {}
MIXED = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1]], bool)  # the middle query attends to no key


def cell(*rows):
    """Registers a function that measures these rows. For several rows the function takes the row as its argument."""

    def listed(function):
        for row in rows:
            CELLS[row] = (lambda row=row: function(row)) if len(rows) > 1 else function
        return function

    return listed


def main():
    """Prints `ROW VALUE` for the rows on the command line, or for all rows."""
    for row in sys.argv[1:] or CELLS:
        if row not in CELLS:
            sys.exit(f"{row}: expected one of {' '.join(CELLS)}")
        print(row, CELLS[row](), flush=True)


def normal(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- masks ----------------------------------------------------------------------------------------------------------


def kind(row, mean, zero=0.0):
    """Kind of an output row: zero, mean of the values, or NaN."""
    row = np.asarray(row, np.float64)
    if np.isnan(row).any():
        return "NaN"
    if np.allclose(row, zero, atol=1e-5):
        return "zero"
    return "mean" if np.allclose(row, mean, atol=1e-4) else f"other ({row.flat[0]:.3f})"


def masked_row(attend, mask):
    """attend(query, key, value, mask) on matrices (position, channel): kind of the output row of the query without
    keys."""
    query, key, value = (normal(3, 8, seed=seed) for seed in (1, 2, 3))
    return kind(np.asarray(attend(query, key, value, mask))[1], value.mean(0))


def added(low):
    """The mask as numbers to add to the scores."""
    return np.where(MIXED, 0, low).astype(np.float32)


def masked_gradient(gradients):
    """gradients(query, key, value, mask) of the sum of all outputs: finite or not."""
    parts = gradients(*(normal(3, 8, seed=seed) for seed in (1, 2, 3)), MIXED)
    return "finite" if all(np.isfinite(np.asarray(part)).all() for part in parts) else "NaN"


def aligned(attend):
    """attend(query, key, value), causal, with 2 queries and 5 keys: alignment of the mask."""
    out = np.asarray(attend(normal(2, 8), normal(5, 8, seed=2), np.eye(5, 8, dtype=np.float32)))
    seen = [int((row > 1e-6).sum()) for row in out]
    return {(1, 2): "top left", (4, 5): "bottom right", (5, 5): "none"}.get(tuple(seen), f"attends to {seen}")


def later_tokens(outputs):
    """outputs(x) of rows (position, channel), causal: change of earlier rows if a later token changes."""
    x = normal(24, 32)
    changed = x.copy()
    changed[-1] = 10 * normal(32, seed=9)
    before, after = np.asarray(outputs(x))[:-1], np.asarray(outputs(changed))[:-1]
    moved = float(np.abs(before - after).max() / np.abs(before).max())
    return "no" if moved < 1e-5 else f"by {100 * moved:.0f} %"


# ---- positions ------------------------------------------------------------------------------------------------------


def slopes(values):
    """Kind of the ALiBi slopes for 6 heads."""
    values = np.sort(np.abs(np.asarray(values, np.float64)).ravel())[::-1]
    formula = 2.0 ** (-8 * np.arange(1, 7) / 6)
    interleaved = np.sort(2.0 ** -np.array([2, 4, 6, 8, 1, 3]))[::-1]
    return "formula" if np.allclose(values, formula, rtol=1e-3) else "interleaved" if np.allclose(values, interleaved, rtol=1e-3) else str(values.round(4).tolist())  # fmt: skip


def rotary(turn, channels):
    """turn(x) of rows (position, channel): pairs, rotated share of the channels, base."""
    shown = np.zeros((channels, channels))  # shown[channel]: output at position 1 for a one at this input channel
    for channel in range(channels):
        x = np.zeros((3, channels), np.float32)
        x[1, channel] = 1
        shown[channel] = np.asarray(turn(x))[1]
    share = int((np.abs(shown - np.eye(channels)).max(1) > 1e-7).sum())
    partner = 1 + int(np.abs(shown[0, 1:]).argmax())
    second = 2 if partner == 1 else 1
    angle = math.acos(shown[second, second])
    base = angle ** (-share / 2)
    pairs = "neighbours" if partner == 1 else "halves" if partner == share // 2 else f"0 and {partner}"
    return f"{pairs}, {share} of {channels}, base {float(f'{base:.3g}'):g}"


# ---- functions ------------------------------------------------------------------------------------------------------


def gelu(function):
    """function(x): the form."""
    x = 2.7
    got = float(np.asarray(function(np.array([x], np.float32)))[0])
    exact = x * 0.5 * (1 + math.erf(x / math.sqrt(2)))
    fitted = x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return "erf" if abs(got - exact) < 5e-5 else "tanh" if abs(got - fitted) < 5e-5 else f"other ({got:.5f})"


def layernorm(norm):
    """norm(x) of rows of 4: epsilon, and the divisor of the variance."""
    small = float(np.asarray(norm(np.array([[1e-2, -1e-2, 1e-2, -1e-2]], np.float32)))[0, 0])
    epsilon = (1e-2 / small) ** 2 - 1e-4
    large = float(np.asarray(norm(np.array([[1e3, -1e3, 1e3, -1e3]], np.float32)))[0, 0])
    divisor = "D" if abs(large - 1) < 1e-3 else "D - 1" if abs(large - math.sqrt(3 / 4)) < 1e-3 else "?"
    return f"{float(f'{epsilon:.1g}'):g}, {divisor}"


def smoothing(loss):
    """loss(logits, target, 0.1) for one row of 5 logits: target probability of the target class."""
    logits = normal(1, 5)
    log = logits[0] - np.log(np.exp(logits[0]).sum())
    a, V = 0.1, 5
    ways = {"1 - a + a/V": -(1 - a) * log[2] - a * log.mean(), "1 - a": -(1 - a) * log[2] - a / (V - 1) * (log.sum() - log[2])}
    got = float(np.asarray(loss(logits, np.array([2]), a)))
    return next((way for way, value in ways.items() if abs(got - value) < 1e-5), f"other ({got:.4f})")


def ignored(loss):
    """loss(logits, targets, ignored) for four rows, two of them with the ignored target: divisor of the mean."""
    logits, targets = normal(4, 5), np.array([2, 0, 4, 0])
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    total = -(log[0, 2] + log[2, 4])
    got = float(np.asarray(loss(logits, targets, np.array([False, True, False, True]))))
    return "targets left" if abs(got - total / 2) < 1e-5 else "all rows" if abs(got - total / 4) < 1e-5 else f"other ({got:.4f})"


# ---- numbers --------------------------------------------------------------------------------------------------------

COUNT = 2**20
TENTH = float(np.float32(0.1))
NARROW_TENTH = 0.10009765625  # 0.1 in bfloat16


def exact_sum(row):
    tenth = NARROW_TENTH if row.endswith("_bf16") else TENTH
    name = row.removesuffix("_bf16")
    return {"sum": COUNT * tenth, "mean": tenth, "norm": math.sqrt(COUNT) * tenth, "cumsum": COUNT * tenth,
            "logcumsumexp": math.log(COUNT)}[name]  # fmt: skip


def off(row, got):
    """Relative error of a sum of 2^20 equal numbers; for logcumsumexp the absolute error."""
    exact = exact_sum(row)
    error = abs(float(got) - exact) / (1 if row.startswith("logcumsumexp") else exact)
    return "exact" if error == 0 else f"{error:.0e}"


SUMS = ("sum", "mean", "norm", "cumsum", "logcumsumexp", "sum_bf16", "mean_bf16", "cumsum_bf16")


def narrowed(convert):
    """convert(array) from float32 to bfloat16 and back: ties, subnormal numbers, NaN."""
    tie = np.float32(1 + 2**-8)
    below = np.float32(2**-130)  # subnormal in both types
    odd_nan = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    got = np.asarray(convert(np.array([tie, below, odd_nan], np.float32))).astype(np.float64)
    rounding = "to even" if got[0] == 1 else "up" if got[0] > 1 else "?"
    return f"ties {rounding}, subnormal {'kept' if got[1] == float(below) else 'to 0' if got[1] == 0 else got[1]}, NaN {'kept' if np.isnan(got[2]) else got[2]}"  # fmt: skip


# ---- Muon -----------------------------------------------------------------------------------------------------------

SHAPES = ((8, 32), (32, 8), (16, 16))


def rounds(matrix):
    """Five Newton-Schulz rounds in float64."""
    x = matrix.astype(np.float64) / np.linalg.norm(matrix)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def muon_scale(steps):
    """steps(gradients) yields the steps of a weight (first dimension, second dimension) at learning rate 1. Returns the
    factors on the orthogonal matrix for shapes 8 x 32, 32 x 8 and 16 x 16."""
    factors = []
    for shape in SHAPES:
        gradient = normal(*shape)
        step = np.asarray(next(iter(steps([gradient]))))
        factors.append(np.linalg.norm(step) / np.linalg.norm(rounds(gradient)))
    return ", ".join(f"{factor:.2g}" for factor in factors)


def muon_correction(steps):
    """"yes" if the direction of the second step differs from that of the uncorrected Nesterov momentum."""
    first, second = normal(16, 16), normal(16, 16, seed=2)
    step = np.asarray(list(steps([first, second]))[1])
    moment = 0.95 * first + second
    expected = rounds(second + 0.95 * moment)
    difference = np.linalg.norm(step / np.linalg.norm(step) - expected / np.linalg.norm(expected))
    return "no" if difference < 0.03 else f"yes (direction off by {difference:.2f})"


def muon_rank(rank):
    """Makes a measurement of steps: error of a step relative to its length, for a gradient of this rank."""

    def measured(steps):
        gradient = (normal(64, rank) @ normal(rank, 64, seed=2)).astype(np.float32)
        step, exact = np.asarray(next(iter(steps([gradient])))).astype(np.float64), rounds(gradient)
        step *= np.linalg.norm(exact) / np.linalg.norm(step) if rank == 64 else muon_factor(steps)
        return f"{100 * np.linalg.norm(step - exact) / np.linalg.norm(exact):.2g} %"

    return measured


def muon_factor(steps):
    """Factor from a step of a 64 x 64 matrix to the orthogonal matrix."""
    gradient = normal(64, 64)
    return np.linalg.norm(rounds(gradient)) / np.linalg.norm(np.asarray(next(iter(steps([gradient])))))


MUON = {"muon_scale": muon_scale, "muon_correction": muon_correction, "muon_rank_64": muon_rank(64), "muon_rank_1": muon_rank(1)}  # fmt: skip
