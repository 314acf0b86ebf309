#!/bin/sh
# Package: keras 3.15.1 on jax 0.10.2, keras.layers.MultiHeadAttention, on a CPU.
# Expectation: return_attention_scores adds a result without changing the output, and a dropout rate has no effect in
#   inference.
# Behaviour: the output of a query with all keys masked is the mean of all values. With return_attention_scores=True, or
#   with a dropout rate above 0 in inference, it is 0. The outputs of all other queries agree.
# Consequence: docs/layers/attention.md: here the output of such a query is always 0.
set -u
export KERAS_BACKEND=jax TF_CPP_MIN_LOG_LEVEL=3
exec "$(dirname "$0")/python_with.sh" keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 <<'PROGRAM'
import sys
from importlib.metadata import version

import keras
import numpy as np

keras.utils.set_random_seed(1)
print("keras", version("keras"), "jax", version("jax"))
x = np.random.default_rng(1).standard_normal((1, 3, 8)).astype(np.float32)
mask = np.ones((1, 3, 3), bool)
mask[0, 1] = False  # the query at position 1 attends to no key
layer, with_dropout = keras.layers.MultiHeadAttention(2, 4), keras.layers.MultiHeadAttention(2, 4, dropout=0.1)
layer(x, x), with_dropout(x, x)
with_dropout.set_weights(layer.get_weights())
outputs = {"default": layer(x, x, attention_mask=mask),
           "return_attention_scores": layer(x, x, attention_mask=mask, return_attention_scores=True)[0],
           "dropout 0.1, inference": with_dropout(x, x, attention_mask=mask, training=False)}
outputs = {name: np.asarray(out)[0] for name, out in outputs.items()}
# Biases are initially 0. Weights of 0 therefore give an output of 0, and equal weights give the mean of the values.
value, output = np.asarray(layer.value_dense.kernel), np.asarray(layer.output_dense.kernel)
mean = np.einsum("d,dnk,nke->e", x[0].mean(0), value, output)
wanted = {"default": mean, "return_attention_scores": 0 * mean, "dropout 0.1, inference": 0 * mean}
described = True
for name, out in outputs.items():
    print(f"{name:23} query without keys: {out[1, :3].round(4)}, another: {out[0, :3].round(4)}")
    described &= np.allclose(out[1], wanted[name], atol=1e-5) and np.allclose(out[[0, 2]], outputs["default"][[0, 2]], atol=1e-5)
print(f"{'':23} mean of all values: {mean[:3].round(4)}")
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
