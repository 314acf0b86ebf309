"""fla-core on a CPU: its reference functions, because its kernels need a GPU."""

import warnings

import rows
from rows import cell, main

warnings.simplefilter("ignore")
import torch
from fla.modules.layernorm import LayerNorm, layer_norm_ref
from fla.modules.rotary import RotaryEmbedding, rotary_embedding_ref
from fla.ops.linear_attn.naive import naive_chunk_linear_attn


@cell("later_tokens")
def _():
    def outputs(x):
        x = torch.nn.functional.pad(torch.from_numpy(x), (0, 0, 0, 40))[None, :, None]  # padded to a whole chunk
        out = naive_chunk_linear_attn(x, x, x)
        return (out[0] if isinstance(out, tuple) else out)[0, :24, 0]

    return rows.later_tokens(outputs)


@cell("rotary")
def _():
    rotary = RotaryEmbedding(16)
    angles = torch.outer(torch.arange(3.0), rotary.inv_freq)
    return rows.rotary(lambda x: rotary_embedding_ref(torch.from_numpy(x)[None, :, None], angles.cos(), angles.sin(), rotary.interleaved)[0, :, 0], 16)


@cell("layernorm")
def _():
    eps = LayerNorm(4).eps
    return rows.layernorm(lambda x: layer_norm_ref(torch.from_numpy(x), torch.ones(4), None, eps=eps))


main()
