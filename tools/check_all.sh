#!/usr/bin/env bash
# tools/check_all.sh: runs all checks, in about two hours on two cores; FUZZ_SECONDS shortens the fuzzing.
# Includes checks that take too long for .ci/run. Address sanitizer: extras/, slow and heavy tests, tests that run
# programs or read golden files, AVX2 and AVX-512, use of a stack after its function has returned. Undefined behaviour:
# the files with the longest compilation. Thread sanitizer: AVX2 and emulated kernels. clang++: the tests. clang++ 19
# with libc++: everything except train.
# GOLDEN_FILES in the environment names a folder of golden files for the emulated ARM machine and for Windows
# (docs/golden.md). Three checks need PyTorch, and one of them needs other packages, too: python3 -m pip install torch
# safetensors numpy transformers.
set -u
export WARNINGS_AS_ERRORS=ON
cd "$(dirname "$0")/.."
tools/need.sh cmake c++ clang++ clang-format clang-tidy catch2 python3 || exit 1
failed=()
check() {
  local name=$1 begin=$SECONDS
  shift
  echo "== $name"
  if "$@"; then echo "== $name: passed, $((SECONDS - begin)) s"; else failed+=("$name"); echo "== $name: FAILED"; fi
}

check "words" tools/check_words.py
check "format" bash -c 'git ls-files "*.cpp" "*.hpp" "*.cu" | xargs clang-format --dry-run --Werror'
check "all tests" tools/test.sh build
check "tests that take minutes each" build/tests "[check_all]"
check "symbols of wide instruction sets" tools/check_symbols.sh build
check "loops compiled in two versions" tools/check_loops.py build
check "all tests without AVX" env ATTENTION_ISA=baseline build/tests
check "programs without extras" tools/core_test.sh build
check "all tests without extras" bash -c \
  'cmake -S . -B build-core-tests -DEXTRAS=OFF -DBUILD_TESTING=ON -DBUILD_EMULATOR=ON >/dev/null &&
   cmake --build build-core-tests -j "$(getconf _NPROCESSORS_ONLN)" | tail -n 1 && build-core-tests/tests "~[check_all]"'
check "PyTorch computes the same models" tests/network/test_pytorch.py build
check "files of PyTorch, safetensors and transformers" tests/network/test_interchange.py build
check "golden files from PyTorch" bash -c \
  'python3 tests/golden_cases.py build/golden_files && build/golden build/golden_files/*.safetensors'
check "clang++" tools/clang_build.sh clang
check "loops compiled in two versions, clang++" tools/check_loops.py build-clang
check "several processes" extras/distributed/mpi_test.sh build 20
check "several processes, MPICH" bash -c \
  'cmake -S . -B build-mpich -DOMIT_AVX2=ON >/dev/null && MPI=mpich extras/distributed/mpi_test.sh build-mpich'
check "clang-tidy" bash -c 'git ls-files "src/*.cpp" "cpu/*.cpp" "extras/*.cpp" ":!extras/*/test_*" ":!extras/*_plain.cpp" \
  ":!extras/lab" ":!extras/distributed/sums.cpp" | xargs clang-tidy --quiet -p build-clang'
check "all tests, clang++" build-clang/tests
for isa in baseline avx2 avx512; do
  check "g++ and clang++ have the same bits, $isa" env ATTENTION_ISA=$isa tools/compare_bits.py build build-clang
done
check "clang++ 19 with libc++" tools/clang_build.sh libcxx
check "quick tests, clang++ 19 with libc++" build-libcxx/tests "~[slow]~[gpu]"
check "64-bit ARM: quick tests and golden files" tools/aarch64.sh ${GOLDEN_FILES:-}
check "64-bit ARM, RISC-V, s390x: the baseline has the bits of x86-64" tools/other_machines.sh build
check "musl: zig builds train" tools/zig_build.sh x86_64-linux-musl train
for isa in baseline avx2; do
  # Not compared: plain loops, which call the C library, and the emulator, which the musl build does not contain.
  check "musl and glibc have the same bits, $isa" env ATTENTION_ISA=$isa tools/compare_bits.py build \
    build-x86_64-linux-musl "--steps 30" --positions --window --chunk --dropout --pattern --preset --task --schedule
done
for machine in aarch64 x86_64; do  # not optimised, because nothing is run
  check "macOS, $machine: zig compiles and links programs and tests" env \
    OPTIONS="-DBUILD_TESTING=ON -DBUILD_EMULATOR=ON -DCMAKE_BUILD_TYPE=None" tools/zig_build.sh $machine-macos
done
check "Windows: programs under wine have the bits of Linux" tools/windows.sh build ${GOLDEN_FILES:-}
check "64-bit ARM: sums stay in their registers" tools/neon_registers.py aarch64-linux-gnu-g++ "clang++ --target=aarch64-linux-gnu"
check "address and undefined-behaviour sanitizers" env OPTIONS=-DOMIT_AVX512=OFF tools/sanitize.sh asan
check "undefined-behaviour sanitizer alone" tools/sanitize.sh ubsan "~[slow]"
check "thread sanitizer: tests with threads" tools/sanitize.sh tsan "[threads],[training]"
check "thread sanitizer: training runs, emulated kernels too" tools/tsan_training.sh
check "thread sanitizer: every test of the emulated kernels" tools/sanitize.sh tsan "[gpu]~[gpu_network]~[programs]"
check "equal bits of kernels, with fused products and sums" tools/fused_bits.sh
check "counted accesses of kernels" tools/counts.sh --preset tiny --batch 1 --type bf16
check "nvcc builds for 80, 90 and PTX without a warning" env OPTIONS=-DBUILD_MPI=ON tools/cuda_build.sh "80;90"
check "no pack is split, few accesses to local memory, kernel sizes are unchanged" tools/check_sass.py build-cuda
check "no kernel spills registers" tools/kernel_registers.py
check "exercises and their answers" tools/exercises.py
check "changes that tests must notice" tools/changes.py
check "the side-by-side page" tools/site.sh --test
check "the side-by-side page in a browser" tools/site_in_browser.sh build/site
check "pictures of networks in a browser" python3 docs/page/browser_draw_test.py build
check "the interactive pictures" bash -c '"$(tools/page_python.sh)" docs/page/browser_touch_test.py build/site'
check "the lab computes what the programs compute, Chromium" tools/lab_in_browser.sh build build/site
check "the lab computes what the programs compute, Firefox" tools/lab_in_browser.sh build build/site --firefox
check "the lab computes what the programs compute, JavaScriptCore" tools/lab_in_browser.sh build build/site --jsc
check "fuzzing the checkpoint reader" tests/fuzz/run.sh "${FUZZ_SECONDS:-600}"

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all checks passed"
