#!/usr/bin/env bash
# tools/sanitize.sh asan|ubsan|tsan [TEST_ARGUMENTS...]: builds the tests with that sanitizer and runs them. The presets
# asan and tsan leave AVX-512 out, which takes long to compile; OMIT_AVX512=OFF in the environment takes it in.
set -euo pipefail
preset=$1
shift
tools/need.sh cmake c++ catch2
cmake --preset "$preset" ${OMIT_AVX512:+-DOMIT_AVX512="$OMIT_AVX512"} >/dev/null
cmake --build "build-$preset" -j "$(getconf _NPROCESSORS_ONLN)" | tail -n 1
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1
export TSAN_OPTIONS=halt_on_error=1
"build-$preset/tests" "$@"
