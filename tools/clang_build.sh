#!/usr/bin/env bash
# tools/clang_build.sh clang|libcxx [TARGET...]: compiles with clang++, where a warning is an error; libcxx: and with its
# own standard library. Without targets: everything. BUILD_EMULATOR=OFF in the environment leaves the emulator out.
set -euo pipefail
preset=$1
shift
tools/need.sh cmake clang++ catch2
if [ "$preset" = libcxx ]; then tools/need.sh libc++; fi
cmake --preset "$preset" ${BUILD_EMULATOR:+-DBUILD_EMULATOR="$BUILD_EMULATOR"} >/dev/null
if [ $# -gt 0 ]; then set -- --target "$@"; fi
cmake --build "build-$preset" -j "$(getconf _NPROCESSORS_ONLN)" "$@" | tail -n 1
