#!/usr/bin/env bash
# tools/sanitize.sh asan|ubsan|tsan [TEST_ARGUMENTS...]: builds the tests with the sanitizer and runs them. OPTIONS in
# the environment: CMake options that differ from the preset, such as -DOMIT_AVX512=OFF (asan and tsan omit AVX-512
# because its compilation takes long). TARGET=tests: does not build bench; the arguments must then exclude its tests.
# ASAN_OPTIONS: options of the address sanitizer, which takes half the time without detect_stack_use_after_return.
set -euo pipefail
preset=$1
shift
tools/need.sh cmake c++ catch2
if [ "$preset" != tsan ]; then tools/need.sh clang++ libclang-rt; fi
# shellcheck disable=SC2086 # options are words
cmake --preset "$preset" ${OPTIONS:-} >/dev/null
cmake --build "build-$preset" -j "$(getconf _NPROCESSORS_ONLN)" --target "${TARGET:-all}" | tail -n 1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}:allocator_may_return_null=1
export TSAN_OPTIONS=halt_on_error=1
"build-$preset/tests" "$@"
