#!/usr/bin/env bash
# tools/tsan_training.sh: a short training run of every mixer on three threads under the thread sanitizer.
set -euo pipefail
tools/need.sh cmake c++
cmake --preset tsan >/dev/null
cmake --build build-tsan -j "$(getconf _NPROCESSORS_ONLN)" --target train built_in_corpus | tail -n 1
build-tsan/built_in_corpus build-tsan/corpus.txt >/dev/null
export TSAN_OPTIONS=halt_on_error=1
for mixer in additive metric quadratic dot; do
  build-tsan/train --data build-tsan/corpus.txt --out build-tsan/run --threads 3 --mixer $mixer --steps 3 --batch 4 \
    --layers 2 --channels 32 --context 16 --dropout 0.1 --window 4 --eval-every 0 | tail -n 1
done
