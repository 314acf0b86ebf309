#!/bin/sh
# Package: safetensors 0.8.0 (beside it 0.7.0), safetensors.numpy.save, with numpy 2.4.6.
# Expectation: a matrix that numpy holds transposed (w.T, Fortran order) is read back as it was given, or is refused, as
#   the writer for torch refuses it.
# Behaviour: 0.8.0 writes the memory as it is under the shape of the view: all numbers, in wrong places, without a word.
#   0.7.0 writes the right order. numpy.ascontiguousarray before saving avoids it.
# Consequence: docs/checkpoints.md: arrays of numpy are made contiguous before they are saved.
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
