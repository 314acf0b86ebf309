#!/bin/sh
# Package: torch 2.15.0, nn.MultiheadAttention and nn.TransformerEncoderLayer, on a CPU (downloads about 5 GB).
# Expectation: attention over a sequence of padding only has the same result in training and in inference.
# Behaviour: MultiheadAttention(need_weights=False) and TransformerEncoderLayer return finite numbers in training, and
#   in evaluation with gradients; in evaluation under no_grad they return NaN. MultiheadAttention(need_weights=True)
#   always returns NaN.
# Consequence: docs/layers/attention.md: here the output of a query with all keys masked is 0, in training and
#   inference.
set -u
exec "$(dirname "$0")/python_with.sh" torch==2.15.0 numpy==2.4.6 <<'PROGRAM'
import sys

import torch

torch.manual_seed(1)
torch.set_num_threads(1)
print("torch", torch.__version__)
x = torch.randn(2, 5, 16)
padding = torch.tensor([5 * [False], 5 * [True]])
attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
wanted = {"attention without weights": ["finite", "finite", "NaN"], "attention with weights": 3 * ["NaN"],
          "encoder layer": ["finite", "finite", "NaN"]}
modules = {"attention without weights": lambda: attention(x, x, x, key_padding_mask=padding, need_weights=False)[0],
           "attention with weights": lambda: attention(x, x, x, key_padding_mask=padding)[0],
           "encoder layer": lambda: layer(x, src_key_padding_mask=padding)}
found = {}
for name, compute in modules.items():
    found[name] = []
    for training, gradients in ((True, True), (False, True), (False, False)):
        attention.train(training), layer.train(training)
        with torch.set_grad_enabled(gradients):
            out = compute()
        assert out[0].isfinite().all(), "the sequence without padding must be finite"
        found[name].append("NaN" if out[1].isnan().any() else "finite")
    print(f"{name:25} training: {found[name][0]}, evaluation: {found[name][1]}, evaluation under no_grad: {found[name][2]}")
print("as described" if found == wanted else "CHANGED")
sys.exit(found != wanted)
PROGRAM
