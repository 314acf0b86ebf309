#!/usr/bin/env bash
# tools/compare_threads.sh [TURNS] [TRAIN]: compares the speed of the preset tiny on all processors with one thread, in
# turns, under load: a busy loop runs on every processor. If TRAIN names another train program, compares both programs
# on all processors without load. Prints tokens/s of every turn, then the medians.
set -eu
cd "$(dirname "$0")/.."
turns=${1:-5}
other=${2:-}
build=build
tools/need.sh cmake c++
[ -f $build/Makefile ] || cmake -S . -B $build >/dev/null
cmake --build $build -j "$(getconf _NPROCESSORS_ONLN)" --target train built_in_corpus | tail -n 1
folder=$(mktemp -d)
loops=()
trap '[ ${#loops[@]} = 0 ] || kill "${loops[@]}"; rm -rf "$folder"' EXIT
$build/built_in_corpus "$folder/text.txt" >/dev/null
# speed NAME TRAIN FLAGS...: prints the speed of a run, and appends it to the file of this name.
speed() {
  local name=$1 train=$2
  shift 2
  "$train" --data "$folder/text.txt" --steps 300 --eval-every 0 --checkpoint-every 0 \
    --out "$(mktemp -d -p "$folder")" "$@" |
    sed -n 's/^final: .*, \([0-9]*\) tokens\/s$/\1/p' | tee -a "$folder/$name.txt"
}
median() { sort -n "$folder/$1.txt" | sed -n "$(((turns + 1) / 2))p"; }
# medians THIS THAT: prints the medians of two names and their ratio.
medians() { echo "medians: $(median "$1") and $(median "$2") tokens/s, $((100 * $(median "$1") / $(median "$2"))) %"; }

for ((i = 0; i < $(getconf _NPROCESSORS_ONLN); ++i)); do
  while :; do :; done &
  loops+=($!)
done
for ((turn = 0; turn < turns; ++turn)); do
  echo "with busy loops, all threads: $(speed all $build/train) tokens/s; one: $(speed one $build/train --threads 1)"
done
medians all one
kill "${loops[@]}"
loops=()
[ -n "$other" ] || exit 0
for ((turn = 0; turn < turns; ++turn)); do
  echo "without busy loops, this: $(speed this $build/train) tokens/s; $other: $(speed that "$other")"
done
medians this that
