#!/bin/sh
# Package: torch 2.15.0, torch.optim.Muon, on a CPU (downloads about 5 GB).
# Expectation: the Newton-Schulz rounds tolerate bfloat16, so that the error of a step is about 1 %.
# Behaviour: this holds for a gradient of full rank. The rounding errors of bfloat16 add small singular values in all
#   other directions, and five rounds multiply small singular values by up to 485. For a gradient of rank 1 the error
#   exceeds the length of the step, which has many large singular values instead of one; for rank 4 of 64 the error is
#   half the length.
# Consequence: docs/layers/muon.md, section "Stability", gives the same figures for the kernels of this project.
set -u
exec "$(dirname "$0")/python_with.sh" torch==2.15.0 numpy==2.4.6 <<'PROGRAM'
import sys

import torch

SIZE = 64
torch.set_num_threads(1)
print("torch", torch.__version__)


def step_of_package(gradient):
    weight = torch.nn.Parameter(torch.zeros(SIZE, SIZE))
    weight.grad = gradient
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0).step()
    return -weight.detach().double()


def step_in_double(gradient):
    """The same five rounds, from the first momentum, which is a multiple of the gradient."""
    x = gradient.double()
    x = x / x.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x


def step_error(name, gradient):
    got, wanted = step_of_package(gradient), step_in_double(gradient)
    error = ((got - wanted).norm() / wanted.norm()).item()
    large = [int((torch.linalg.svdvals(step) > 0.1).sum()) for step in (got, wanted)]
    print(f"{name:15} error {error:6.1%} of the step's length, {large[0]:2} singular values above 0.1 (in double {large[1]})")
    return error


draw = torch.Generator().manual_seed(1)
error = {}
for rank in (1, 4, 16):
    left, right = torch.randn(SIZE, rank, generator=draw), torch.randn(rank, SIZE, generator=draw)
    error[rank] = step_error(f"rank {rank:2} of {SIZE}:", left @ right)
error[SIZE] = step_error("full rank:", torch.randn(SIZE, SIZE, generator=draw))

described = error[1] > 0.8 and error[4] > 0.3 and 0.1 < error[16] < error[4] and error[SIZE] < 0.03
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
