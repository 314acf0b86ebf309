#!/bin/sh
# Package: safetensors 0.8.0 (compared with 0.7.0), safetensors.numpy.save, with numpy 2.4.6.
# Expectation: a matrix that numpy holds transposed (w.T, Fortran order) is read back unchanged, or is refused, as by
#   the writer for torch.
# Behaviour: 0.8.0 writes the memory in its order under the shape of the view, so the numbers are in wrong places. There
#   is no warning. 0.7.0 writes the correct order. numpy.ascontiguousarray before saving avoids the error.
# Consequence: docs/checkpoints.md: make numpy arrays contiguous before saving them.
set -u
for version in 0.7.0 0.8.0; do
  "$(dirname "$0")/python_with.sh" safetensors==$version numpy==2.4.6 <<'PROGRAM' || exit
import sys
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load, save

w = np.arange(6, dtype=np.float32).reshape(2, 3).T
got = load(save({"w": w}))["w"]
contiguous = load(save({"w": np.ascontiguousarray(w)}))["w"]
print("safetensors", version("safetensors"), "given", w.tolist(), "read", got.tolist())
described = np.array_equal(contiguous, w) and np.array_equal(got, w) == (version("safetensors") == "0.7.0")
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
done
