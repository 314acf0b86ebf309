#!/usr/bin/env bash
# tools/clang_build.sh clang|libcxx [TARGET...]: compiles with clang++; libcxx: with clang++ 19, the newest of Debian
# 12, and its own standard library. Without targets: everything. OPTIONS in the environment: more CMake options, such as
# -DBUILD_EMULATOR=OFF.
set -euo pipefail
preset=$1
shift
tools/need.sh cmake clang++ catch2
if [ "$preset" = libcxx ]; then tools/need.sh clang++-19 libc++; fi
# shellcheck disable=SC2086 # options are words
cmake --preset "$preset" ${OPTIONS:-} >/dev/null
if [ $# -gt 0 ]; then set -- --target "$@"; fi
cmake --build "build-$preset" -j "$(getconf _NPROCESSORS_ONLN)" "$@" | tail -n 1
