#!/usr/bin/env bash
# tools/tsan_training.sh: runs short trainings of every mixer under the thread sanitizer: on three threads, and on the
# emulator, where every CUDA thread counts as a thread; then generates text on the emulator, with the decode functions.
# OPTIONS in the environment: CMake options, such as -DOMIT_AVX2=ON for CPU layers of the baseline only (with the same
# use of threads), -DBUILD_EMULATOR=OFF for runs on threads only, and -DEXTRAS=OFF for the mixers of the core.
set -euo pipefail
tools/need.sh cmake c++ python3
# shellcheck disable=SC2086 # options are words
cmake --preset tsan ${OPTIONS:-} >/dev/null
cmake --build build-tsan -j "$(getconf _NPROCESSORS_ONLN)" --target train generate built_in_corpus | tail -n 1
build-tsan/built_in_corpus build-tsan/whole.txt >/dev/null
head -c 20000 build-tsan/whole.txt >build-tsan/corpus.txt
export TSAN_OPTIONS=halt_on_error=1
# All mixers in the help text of --mixer.
mixers=$(build-tsan/train --help | tr '\n' ' ' | sed -n 's/.*--mixer LIST [^[]*\[\([^]]*\)\].*/\1/p' | sed 's/,//g; s/ or / /')
[ -n "$mixers" ]
window="--window 4"
! grep -q '^EXTRAS:BOOL=OFF' build-tsan/CMakeCache.txt || window=
for mixer in $mixers; do
  of_mixer=$(cd tools && python3 -c "from checkpoint import MIXERS; print(MIXERS['$mixer'].flags)")
  # shellcheck disable=SC2086 # flags are words
  build-tsan/train --data build-tsan/corpus.txt --out build-tsan/run --overwrite --threads 3 --mixer $mixer $of_mixer \
    --steps 3 --batch 4 --layers 2 --channels 32 --context 16 --dropout 0.1 $window --eval-every 0 | tail -n 1
done
grep -q '^BUILD_EMULATOR:BOOL=ON' build-tsan/CMakeCache.txt || exit 0
# A CUDA thread takes up to a millisecond here, and the whole validation split is evaluated, so the text is short.
head -c 100 build-tsan/corpus.txt >build-tsan/short.txt
for type in float bf16; do
  for mixer in additive,metric,dot additive,quadratic,additive; do
    [ $type$mixer != bf16additive,quadratic,additive ] || continue  # the same kernels again
    case $mixer in *dot) windows=3,0,0 ;; *) windows=0,0,9 ;; esac
    build-tsan/train --data build-tsan/short.txt --out build-tsan/run --overwrite --device emulated --type $type \
      --mixer $mixer --steps 1 --batch 1 --layers 3 --channels 20 --heads 2 --context 7 --dropout 0.1 --window $windows \
      --conv-kernel 3 --conv-groups 2 --eval-every 0 | tail -n 1
    build-tsan/generate --checkpoint build-tsan/run --device emulated --type $type --tokens 3 | tail -n 1
  done
done
