#!/bin/sh
# tools/gpu_architectures.sh: prints the value of CMAKE_CUDA_ARCHITECTURES for this machine: CUDAARCHS, else the
# architectures of its GPUs ("90", "80;90"). Prints nothing without a GPU, or if the driver does not report one;
# cuda/CMakeLists.txt then uses its default.
if [ -n "${CUDAARCHS:-}" ]; then
  echo "$CUDAARCHS"
else
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]\)$/\1\2/p' |
    sort -u | paste -s -d ';' -
fi
