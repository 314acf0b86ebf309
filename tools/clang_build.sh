#!/bin/sh
# tools/clang_build.sh: everything compiles with clang++ without a warning (warnings are errors).
set -eu
tools/need.sh cmake clang++ catch2
cmake --preset clang >/dev/null
cmake --build build-clang -j "$(getconf _NPROCESSORS_ONLN)" | tail -n 1
