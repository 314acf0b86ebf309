"""performer-pytorch, with PyTorch on a CPU."""

import warnings

import rows
from rows import cell, main

warnings.simplefilter("ignore")
import torch
from performer_pytorch import SelfAttention
from performer_pytorch.performer_pytorch import FeedForward, FixedPositionalEmbedding, PreLayerNorm, apply_rotary_pos_emb

torch.set_num_threads(1)


@cell("later_tokens")
def _():
    found = []
    for kernel in (False, True):
        torch.manual_seed(1)
        options = {"dim_head": 16, "nb_features": 64, "generalized_attention": kernel}
        layer = SelfAttention(dim=32, heads=2, causal=True, **options).eval()
        found.append(rows.later_tokens(lambda x: layer(torch.from_numpy(x)[None])[0].detach()))
    return f"{found[0]} (softmax kernel), {found[1]} (relu kernel)"


@cell("rotary")
def _():
    def turn(x):
        one = torch.from_numpy(x)[None, None]
        return apply_rotary_pos_emb(one, one, FixedPositionalEmbedding(16, 3)(one[0]))[0][0, 0]

    return rows.rotary(turn, 16)


@cell("gelu")
def _():
    return rows.gelu(lambda x: FeedForward(4).act(torch.from_numpy(x)))


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: PreLayerNorm(4, torch.nn.Identity())(torch.from_numpy(x)).detach())


main()
