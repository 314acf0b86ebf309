#!/usr/bin/env bash
# tools/clang_build.sh [TARGET...]: compiles with clang++, where a warning is an error. Without targets: everything.
set -euo pipefail
tools/need.sh cmake clang++ catch2
cmake --preset clang >/dev/null
if [ $# -gt 0 ]; then set -- --target "$@"; fi
cmake --build build-clang -j "$(getconf _NPROCESSORS_ONLN)" "$@" | tail -n 1
