#!/usr/bin/env bash
# extras/distributed/compare_processes.sh [TURNS]: the speed of two processes of one thread beside that of one process
# of two threads, baby, in turns, on an otherwise idle machine. Prints tokens/s of every turn, then the medians. The
# steps are many, as the first one meets its memory for the first time, and two processes meet more of it.
set -eu
cd "$(dirname "$0")/../.."
turns=${1:-5}
build=build-mpi
tools/need.sh cmake c++ mpi
cmake -S . -B $build -DBUILD_MPI=ON >/dev/null
cmake --build $build -j "$(getconf _NPROCESSORS_ONLN)" --target train built_in_corpus | tail -n 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
$build/built_in_corpus "$folder/text.txt" >/dev/null
flags="--data $folder/text.txt --preset baby --shards 2 --batch 16 --steps 24 --eval-every 0 --checkpoint-every 0"
speed() { sed -n 's/^final: .*, \([0-9]*\) tokens\/s$/\1/p'; }
for ((turn = 0; turn < turns; ++turn)); do
  # shellcheck disable=SC2086 # flags are words
  one=$($build/train $flags --threads 2 --out "$folder/one$turn" | speed)
  # shellcheck disable=SC2086
  two=$(extras/distributed/mpirun.sh 2 $build/train $flags --threads 1 --out "$folder/two$turn" | speed)
  echo "one process of two threads: $one tokens/s; two of one thread: $two"
  echo "$one" >>"$folder/one.txt"
  echo "$two" >>"$folder/two.txt"
done
median() { sort -n "$1" | sed -n "$(((turns + 1) / 2))p"; }
one=$(median "$folder/one.txt")
two=$(median "$folder/two.txt")
echo "medians: $one and $two tokens/s, $((100 * two / one)) %"
