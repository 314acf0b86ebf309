#!/bin/sh
# tools/gradcheck.sh BUILD_DIR: prints a table of errors per layer and tensor: GPU kernels compared with the CPU in
# double. The kernels run on the emulator, and also on a real GPU if there is one with a CUDA Toolkit.
set -u
build=$1
tools/need.sh cmake c++ catch2 || exit 1
cuda=OFF
tools/need_gpu.sh 2>/dev/null && cuda=ON
cmake -S . -B "$build" -DBUILD_TESTING=ON -DBUILD_EMULATOR=ON -DBUILD_CUDA=$cuda >/dev/null || exit 1
tools/build.sh "$build" tests || exit 1
GRADCHECK=1 "$build/tests" "[gpu]~[gpu_network]"
