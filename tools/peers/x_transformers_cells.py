"""x-transformers, with PyTorch on a CPU."""

import warnings

import numpy as np
import rows
from rows import MIXED, cell, main

warnings.simplefilter("ignore")
import torch
from x_transformers import Decoder
from x_transformers.attend import Attend
from x_transformers.x_transformers import AlibiPositionalBias, FeedForward, LayerNorm, apply_rotary_pos_emb

torch.set_num_threads(1)


def attend(query, key, value, mask=None, **options):
    parts = [torch.from_numpy(np.ascontiguousarray(array))[None, None] for array in (query, key, value)]
    mask = mask if mask is None else torch.from_numpy(mask)[None, None]
    return Attend(dropout=0.0, **options)(*parts, mask=mask)[0][0, 0]


@cell("masked_bool")
def _():
    found = [rows.masked_row(lambda *arrays: attend(*arrays, flash=flash), MIXED) for flash in (False, True)]
    return found[0] if found[0] == found[1] else f"{found[0]}, {found[1]} (flash)"


@cell("masked_gradient")
def _():
    def gradients(query, key, value, mask):
        parts = [torch.from_numpy(array).requires_grad_() for array in (query, key, value)]
        Attend(dropout=0.0)(*(part[None, None] for part in parts), mask=torch.from_numpy(mask)[None, None])[0].sum().backward()
        return [part.grad for part in parts]

    return rows.masked_gradient(gradients)


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, causal=True))


def decoder(**options):
    torch.manual_seed(1)
    return Decoder(dim=32, depth=1, heads=2, attn_dim_head=16, **options).eval()


@cell("window_4")
def _():
    x = torch.randn(1, 16, 32, requires_grad=True)
    (decoder(attn_max_attend_past=4)(x)[0, -1] * torch.randn(32)).sum().backward()
    return str(int((x.grad[0].abs().sum(-1) > 1e-9).sum()))


@cell("later_tokens")
def _():
    model = decoder()
    return rows.later_tokens(lambda x: model(torch.from_numpy(x)[None])[0].detach())


@cell("alibi")
def _():
    return rows.slopes(AlibiPositionalBias(heads=6, total_heads=6).slopes)


@cell("rotary")
def _():
    rotary = Decoder(dim=128, depth=1, heads=2, attn_dim_head=64, rotary_pos_emb=True).rotary_pos_emb
    freqs, _ = rotary.forward_from_seq_len(3)
    return rows.rotary(lambda x: apply_rotary_pos_emb(torch.from_numpy(x)[None, None], freqs)[0, 0], 64)


@cell("gelu")
def _():
    activation = next(module for module in FeedForward(4).modules() if "GELU" in type(module).__name__)
    return rows.gelu(lambda x: activation(torch.from_numpy(x)))


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: LayerNorm(4)(torch.from_numpy(x)).detach())


main()
