"""MLX, on a CPU."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers
import numpy as np
import rows
from rows import MIXED, cell, main

mx.set_default_device(mx.cpu)


def attend(query, key, value, mask=None):
    query, key, value = (mx.array(array)[None, None] for array in (query, key, value))
    mask = mask if mask is None or isinstance(mask, str) else mx.array(mask)
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=query.shape[-1] ** -0.5, mask=mask)[0, 0]


@cell("masked_bool")
def _():
    return rows.masked_row(attend, MIXED)


@cell("masked_inf", "masked_finite")
def masked(row):
    return rows.masked_row(attend, rows.added(-np.inf if row == "masked_inf" else np.finfo(np.float32).min))


@cell("masked_gradient")
def _():
    def gradients(query, key, value, mask):
        parts = [mx.array(array) for array in (query, key, value)]
        return mx.grad(lambda *parts: attend(*parts, mask).sum(), (0, 1, 2))(*parts)

    return rows.masked_gradient(gradients)


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, "causal"))


@cell("later_tokens")
def _():
    return rows.later_tokens(lambda x: attend(x, x, x, "causal"))


@cell("alibi")
def _():
    return rows.slopes(nn.ALiBi.create_alibi_slope(6))


@cell("rotary")
def _():
    return rows.rotary(lambda x: nn.RoPE(16)(mx.array(x)[None, None])[0, 0], 16)


@cell("gelu")
def _():
    return rows.gelu(lambda x: nn.GELU()(mx.array(x)))


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: nn.LayerNorm(4)(mx.array(x)))


@cell("label_smoothing")
def _():
    return rows.smoothing(lambda logits, target, a: nn.losses.cross_entropy(mx.array(logits), mx.array(target), label_smoothing=a)[0])


@cell("ignored_targets")
def _():
    def loss(logits, targets, ignored):
        weights = mx.array(~ignored).astype(mx.float32)
        return nn.losses.cross_entropy(mx.array(logits), mx.array(targets), weights=weights, reduction="mean")

    return rows.ignored(loss)


@cell(*rows.SUMS)
def sums(row):
    x = mx.full((rows.COUNT,), 0.1, dtype=mx.bfloat16 if row.endswith("_bf16") else mx.float32)
    ways = {"sum": x.sum, "mean": x.mean, "norm": lambda: mx.linalg.norm(x), "cumsum": lambda: mx.cumsum(x)[-1],
            "logcumsumexp": lambda: mx.logcumsumexp(mx.zeros_like(x))[-1]}  # fmt: skip
    return rows.off(row, ways[row.removesuffix("_bf16")]().item())


@cell("to_bf16")
def _():
    return rows.narrowed(lambda x: mx.array(x).astype(mx.bfloat16).astype(mx.float32))


def steps(gradients):
    optimizer = mlx.optimizers.Muon(1.0, weight_decay=0.0)
    weight = {"w": mx.zeros(gradients[0].shape)}
    optimizer.init(weight)
    for gradient in gradients:
        after = optimizer.apply_gradients({"w": mx.array(gradient)}, weight)
        yield np.array(weight["w"] - after["w"])
        weight = after


@cell(*rows.MUON)
def muon(row):
    return rows.MUON[row](steps)


main()
