#!/usr/bin/env bash
# tools/other_machines.sh BUILD: checks that the baseline has the same bits on 64-bit ARM, on RISC-V and on s390x, which
# is big-endian. Cross-compiles train for each, runs it under qemu and compares short runs with those of BUILD/train.
# Files are compatible, too: each program resumes a run that the other one began.
set -euo pipefail
here=$1
export ATTENTION_ISA=baseline
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# begun RUN TRAIN...: trains four steps; resumed RUN TRAIN...: trains four more steps.
begun() {
  "${@:2}" --data README.md --layers 1 --channels 32 --heads 2 --context 16 --batch 4 --dropout 0.1 --threads 1 \
    --schedule inverse-sqrt --steps 4 --out "$folder/$1" >/dev/null
}
resumed() { "${@:2}" --data README.md --resume "$folder/$1" --steps 8 --threads 1 >/dev/null; }
begun here "$here/train"
resumed here "$here/train"

for machine in aarch64 riscv64 s390x; do
  tools/need.sh cmake c++ python3 $machine-linux-gnu-g++ qemu-$machine
  cmake --preset $machine >/dev/null
  cmake --build build-$machine -j "$(getconf _NPROCESSORS_ONLN)" --target train | tail -n 1
  tools/compare_bits.py "$here" "qemu-$machine:build-$machine" "--steps 30" --dropout --task
  there=("qemu-$machine" "build-$machine/train")
  begun from_here "$here/train"
  resumed from_here "${there[@]}"
  begun from_there "${there[@]}"
  resumed from_there "$here/train"
  for run in from_here from_there; do
    for file in model.safetensors resume.safetensors sample.txt; do cmp "$folder/here/$file" "$folder/$run/$file"; done
    rm -r "${folder:?}/$run"
  done
  echo "$machine: resumed runs have the same bits"
done
