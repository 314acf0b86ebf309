#!/bin/sh
# tools/fused_bits.sh: the tests that demand equal bits of two kernels, on emulated kernels whose products and sums the
# compiler fuses, as nvcc does. Builds these tests into build-fused; needs a processor with AVX2. Left out: Muon, and few
# tiles of pooling with decay. With g++ 12 these two differ, because it fuses other products in one kernel than in the
# other. Only a GPU can show if the code of nvcc has equal bits there.
set -u
tools/need.sh cmake c++ catch2 || exit 1
tests="test_joined_layers;test_pooling;test_pooling_gpu;test_pooling_decay;test_pooling_logits;test_layernorm;test_shards"
cmake -S . -B build-fused -DBUILD_TESTING=ON -DBUILD_EMULATOR=ON -DOMIT_AVX2=ON -DOMIT_PROGRAM_TESTS=ON \
  -DEMULATED_OPTIONS="-march=x86-64-v3;-ffp-contract=fast" -DONLY_TESTS="$tests" \
  >/dev/null || exit 1
cmake --build build-fused -j "$(getconf _NPROCESSORS_ONLN)" --target tests | tail -n 1 || exit 1
build-fused/tests '[gpu]~[muon]~"pooling: on the GPU\, few tiles have the bits of many"'
