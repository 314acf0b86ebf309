#!/bin/sh
# tools/cuda_build.sh ARCHITECTURES [BUILD_DIR [TARGET]]: builds all programs or one target with the CUDA device;
# warnings are errors. Needs nvcc, but no GPU. Without nvcc it prints a message and succeeds. OPTIONS in the
# environment: more CMake options.
set -u
tools/need.sh cmake c++ || exit 1
if ! command -v nvcc >/dev/null 2>&1 && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "tools/cuda_build.sh: skipped, no CUDA Toolkit here"
  exit 0
fi
build=${2:-build-cuda}
# shellcheck disable=SC2086 # a list of words
cmake -S . -B "$build" -DBUILD_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$1" ${OPTIONS:-} >/dev/null || exit 1
cmake --build "$build" -j "$(getconf _NPROCESSORS_ONLN)" --target "${3:-all}" || exit 1
"$build/train" --device cuda --data README.md --steps 0 --out "$build/run" --overwrite 2>&1 | tail -n 1
