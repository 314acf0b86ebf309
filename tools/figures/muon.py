"""Figures of docs/layers/muon.md."""

import math

import numpy


def figures() -> None:
    """What the rounds do to a singular value, how long the step is after them, what bf16 rounds off, and what they cost."""
    linear, cubic, quintic = 3.4445, -4.7750, 2.0315

    def rounds(value: float, count: int) -> float:
        for _ in range(count):
            value = linear * value + cubic * value**3 + quintic * value**5
        return value

    root = math.sqrt(9 * cubic**2 - 20 * quintic * linear)
    for name, sign in (("largest", -1), ("least", 1)):
        s = math.sqrt((-3 * cubic + sign * root) / (10 * quintic))
        print(f"p is {name} at s = {s:.4f}: p(s) = {rounds(s, 1):.4f}, p(p(s)) = {rounds(s, 2):.4f}")
    fixed = math.sqrt((-cubic - math.sqrt(cubic**2 - 4 * quintic * (linear - 1))) / (2 * quintic))
    slope = linear + 3 * cubic * fixed**2 + 5 * quintic * fixed**4
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
            x = (linear * numpy.identity(O) + cubic * gram + quintic * gram @ gram) @ x
        print(f"{O} x {I}: {0.2 * math.sqrt(max(O, I)) * math.sqrt((x * x).mean()):.4f}")

    x = numpy.random.default_rng(1).standard_normal(1000000)
    mantissa, exponent = numpy.frexp(x)
    rounded = numpy.ldexp(numpy.round(256 * mantissa) / 256, exponent)
    error = math.sqrt(((rounded - x) ** 2).sum() / (x * x).sum())
    print(f"rounding to bf16 errs by {error:.2%} of the length of a vector of normal numbers; five rounds raise a small value"
          f" by {linear**5:.0f}, and the error to {linear**5 * error:.2f} of the length")

    for preset, D, tokens, layers in (("tiny", 128, 768, 4), ("baby", 384, 16384, 6)):
        # Of a layer with shared values and no projection: query and key, up and down.
        shapes = 2 * [(D, D)] + 2 * [(D, 4 * D)]
        weights = layers * sum(S * L for S, L in shapes)
        products = layers * sum(10 * S * S * (2 * L + S) for S, L in shapes)
        print(f"{preset}, {tokens} tokens: products of a feed-forward matrix {15 * D / (4 * tokens):.1%} of its step")
        share = products / (6 * weights * tokens)
        print(f"{preset}, all {weights:,} weights: {products:.2e} flops, {share:.1%} of their step; in bf16 the passes"
              f" between them move {34 * weights:.2e} bytes")
