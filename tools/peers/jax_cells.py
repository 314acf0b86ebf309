"""JAX and optax, on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rows
from rows import MIXED, cell, main


def attend(query, key, value, mask=None, bias=None, **options):
    query, key, value = (jnp.asarray(array)[None, :, None] for array in (query, key, value))
    mask, bias = (array if array is None else jnp.asarray(array)[None, None] for array in (mask, bias))
    return jax.nn.dot_product_attention(query, key, value, bias=bias, mask=mask, **options)[0, :, 0]


@cell("masked_bool")
def _():
    return rows.masked_row(attend, MIXED)


@cell("masked_inf", "masked_finite")
def masked(row):
    low = -np.inf if row == "masked_inf" else np.finfo(np.float32).min
    return rows.masked_row(lambda query, key, value, mask: attend(query, key, value, bias=mask), rows.added(low))


@cell("masked_gradient")
def _():
    return rows.masked_gradient(lambda *arrays: jax.grad(lambda *parts: attend(*parts, arrays[3]).sum(), (0, 1, 2))(*arrays[:3]))


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, is_causal=True))


@cell("window_4")
def _():
    out = attend(np.zeros((16, 16)), np.zeros((16, 16)), np.eye(16), is_causal=True, local_window_size=4)
    return str(int((out[-1] > 0).sum()))


@cell("later_tokens")
def _():
    return rows.later_tokens(lambda x: attend(x, x, x, is_causal=True))


@cell("gelu")
def _():
    return rows.gelu(jax.nn.gelu)


@cell("layernorm")
def _():
    return rows.layernorm(jax.nn.standardize)


@cell("label_smoothing")
def _():
    return rows.smoothing(lambda logits, target, a: optax.softmax_cross_entropy(logits, optax.smooth_labels(jax.nn.one_hot(target, 5), a)).mean())


@cell("ignored_targets")
def _():
    """where= leaves out classes; a mean with where= leaves out rows."""
    def loss(logits, targets, ignored):
        return optax.safe_softmax_cross_entropy(logits, jax.nn.one_hot(np.where(ignored, -1, targets), 5)).mean()

    return rows.ignored(loss)


@cell(*rows.SUMS)
def sums(row):
    x = jnp.full((rows.COUNT,), 0.1, jnp.bfloat16 if row.endswith("_bf16") else jnp.float32)
    ways = {"sum": x.sum, "mean": x.mean, "norm": lambda: jnp.linalg.norm(x), "cumsum": lambda: jnp.cumsum(x)[-1],
            "logcumsumexp": lambda: jax.lax.cumlogsumexp(jnp.zeros_like(x))[-1]}  # fmt: skip
    return rows.off(row, ways[row.removesuffix("_bf16")]())


@cell("to_bf16")
def _():
    return rows.narrowed(lambda x: jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32))


def steps(gradients):
    weight = {"w": jnp.zeros(gradients[0].shape)}
    optimizer = optax.contrib.muon(1.0)
    state = optimizer.init(weight)
    for gradient in gradients:
        update, state = optimizer.update({"w": jnp.asarray(gradient)}, state, weight)
        yield -np.asarray(update["w"])


@cell(*rows.MUON)
def muon(row):
    return rows.MUON[row](steps)


main()
