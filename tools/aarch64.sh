#!/usr/bin/env bash
# tools/aarch64.sh [GOLDEN_FOLDER]: cross-compiles for 64-bit ARM and runs under qemu: the quick tests, a few training
# steps with each instruction set, and the golden files of the folder. Tests that start programs or trace processes are
# left out, because qemu does not support them.
set -euo pipefail
tools/need.sh cmake c++ aarch64-linux-gnu-g++ qemu-aarch64 catch2
build=build-aarch64
cmake --preset aarch64 >/dev/null
cmake --build $build -j "$(getconf _NPROCESSORS_ONLN)" --target tests train golden | tail -n 1
qemu-aarch64 $build/tests "~[slow]~[gpu]~[programs]~[traced]"
for isa in baseline neon; do
  rm -rf "$build/run"
  ATTENTION_ISA=$isa qemu-aarch64 $build/train --data README.md --layers 1 --channels 32 --heads 2 --context 16 \
    --batch 4 --conv-kernel 3 --steps 5 --threads 1 --out $build/run | tail -n 1
done
[ $# = 0 ] && exit
for type in double float; do
  qemu-aarch64 $build/golden --type $type "$1"/*.safetensors >$build/golden.txt || { tail -n 40 $build/golden.txt; exit 1; }
  grep -c ": ok" $build/golden.txt
done
