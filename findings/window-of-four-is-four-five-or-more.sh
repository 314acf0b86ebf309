#!/bin/sh
# Packages: transformers 5.24.0, x-transformers 2.31.10, local-attention 1.11.2, on torch 2.15.0; jax 0.10.2; on a CPU
#   (downloads about 5 GB).
# Expectation: a causal window of 4 contains the position itself and the three positions before it.
# Behaviour: sliding_window of transformers contains these 4. local_window_size of jax, max_attend_past of
#   x-transformers and window_size of local-attention with exact_windowsize count only earlier positions, so a position
#   attends to 5. Without exact_windowsize, local-attention attends to the position's block and the block before: 5 to 8
#   positions.
# Consequence: docs/blocks/dot.md: --attention-window includes the position itself, as in transformers.
set -u
exec "$(dirname "$0")/python_with.sh" torch==2.15.0 transformers==5.24.0 x-transformers==2.31.10 local-attention==1.11.2 \
  jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 <<'PROGRAM'
import sys
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")
import jax
import jax.numpy as jnp
import torch
from local_attention import LocalAttention
from transformers import MistralConfig, MistralModel
from x_transformers import Decoder

POSITIONS = range(12, 16)
torch.manual_seed(1)
print(*(f"{name} {version(name)}" for name in ("transformers", "x-transformers", "local-attention", "torch", "jax")))


def seen_by_gradient(out_cd, values):
    """Number of positions of `values` that each output depends on."""
    seen = []
    for c in POSITIONS:
        gradient, = torch.autograd.grad((out_cd[c] * torch.randn(out_cd.shape[-1])).sum(), values, retain_graph=True)
        seen.append(int((gradient.flatten(0, -2).abs().sum(-1) > 1e-9).sum()))
    return seen


def transformers_window():
    config = MistralConfig(vocab_size=8, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                           num_key_value_heads=2, sliding_window=4, max_position_embeddings=64)
    x = torch.randn(1, 16, 32, requires_grad=True)
    return seen_by_gradient(MistralModel(config).eval()(inputs_embeds=x).last_hidden_state[0], x)


def x_transformers_window():
    x = torch.randn(1, 16, 32, requires_grad=True)
    return seen_by_gradient(Decoder(dim=32, depth=1, heads=2, attn_dim_head=16, attn_max_attend_past=4).eval()(x)[0], x)


def local_attention_window(exact):
    query, key, value = (torch.randn(1, 1, 16, 8, requires_grad=True) for _ in range(3))
    layer = LocalAttention(window_size=4, causal=True, exact_windowsize=exact, use_rotary_pos_emb=False)
    return seen_by_gradient(layer(query, key, value)[0, 0], value)


def jax_window():
    zeros = jnp.zeros((1, 16, 1, 16))
    share = jax.nn.dot_product_attention(zeros, zeros, jnp.eye(16)[None, :, None], is_causal=True, local_window_size=4)
    return [int((share[0, c, 0] > 0).sum()) for c in POSITIONS]


found = {"transformers": transformers_window(), "x-transformers": x_transformers_window(),
         "local-attention, exact": local_attention_window(True), "local-attention": local_attention_window(False),
         "jax": jax_window()}
for name, seen in found.items():
    print(f"{name:23} positions 12 to 15 attend to {seen}")
described = found == {"transformers": 4 * [4], "x-transformers": 4 * [5], "local-attention, exact": 4 * [5],
                      "local-attention": [5, 6, 7, 8], "jax": 4 * [5]}
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
