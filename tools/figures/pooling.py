"""Figures of docs/layers/parts/pooling_digits.md, pooling_decay.md and pooling_sliding_window.md, as rows of their
tables."""

from typing import Optional

import numpy as np


def decayed(slope, logit_sc, x_sc, how: str):
    """Averages with decay `slope` per position, in the data type of the inputs. how: "pair" is (pooling_decay.2) and
    (pooling_decay.3). The chapter rejects the other methods: "grown" adds slope c to the logits and has no decay;
    "faded" keeps the maximum and multiplies the sum by e^-slope; "lowered" lowers the maximum by the slope at every
    position."""
    number = logit_sc.dtype.type
    top, age = logit_sc[:, 0], np.zeros_like(logit_sc[:, 0])
    total, fade = np.ones_like(top), np.exp(-slope) if how == "faded" else number(1)
    most, out_sc = top, x_sc.copy()
    for c in range(1, logit_sc.shape[1]):
        logit = logit_sc[:, c] + (slope * number(c) if how == "grown" else number(0))
        age = age + number(1)
        aged = top - slope * age if how == "pair" else most - slope if how == "lowered" else most
        new = logit >= aged
        top, age = np.where(new, logit, top), np.where(new, number(0), age)
        most = np.where(new, logit, aged)
        newcomer = np.exp(logit - most)
        total = total * (fade * np.exp(aged - most)) + newcomer
        out_sc[:, c] = out_sc[:, c - 1] + newcomer / total * (x_sc[:, c] - out_sc[:, c - 1])
    return out_sc


