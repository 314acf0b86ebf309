"""Keras 3 with the backend JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
import rows
from rows import MIXED, cell, main

number = keras.ops.convert_to_numpy


def attention(dropout=0.0):
    """A layer whose projections are identity matrices, and biases 0."""
    keras.utils.set_random_seed(1)
    layer = keras.layers.MultiHeadAttention(1, 8, dropout=dropout)
    layer(np.zeros((1, 3, 8)), np.zeros((1, 3, 8)))
    layer.set_weights([np.eye(8).reshape(weight.shape) if "kernel" in weight.path else np.zeros(weight.shape) for weight in layer.weights])
    return layer


def attend(query, key, value, mask=None, dropout=0.0, **options):
    mask = mask if mask is None else mask[None]
    out = attention(dropout)(query[None], value[None], key=key[None], attention_mask=mask, **options)
    return number(out[0] if isinstance(out, tuple) else out)[0]


@cell("masked_bool")
def _():
    return rows.masked_row(attend, MIXED)


@cell("masked_gradient")
def _():
    def gradients(query, key, value, mask):
        layer = attention()
        out = lambda *parts: layer(parts[0][None], parts[2][None], key=parts[1][None], attention_mask=mask[None]).sum()
        return jax.grad(out, (0, 1, 2))(*(jnp.asarray(array) for array in (query, key, value)))

    return rows.masked_gradient(gradients)


@cell("module_training", "module_inference")
def module(row):
    """With dropout of attention weights, at a rate too small to drop anything."""
    training = row == "module_training"
    return rows.masked_row(lambda *arrays: attend(*arrays, dropout=1e-7, training=training), MIXED)


@cell("module_weights")
def _():
    return rows.masked_row(lambda *arrays: attend(*arrays, return_attention_scores=True), MIXED)


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, use_causal_mask=True))


@cell("later_tokens")
def _():
    layer = keras.layers.MultiHeadAttention(2, 16)
    return rows.later_tokens(lambda x: number(layer(x[None], x[None], use_causal_mask=True))[0])


@cell("gelu")
def _():
    return rows.gelu(lambda x: number(keras.activations.gelu(x)))


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: number(keras.layers.LayerNormalization()(x)))


@cell("label_smoothing")
def _():
    def loss(logits, target, a):
        return number(keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=a)(np.eye(5)[target], logits))

    return rows.smoothing(loss)


@cell("ignored_targets")
def _():
    def loss(logits, targets, ignored):
        of_class = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
        return number(of_class(np.where(ignored, -1, targets), logits))

    return rows.ignored(loss)


@cell("to_bf16")
def _():
    return rows.narrowed(lambda x: number(keras.ops.cast(keras.ops.cast(x, "bfloat16"), "float32")))


def steps(gradients):
    weight = keras.Variable(np.zeros(gradients[0].shape, "float32"), name="w")
    optimizer = keras.optimizers.Muon(1.0, weight_decay=0)
    optimizer.build([weight])
    for gradient in gradients:
        before = np.array(weight.value)
        optimizer.apply([jnp.asarray(gradient)], [weight])
        yield before - np.asarray(weight.value)


@cell(*rows.MUON)
def muon(row):
    return rows.MUON[row](steps)


main()
