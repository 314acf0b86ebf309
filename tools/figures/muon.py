"""Figures of docs/layers/muon.md."""

import math

import numpy

LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315


def bf16(x: numpy.ndarray) -> numpy.ndarray:
    mantissa, exponent = numpy.frexp(x)
    return numpy.ldexp(numpy.round(256 * mantissa) / 256, exponent)


def split(x: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """High and low bf16 parts of x."""
    high = bf16(x)
    return high, bf16(x - high)


def sum_of_split(x: numpy.ndarray) -> numpy.ndarray:
    high, low = split(x)
    return high + low


def split_product(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    return a_high @ b_high + a_high @ b_low + a_low @ b_high


def step_error(gradient: numpy.ndarray, split_rounds: int) -> float:
    """Error of five rounds: the first `split_rounds` with split products, the others in bf16."""
    wanted = got = gradient / numpy.linalg.norm(gradient)
    for r in range(5):
        gram = wanted @ wanted.T
        wanted = LINEAR * wanted + (CUBIC * gram + QUINTIC * gram @ gram) @ wanted
        store, product = (sum_of_split, split_product) if r < split_rounds else (bf16, numpy.matmul)
        got = store(got)
        gram = store(product(got, got.T))
        polynomial = store(CUBIC * gram + QUINTIC * product(gram, gram))
        got = LINEAR * got + product(polynomial, got)
    return float(numpy.linalg.norm(bf16(got) - wanted) / numpy.linalg.norm(wanted))


def figures() -> None:
    """Effect of rounds on a singular value, length of a step, error in bf16, and cost."""

    def rounds(value: float, count: int) -> float:
        for _ in range(count):
            value = LINEAR * value + CUBIC * value**3 + QUINTIC * value**5
        return value

    root = math.sqrt(9 * CUBIC**2 - 20 * QUINTIC * LINEAR)
    for name, sign in (("largest", -1), ("least", 1)):
        s = math.sqrt((-3 * CUBIC + sign * root) / (10 * QUINTIC))
        print(f"p is {name} at s = {s:.4f}: p(s) = {rounds(s, 1):.4f}, p(p(s)) = {rounds(s, 2):.4f}")
    fixed = math.sqrt((-CUBIC - math.sqrt(CUBIC**2 - 4 * QUINTIC * (LINEAR - 1))) / (2 * QUINTIC))
    slope = LINEAR + 3 * CUBIC * fixed**2 + 5 * QUINTIC * fixed**4
    print(f"p(s) = s at s = {fixed:.4f}, where the slope is {slope:.2f}")
    for count in (3, 5):
        after = [rounds(i / 10000, count) for i in range(10001)]
        first = 1 + max(i for i, value in enumerate(after) if value < 0.68)
        least, most = min(after[first:]), max(after[first:])
        print(f"{count} rounds take {first / 10000:.4f} to 1, in steps of 1e-4, to {least:.4f} to {most:.4f}")
    for start in (0.0016, 0.018):
        count, value = 0, start
        while value < 0.68:
            count, value = count + 1, (15 * value - 10 * value**3 + 3 * value**5) / 8
        print(f"15/8, -10/8, 3/8: {start} is above 0.68 after {count} rounds")

    print("root mean square of a step for a learning rate of 1, five rounds, a gradient of normal numbers, seed 1")
    for O, I in ((128, 512), (384, 1536), (128, 128), (384, 384)):
        x = numpy.random.default_rng(1).standard_normal((O, I))
        x /= numpy.sqrt((x * x).sum())
        for _ in range(5):
            gram = x @ x.T
            x = (LINEAR * numpy.identity(O) + CUBIC * gram + QUINTIC * gram @ gram) @ x
        print(f"{O} x {I}: {0.2 * math.sqrt(max(O, I)) * math.sqrt((x * x).mean()):.4f}")

    x = numpy.random.default_rng(1).standard_normal(1000000)
    error = numpy.linalg.norm(bf16(x) - x) / numpy.linalg.norm(x)
    print(f"rounding to bf16 errs by {error:.2%}, which three rounds raise to {LINEAR**3 * error:.2f}, five to"
          f" {LINEAR**5 * error:.2f}")
    print("error of a step of 64 x 64, the first 0 to 3 rounds in split products, the others in bf16")
    for rank in (1, 4, 16, 64):
        draw = numpy.random.default_rng(1)
        gradient = draw.standard_normal((64, rank)) @ draw.standard_normal((rank, 64))
        print(f"rank {rank}:", *(f"{step_error(gradient, count):.1%}" for count in range(4)))

    for preset, D, tokens, layers in (("tiny", 128, 768, 4), ("baby", 384, 16384, 6)):
        # The matrices of a layer with shared values and no projection: query and key, up and down.
        shapes = 2 * [(D, D)] + 2 * [(D, 4 * D)]
        weights = layers * sum(S * L for S, L in shapes)
        products = layers * sum(10 * S * S * (2 * L + S) for S, L in shapes)
        print(f"{preset}, {tokens} tokens: products of a feed-forward matrix {15 * D / (4 * tokens):.1%} of its step")
        share = products / (6 * weights * tokens)
        print(f"{preset}, all {weights:,} weights: {products:.2e} flops, {share:.1%} of their step; in bf16 the passes"
              f" between them move {34 * weights:.2e} bytes")
