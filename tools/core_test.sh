#!/usr/bin/env bash
# tools/core_test.sh BUILD: tests the core without extras/ (cmake -DEXTRAS=OFF), built into build-core for the baseline
# only. It must train the presets of the recipes to the bits of BUILD/train, read files of BUILD, and refuse a missing
# feature in one line with its name. The last line counts the checks. Unit tests: OPTIONS=-DEXTRAS=OFF tools/sanitize.sh
# asan.
set -u
cd "$(dirname "$0")/.."
build=$1
tools/need.sh cmake c++ python3 || exit 1
# -O1: results do not depend on the optimisation level.
cmake -S . -B build-core -DEXTRAS=OFF -DOMIT_AVX2=ON -DCMAKE_CXX_FLAGS_RELEASE=-O1 >/dev/null || exit 1
cmake --build build-core -j "$(getconf _NPROCESSORS_ONLN)" --target train generate evaluate golden | tail -n 1 || exit 1
export ATTENTION_ISA=baseline
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

passed=0 failed=0
check() {  # TEXT COMMAND...
  if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $1"; fi
}
quiet() { "$@" >/dev/null; }
# refuses STATUS FEATURE COMMAND...: the command must fail with one line on standard error, which names the feature.
refuses() {
  local status=$1 feature=$2 found
  "${@:3}" >/dev/null 2>"$folder/fault.txt"
  found=$?
  [ $found = "$status" ] && [ "$(wc -l <"$folder/fault.txt")" = 1 ] &&
    grep -q "needs the feature $feature, which this build leaves out" "$folder/fault.txt" ||
    { echo "status $found: $(cat "$folder/fault.txt")" && false; }
}
train="--data README.md --steps 2 --threads 1"

for preset in tiny shakespeare baby; do
  small="--batch 2"
  [ $preset = baby ] && small="--batch 2 --layers 2"
  for programs in "$build" build-core; do
    # shellcheck disable=SC2086 # flags are words
    "$programs/train" $train --preset $preset $small --out "$folder/$preset-${programs//\//-}" >/dev/null
  done
  for file in model.safetensors resume.safetensors sample.txt; do
    check "$preset: $file has the same bits" \
      cmp "$folder/$preset-${build//\//-}/$file" "$folder/$preset-build-core/$file"
  done
done

# Checkpoints written by a build with extras.
with_extras() { "$build/train" --data README.md --steps 1 --layers 1 --channels 16 --heads 2 --context 16 --threads 1 "$@" >/dev/null; }
with_extras --out "$folder/core" --mixer dot
check "training of a core network of another build continues" \
  quiet build-core/train --data README.md --resume "$folder/core" --steps 2
check "a core network of another build generates text" quiet build-core/generate --checkpoint "$folder/core" --tokens 3
while read -r feature flags; do
  # shellcheck disable=SC2086
  with_extras --out "$folder/$feature" $flags
  check "a checkpoint with $flags" refuses 1 "$feature" build-core/generate --checkpoint "$folder/$feature" --tokens 3
  check "a run with $flags" refuses 1 "$feature" build-core/train --resume "$folder/$feature" --data README.md
done <<'RUNS'
leap --mixer leap
positions --mixer dot --rescale 2
windows --window 5
sparse --mixer dot --pattern strided --stride 4
reversible --reversible 1
adaptive_span --mixer dot --span 8
seq2seq --mixer dot --activation relu
RUNS

# Every flag and name in the list of features, src/base/extras.cpp, which also refuses keys of files.
while read -r feature word; do
  case $word in
    case=* | cross=*) continue ;;
    *=*) flags="--${word/=/ }" ;;
    *) flags="--${word//_/-} 1" ;;
  esac
  # shellcheck disable=SC2086
  check "$flags" refuses 2 "$feature" build-core/train --data README.md $flags
done < <(python3 - <<'PYTHON'
import re
table = re.search(r"features\[\] = \{(.*?)\n\};", open("src/base/extras.cpp").read(), re.DOTALL)[1]
for feature, words in re.findall(r'\{"(\w+)",\s*((?:"[^"]*"\s*)+)\}', table):
    for word in "".join(re.findall('"([^"]*)"', words)).split():
        print(feature, word)
PYTHON
)
echo "$passed passed, $failed failed"
[ $failed = 0 ]
