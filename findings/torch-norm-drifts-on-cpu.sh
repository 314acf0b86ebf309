#!/bin/sh
# Package: torch 2.15.0, Tensor.norm and torch.nn.utils.clip_grad_norm_, on a CPU (downloads about 5 GB).
# Expectation: the norm of a float32 tensor is as exact as Tensor.sum, which adds in a tree.
# Behaviour: norms accumulate in a few float32 sums. With one thread the norm of 2^24 equal numbers has an error of
#   almost 1 %, and the norm of 2^24 normally distributed numbers an error above 1e-4; clip_grad_norm_ has the same
#   errors. x.square().sum().sqrt() is exact to 1e-6.
# Consequence: docs/layers/global_norm.md sums squares in double; comparisons with norms of PyTorch show this
#   difference.
set -u
exec "$(dirname "$0")/python_with.sh" torch==2.15.0 numpy==2.4.6 <<'PROGRAM'
import sys

import torch

torch.set_num_threads(1)
print("torch", torch.__version__)


def clipped_norm(x):
    weight = torch.nn.Parameter(x)
    weight.grad = x.clone()
    return torch.nn.utils.clip_grad_norm_([weight], 1e30)


ways = {"norm()": lambda x: x.norm(), "clip_grad_norm_": clipped_norm, "square().sum().sqrt()": lambda x: x.square().sum().sqrt()}
error = {}
for power in (10, 20, 24):
    count = 2**power
    normal = torch.randn(count, generator=torch.Generator().manual_seed(1))
    for kind, x in (("equal", torch.full((count,), 0.1)), ("normal", normal)):
        for way, norm in ways.items():
            error[power, kind, way] = abs(norm(x).double() / x.double().norm() - 1).item()
            print(f"2^{power} {kind + ' numbers':14} {way:21} relative error {error[power, kind, way]:.1e}")

described = all(error[24, "equal", way] > 1e-3 and error[24, "normal", way] > 1e-4 for way in ("norm()", "clip_grad_norm_"))
described &= all(error[key] < 1e-6 for key in error if key[2] == "square().sum().sqrt()")
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