def figures() -> None:
    """Errors in float32 of the formulas of pooling, and of alternatives that the chapter rejects.

    There are 20 sequences (seeds 0 to 19) of 4,096 positions and 16 channels; printed errors are the median and the
    maximum over the sequences. Sums run from the first position to the last, one term at a time, the order of
    np.cumsum. The reference is the recurrence in float64. With decay the seeds are 20 to 39, with 65,536 positions and
    one channel.
    """
    seeds, C, K = 20, 4096, 16
    generators = [np.random.default_rng(seed) for seed in range(seeds)]
    normal_sc = np.stack([g.standard_normal(C) for g in generators]).astype(np.float32)
    x_sck = np.stack([g.standard_normal((C, K)) for g in generators]).astype(np.float32)
    d_out_sck = np.stack([g.standard_normal((C, K)) for g in generators]).astype(np.float32)

    def recurrence(logit_sc, x_sck, block: int = C, backwards: bool = False):
        """(pooling.2) to (pooling.5), restarted in every block: max, sum, average; in the data type of the inputs."""
        max_sc, sum_sc = np.empty_like(logit_sc), np.empty_like(logit_sc)
        out_sck = np.empty_like(x_sck)
        for c in range(C - 1, -1, -1) if backwards else range(C):
            before = c + 1 if backwards else c - 1
            if before in (-1, C) or before // block != c // block:
                max_sc[:, c], sum_sc[:, c], out_sck[:, c] = logit_sc[:, c], 1, x_sck[:, c]
                continue
            max_sc[:, c] = np.maximum(max_sc[:, before], logit_sc[:, c])
            newcomer = np.exp(logit_sc[:, c] - max_sc[:, c])
            sum_sc[:, c] = sum_sc[:, before] * np.exp(max_sc[:, before] - max_sc[:, c]) + newcomer
            alpha = (newcomer / sum_sc[:, c])[:, None]
            out_sck[:, c] = out_sck[:, before] + alpha * (x_sck[:, c] - out_sck[:, before])
        return max_sc, sum_sc, out_sck

    def window(logit_sc, x_sck, w: int):
        """(pooling_sliding_window.1) to (pooling_sliding_window.3)."""
        max_sc, sum_sc, out_sck = recurrence(logit_sc, x_sck, w)
        suffix_max, suffix_sum, suffix = recurrence(logit_sc, x_sck, w, backwards=True)
        for c in range(w, C):
            first = c - w + 1
            if first % w == 0:
                continue
            most = np.maximum(suffix_max[:, first], max_sc[:, c])
            older = suffix_sum[:, first] * np.exp(suffix_max[:, first] - most)
            gamma = (older / (older + sum_sc[:, c] * np.exp(max_sc[:, c] - most)))[:, None]
            out_sck[:, c] += gamma * (suffix[:, first] - out_sck[:, c])
        return out_sck

    def sums(logit_sc, x_sck, w: Optional[int] = None):
        """The formula as written: two cumulative sums. A window uses the differences of the sums at its ends."""
        weight = np.exp(logit_sc)
        top, bottom = np.cumsum(weight[:, :, None] * x_sck, axis=1), np.cumsum(weight, axis=1)
        if w:
            top[:, w:], bottom[:, w:] = top[:, w:] - top[:, :-w], bottom[:, w:] - bottom[:, :-w]
        return top / bottom[:, :, None]

    def lost(got) -> float:
        """Percentage of results that are not finite."""
        return 100 * (1 - np.isfinite(got).mean())

    def number(x: float) -> str:
        return f"{x:.1e}".replace("e-0", "e-") if x < 0.1 else f"{x:.1f}"

    def percent(x: float) -> str:
        return f"{x:.2g} %" if x < 99.5 else f"{x:.0f} %"

    def cell(got, expected) -> str:
        """Largest error among the finite results of each seed: median and maximum over the seeds."""
        finite = np.isfinite(got)
        error_s = np.where(finite, np.abs(np.where(finite, got, 0) - expected), 0).reshape(seeds, -1).max(axis=1)
        words = [] if lost(got) == 100 else [f"{number(np.median(error_s))}, {number(error_s.max())}"]
        return "; ".join(words + ([f"{percent(lost(got))} not finite"] if lost(got) > 0 else []))

    def backward(logit_sc, x_sck, d_out_sck):
        """d_logit by two methods: from kappa and drift, (pooling.6) to (pooling.11), and from x . d_x and rho."""
        max_sc, sum_sc, out_sck = recurrence(logit_sc, x_sck)
        alpha_sc = np.exp(logit_sc - max_sc) / sum_sc
        beta_sc = np.zeros_like(alpha_sc)
        beta_sc[:, 1:] = sum_sc[:, :-1] * np.exp(max_sc[:, :-1] - max_sc[:, 1:]) / sum_sc[:, 1:]
        by_drift, by_rho = np.empty_like(alpha_sc), np.empty_like(alpha_sc)
        adjoint, drift, rho = np.zeros_like(x_sck[:, 0]), np.zeros_like(alpha_sc[:, 0]), np.zeros_like(alpha_sc[:, 0])
        beta_next = np.zeros_like(drift)
        for c in range(C - 1, -1, -1):
            alpha, x, out, d_out = alpha_sc[:, c], x_sck[:, c], out_sck[:, c], d_out_sck[:, c]
            adjoint = d_out + beta_next[:, None] * adjoint
            kappa = ((x - out) * adjoint).sum(axis=1)
            by_drift[:, c] = alpha * (kappa + drift)
            drift = beta_sc[:, c] * drift - alpha * kappa
            rho = (d_out * out).sum(axis=1) + beta_next * rho
            by_rho[:, c] = (x * (alpha[:, None] * adjoint)).sum(axis=1) - alpha * rho
            beta_next = beta_sc[:, c]
        return by_drift, by_rho

    def by_zeta(logit_sc, x_sck):
        """The recurrence with one number, zeta = max + log sum, instead of two."""
        zeta, out_sck = logit_sc[:, 0], x_sck.copy()
        for c in range(1, C):
            logit = logit_sc[:, c]
            zeta = np.maximum(zeta, logit) + np.log1p(np.exp(-np.abs(zeta - logit)))
            out_sck[:, c] = out_sck[:, c - 1] + np.exp(logit - zeta)[:, None] * (x_sck[:, c] - out_sck[:, c - 1])
        return out_sck

    def reference(logit_sc, x_sck=x_sck):
        return recurrence(logit_sc.astype(np.float64), x_sck.astype(np.float64))[2]

    np.seterr(all="ignore")
    print("| logits: mean | deviation | cumulative sums of $e^{\\mathrm{logit}}$ "
          "| the same, less the maximum of the sequence | the recurrence below |\n|---|---|---|---|---|")
    for mean, deviation in ((0, 1), (0, 5), (0, 20), (0, 40), (100, 1), (-110, 1)):
        logit_sc = (mean + deviation * normal_sc).astype(np.float32)
        expected = reference(logit_sc)
        cells = (sums(logit_sc, x_sck), sums(logit_sc - logit_sc.max(axis=1, keepdims=True), x_sck),
                 recurrence(logit_sc, x_sck)[2])
        print(f"| {mean} | {deviation} | " + " | ".join(cell(got, expected) for got in cells) + " |")

    w, logit_sc = 64, 20 * normal_sc
    exact = window(logit_sc.astype(np.float64), x_sck.astype(np.float64), w)
    subtracted = sums(logit_sc, x_sck, w)
    wrong = 100 * (np.isfinite(subtracted) & (np.abs(subtracted - exact) > 0.01)).mean()
    print(f"\nDeviation 20, a window of {w}. Prefix sums subtracted: {percent(lost(subtracted))} not finite, "
          f"{percent(wrong)} finite and wrong by more than 0.01. Merged: {cell(window(logit_sc, x_sck, w), exact)}")

    print("\n| logits: mean 0, deviation | payload: mean | kappa and drift | rho |\n|---|---|---|---|")
    for deviation, mean in ((1, 0), (40, 0), (1, 100)):
        logit_sc, shifted = deviation * normal_sc, x_sck + np.float32(mean)
        right = backward(*(array.astype(np.float64) for array in (logit_sc, shifted, d_out_sck)))[0]
        scale = np.abs(right).max(axis=1, keepdims=True)
        cells = [cell(got / scale, right / scale) for got in backward(logit_sc, shifted, d_out_sck)]
        print(f"| {deviation} | {mean} | " + " | ".join(cells) + " |")

    print("\n| slope | logits: deviation | logits that grow by the slope | the sum fades | a maximum that is lowered "
          "| the pair |\n|---|---|---|---|---|---|")
    long_sc, payload_sc = (np.stack([np.random.default_rng(seeds + seed).standard_normal((2, 65536))[i]
                                     for seed in range(seeds)]).astype(np.float32) for i in range(2))
    for slope, deviation in ((0.5, 1), (0.63, 20), (0.003, 20)):
        decaying = np.float32(slope), deviation * long_sc, payload_sc
        exact = decayed(*(np.asarray(array, np.float64) for array in decaying), "pair")
        cells = (cell(decayed(*decaying, how), exact) for how in ("grown", "faded", "lowered", "pair"))
        print(f"| {slope} | {deviation} | " + " | ".join(cells) + " |")

    logit_sc = 100 + 5 * normal_sc
    expected = reference(logit_sc)
    print(f"\nMean 100, deviation 5. zeta: {cell(by_zeta(logit_sc, x_sck), expected)}; max and sum: "
          f"{cell(recurrence(logit_sc, x_sck)[2], expected)}")
    zeta, count = np.float32(0), 2**20
    for _ in range(count - 1):
        zeta = zeta + np.log1p(np.exp(-zeta))
    print(f"2^20 equal logits: alpha from zeta is off by {100 * abs(float(np.exp(-zeta)) * count - 1):.0f} %")
