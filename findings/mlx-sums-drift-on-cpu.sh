#!/bin/sh
# Package: mlx 0.32.4 with mlx-cpu 0.32.4, sum, mean, cumsum and logcumsumexp, on a CPU (Linux).
# Expectation: sums of 2^20 float32 numbers are exact to six digits, and sums of bfloat16 numbers are accumulated in
#   float32.
# Behaviour: a single float32 accumulator adds all numbers. The sum, mean and cumsum of 2^20 times 0.1 have an error of
#   1 %, and logcumsumexp of 2^20 zeros has an error of 0.06. cumsum of bfloat16 accumulates in bfloat16 and stops at
#   32.
# Consequence: docs/peers.md. Long sums here use an accumulator with more digits than the terms
#   (docs/layers/global_norm.md).
set -u
exec "$(dirname "$0")/python_with.sh" mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.4.6 <<'PROGRAM'
import math
import sys
from importlib.metadata import version

import mlx.core as mx
import numpy as np

COUNT = 2**20
mx.set_default_device(mx.cpu)
print("mlx", version("mlx"))
x = mx.full((COUNT,), 0.1)
exact = COUNT * float(np.float32(0.1))
sums = {"sum": x.sum().item(), "mean, times the count": x.mean().item() * COUNT, "cumsum, last": mx.cumsum(x)[-1].item()}
for name, value in sums.items():
    print(f"{name:22} {value:10.1f}, exact {exact:.1f}, relative error {abs(value / exact - 1):.1e}")
logarithm = mx.logcumsumexp(mx.zeros(COUNT))[-1].item()
print(f"logcumsumexp of zeros  {logarithm:10.4f}, exact {math.log(COUNT):.4f}")
narrow = mx.cumsum(mx.full((COUNT,), 0.1, dtype=mx.bfloat16))[-1].item()
print(f"cumsum of bfloat16     {narrow:10.1f}")
described = all(abs(value / exact - 1) > 5e-3 for value in sums.values())
described &= abs(logarithm - math.log(COUNT)) > 0.02 and narrow == 32
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
