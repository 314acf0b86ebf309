#!/bin/sh
# tools/need_gpu.sh: checks for an NVIDIA GPU and a CUDA Toolkit that can build for it; otherwise prints instructions.
set -u
fail() {
  echo "tools/need_gpu.sh: $1; 'make train' computes the same on the CPU" >&2
  exit 1
}
[ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || command -v nvcc >/dev/null 2>&1 ||
  fail "no CUDA Toolkit found (nvcc is neither on PATH nor in ${CUDA_HOME:-/usr/local/cuda}/bin); install it from developer.nvidia.com/cuda-downloads"
command -v nvidia-smi >/dev/null 2>&1 || fail "no NVIDIA driver found (nvidia-smi is missing)"
nvidia-smi -L 2>/dev/null | grep -q . || fail "no NVIDIA GPU found (nvidia-smi -L lists none)"
