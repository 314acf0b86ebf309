#!/bin/sh
# tools/counts.sh [ARGUMENTS...]: builds the emulator that counts memory requests of kernels, and compares its counts
# with counts by hand. With arguments it also builds bench, and runs it with them to count a training step.
set -eu
tools/need.sh cmake c++
cmake --preset counts >/dev/null
build() { cmake --build build-counts -j "$(getconf _NPROCESSORS_ONLN)" --target "$1" | tail -n 1; }
build counted_kernels
build-counts/counted_kernels
[ $# -gt 0 ] || exit 0
build bench
build-counts/bench --device emulated --counts "$@"
