#!/bin/sh
# tools/cuda_build.sh ARCHITECTURES: builds the programs with the CUDA device, where a warning is an error. Needs nvcc, no
# GPU; without nvcc it says so and succeeds, as nothing was found wrong.
set -u
tools/need.sh cmake c++ || exit 1
if ! command -v nvcc >/dev/null 2>&1 && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "tools/cuda_build.sh: skipped, no CUDA Toolkit here"
  exit 0
fi
cmake -S . -B build-cuda -DBUILD_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$1" >/dev/null || exit 1
cmake --build build-cuda -j "$(getconf _NPROCESSORS_ONLN)" || exit 1
build-cuda/train --device cuda --data README.md --steps 0 --out build-cuda/run 2>&1 | tail -n 1
