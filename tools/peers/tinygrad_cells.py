"""tinygrad, on a CPU. It compiles with CC, which must know bfloat16: gcc 13, clang 17 or later."""

import os
import shutil

os.environ["DEV"] = "CPU"
os.environ.setdefault("CC", next((name for name in ("clang-19", "clang-18", "clang-17") if shutil.which(name)), "clang"))

import numpy as np
import rows
from rows import MIXED, cell, main
from tinygrad import Context, Tensor, dtypes, nn


def attend(query, key, value, mask=None, **options):
    query, key, value = (Tensor(array)[None, None] for array in (query, key, value))
    mask = mask if mask is None else Tensor(mask)
    return query.scaled_dot_product_attention(key, value, attn_mask=mask, **options)[0, 0].numpy()


@cell("masked_bool")
def _():
    return rows.masked_row(attend, MIXED)


@cell("masked_inf", "masked_finite")
def masked(row):
    return rows.masked_row(attend, rows.added(-np.inf if row == "masked_inf" else np.finfo(np.float32).min))


@cell("masked_gradient")
def _():
    def gradients(query, key, value, mask):
        parts = [Tensor(array) for array in (query, key, value)]
        out = parts[0][None, None].scaled_dot_product_attention(parts[1][None, None], parts[2][None, None], attn_mask=Tensor(mask))
        return [gradient.numpy() for gradient in out.sum().gradient(*parts)]

    return rows.masked_gradient(gradients)


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, is_causal=True))


@cell("later_tokens")
def _():
    return rows.later_tokens(lambda x: attend(x, x, x, is_causal=True))


@cell("gelu")
def _():
    return rows.gelu(lambda x: Tensor(x).gelu().numpy())


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: nn.LayerNorm(4)(Tensor(x)).numpy())


@cell("label_smoothing")
def _():
    return rows.smoothing(lambda logits, target, a: Tensor(logits).cross_entropy(Tensor(target), label_smoothing=a).numpy())


@cell("ignored_targets")
def _():
    def loss(logits, targets, ignored):
        return Tensor(logits).sparse_categorical_crossentropy(Tensor(np.where(ignored, -1, targets)), ignore_index=-1).numpy()

    return rows.ignored(loss)


@cell(*rows.SUMS)
def sums(row):
    dtype = dtypes.bfloat16 if row.endswith("_bf16") else dtypes.float32
    x = Tensor(np.full(rows.COUNT, 0.1, np.float32)).cast(dtype).realize()
    ways = {"sum": x.sum, "mean": x.mean, "norm": lambda: x.square().sum().sqrt(), "cumsum": lambda: x.cumsum()[-1],
            "logcumsumexp": lambda: (x * 0).logcumsumexp()[-1]}  # fmt: skip
    return rows.off(row, ways[row.removesuffix("_bf16")]().float().item())


@cell("to_bf16")
def _():
    return rows.narrowed(lambda x: Tensor(x).realize().cast(dtypes.bfloat16).realize().float().numpy())


def steps(gradients):
    weight = Tensor.zeros(*gradients[0].shape).contiguous().realize()
    optimizer = nn.optim.Muon([weight], lr=1.0, weight_decay=0.0)
    for gradient in gradients:
        before = weight.numpy().copy()
        weight.grad = Tensor(gradient)
        with Context(TRAINING=1):
            optimizer.step()
        yield before - weight.numpy()


@cell(*rows.MUON)
def muon(row):
    return rows.MUON[row](steps)


main()
