#!/bin/sh
# tools/gpu_architectures.sh: what CMAKE_CUDA_ARCHITECTURES should be on this machine: CUDAARCHS, else the architectures
# of its GPUs ("90", "80;90"). Prints nothing where there are none or their driver does not say; cuda/CMakeLists.txt then
# takes its own.
if [ -n "${CUDAARCHS:-}" ]; then
  echo "$CUDAARCHS"
else
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]\)$/\1\2/p' |
    sort -u | paste -s -d ';' -
fi
