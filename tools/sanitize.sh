#!/usr/bin/env bash
# tools/sanitize.sh asan|ubsan|tsan [TEST_ARGUMENTS...]: builds the tests with that sanitizer and runs them. OPTIONS in the
# environment are those of CMake that differ from the preset's, as -DOMIT_AVX512=OFF, which asan and tsan leave out because
# it takes long to compile. TARGET=tests: without bench, whose tests are to be left out then. ASAN_OPTIONS: of the address
# sanitizer, which takes half as long without detect_stack_use_after_return.
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
