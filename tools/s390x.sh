#!/usr/bin/env bash
# tools/s390x.sh [BUILD_DIR]: compiles for a big-endian machine, IBM's s390x, and trains there, emulated by qemu. A few
# settings must have the bits of BUILD_DIR/train (build/train) on the baseline of this machine, and so must runs that
# one of the two begins and the other goes on with: both read and write the same files.
set -euo pipefail
tools/need.sh cmake c++ s390x-linux-gnu-g++ qemu-s390x python3
here=${1:-build}
build=build-s390x
cmake -S . -B $build -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=s390x \
  -DCMAKE_CXX_COMPILER=s390x-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static >/dev/null
cmake --build $build -j "$(getconf _NPROCESSORS_ONLN)" --target train | tail -n 1
there=$build/emulated
mkdir -p $there
printf '#!/bin/sh\nexec qemu-s390x "%s/train" "$@"\n' "$PWD/$build" >$there/train
chmod +x $there/train

export ATTENTION_ISA=baseline
tools/compare_bits.py "$here" $there --dropout --task --muon-rounds "positions rotary"

rm -rf $build/runs
trained() { # FIRST SECOND RUN: four steps by FIRST/train, four more by SECOND/train
  "$1/train" --data README.md --layers 1 --channels 32 --heads 2 --context 16 --batch 4 --dropout 0.1 --threads 1 \
    --schedule inverse-sqrt --steps 4 --out "$build/runs/$3" >/dev/null
  "$2/train" --data README.md --resume "$build/runs/$3" --steps 8 --threads 1 >/dev/null
}
trained "$here" "$here" here
trained "$here" $there from_here
trained $there "$here" from_there
for run in from_here from_there; do
  for file in model.safetensors resume.safetensors sample.txt; do cmp "$build/runs/here/$file" "$build/runs/$run/$file"; done
done
echo "runs that went on on the other machine have the same bits"
