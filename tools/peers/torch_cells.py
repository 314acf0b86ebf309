"""PyTorch, on a CPU with one thread."""

import warnings

import numpy as np
import rows
from rows import MIXED, cell, main

warnings.simplefilter("ignore")
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]


def attend(query, key, value, mask=None, **options):
    query, key, value = (tensor[None, None] for tensor in tensors(query, key, value))
    mask = mask if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)[0, 0]


@cell("masked_bool")
def _():
    return rows.masked_row(attend, MIXED)


@cell("masked_inf")
def _():
    return rows.masked_row(attend, rows.added(-np.inf))


@cell("masked_finite")
def _():
    return rows.masked_row(attend, rows.added(torch.finfo(torch.float32).min))


@cell("masked_gradient")
def _():
    def gradients(query, key, value, mask):
        parts = [tensor.requires_grad_() for tensor in tensors(query, key, value)]
        out = F.scaled_dot_product_attention(*(part[None, None] for part in parts), attn_mask=torch.from_numpy(mask))
        out.sum().backward()
        return [part.grad for part in parts]

    return rows.masked_gradient(gradients)


@cell("module_training", "module_inference", "module_weights")
def module(row):
    """nn.MultiheadAttention on a sequence of padding only."""
    torch.manual_seed(1)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).train(row == "module_training")
    x, padding = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [True] * 5])
    with torch.set_grad_enabled(row == "module_training"):
        out = attention(x, x, x, key_padding_mask=padding, need_weights=row == "module_weights")[0][1, 0]
    value = F.linear(x[1], attention.in_proj_weight[32:], attention.in_proj_bias[32:])
    mean, zero = attention.out_proj(value.mean(0)), attention.out_proj.bias
    return rows.kind(out.detach(), mean.detach(), zero.detach())


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, is_causal=True))


@cell("later_tokens")
def _():
    return rows.later_tokens(lambda x: attend(x, x, x, is_causal=True))


@cell("gelu")
def _():
    return rows.gelu(lambda x: nn.GELU()(torch.from_numpy(x)))


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: nn.LayerNorm(4)(torch.from_numpy(x)).detach())


@cell("label_smoothing")
def _():
    return rows.smoothing(lambda logits, target, a: F.cross_entropy(*tensors(logits, target), label_smoothing=a))


@cell("ignored_targets")
def _():
    def loss(logits, targets, ignored):
        return F.cross_entropy(*tensors(logits, np.where(ignored, -100, targets)))

    return rows.ignored(loss)


@cell(*rows.SUMS)
def sums(row):
    narrow = row.endswith("_bf16")
    x = torch.full((rows.COUNT,), 0.1, dtype=torch.bfloat16 if narrow else torch.float32)
    ways = {"sum": x.sum, "mean": x.mean, "norm": x.norm, "cumsum": lambda: x.cumsum(0)[-1],
            "logcumsumexp": lambda: torch.zeros_like(x).logcumsumexp(0)[-1]}  # fmt: skip
    return rows.off(row, ways[row.removesuffix("_bf16")]())


@cell("to_bf16")
def _():
    return rows.narrowed(lambda x: torch.from_numpy(x).bfloat16().float())


def steps(gradients):
    weight = nn.Parameter(torch.zeros(gradients[0].shape))
    optimizer = torch.optim.Muon([weight], lr=1.0, weight_decay=0.0)
    for gradient in gradients:
        before, weight.grad = weight.detach().clone(), torch.from_numpy(gradient)
        optimizer.step()
        yield before - weight.detach()


@cell(*rows.MUON)
def muon(row):
    return rows.MUON[row](steps)


main()
