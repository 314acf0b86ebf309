#!/bin/sh
# Package: performer-pytorch 1.1.4 on torch 2.15.0, SelfAttention(causal=True), on a CPU (downloads about 5 GB).
# Expectation: with causal=True a later token does not change an earlier output.
# Behaviour: the softmax kernel subtracts the largest projection of all positions from every key, and then adds a
#   constant. A later token with a large key changes all earlier outputs by several percent; a typical token changes
#   none. With generalized_attention=True (a relu kernel) nothing is subtracted, and earlier outputs do not change.
# Consequence: docs/peers.md: no mixer here subtracts a number that depends on later tokens.
set -u
exec "$(dirname "$0")/python_with.sh" performer-pytorch==1.1.4 torch==2.15.0 numpy==2.4.6 <<'PROGRAM'
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from performer_pytorch import SelfAttention

torch.set_num_threads(1)
print("torch", torch.__version__)


def changed(factor, relu_kernel):
    """Number of changed earlier outputs, and their largest relative change, for a last token of size `factor`."""
    torch.manual_seed(1)
    options = {"dim_head": 16, "nb_features": 64, "generalized_attention": relu_kernel}
    attention = SelfAttention(dim=32, heads=2, causal=True, **options).eval()
    x = torch.randn(1, 48, 32)
    other = x.clone()
    other[0, -1] = factor * torch.randn(32)
    with torch.no_grad():
        before, after = attention(x)[0, :-1], attention(other)[0, :-1]
    change = (before - after).abs().amax(1) / before.abs().max()
    return int((change > 1e-5).sum()), change.max().item()


found = {}
for relu_kernel in (False, True):
    for factor in (1, 3, 10):
        count, most = found[factor, relu_kernel] = changed(factor, relu_kernel)
        kernel = "relu" if relu_kernel else "softmax"
        print(f"{kernel:7} kernel, last token {factor:2} times as long: {count} of 47 earlier outputs change, by {most:.1e} at most")
described = found[10, False][0] == 47 and found[10, False][1] > 1e-2 and found[10, True][0] == 0
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
