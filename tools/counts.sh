#!/bin/sh
# tools/counts.sh [ARGUMENTS...]: builds the emulator that counts what kernels ask of memory, and compares its counts of
# kernels that are known by hand. With arguments bench is built as well, and counts a training step with them.
set -eu
tools/need.sh cmake c++
cmake --preset counts >/dev/null
build() { cmake --build build-counts -j "$(getconf _NPROCESSORS_ONLN)" --target "$1" | tail -n 1; }
build counted_kernels
build-counts/counted_kernels
[ $# -gt 0 ] || exit 0
build bench
build-counts/bench --device emulated --counts "$@"
