#!/usr/bin/env bash
# tools/clang_build.sh clang|libcxx [TARGET...]: compiles with clang++, where a warning is an error; libcxx: and with its
# own standard library. Without targets: everything. OPTIONS in the environment: of CMake, as -DBUILD_EMULATOR=OFF.
set -euo pipefail
preset=$1
shift
tools/need.sh cmake clang++ catch2
if [ "$preset" = libcxx ]; then tools/need.sh libc++; fi
# shellcheck disable=SC2086 # options are words
cmake --preset "$preset" ${OPTIONS:-} >/dev/null
if [ $# -gt 0 ]; then set -- --target "$@"; fi
cmake --build "build-$preset" -j "$(getconf _NPROCESSORS_ONLN)" "$@" | tail -n 1
