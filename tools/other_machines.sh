#!/usr/bin/env bash
# tools/other_machines.sh BUILD: the baseline has the same bits on 64-bit ARM and RISC-V. Compiles train for both, runs it
# under qemu and compares 30 steps of a few settings with those of BUILD.
set -euo pipefail
for machine in aarch64 riscv64; do
  tools/need.sh cmake c++ python3 $machine-linux-gnu-g++ qemu-$machine
  cmake --preset $machine >/dev/null
  cmake --build build-$machine -j "$(getconf _NPROCESSORS_ONLN)" --target train | tail -n 1
  ATTENTION_ISA=baseline tools/compare_bits.py "$1" "qemu-$machine:build-$machine" "--steps 30"
done
