#!/usr/bin/env bash
# tools/windows.sh BUILD [GOLDEN_FOLDER]: compiles train, generate, evaluate and golden for Windows and runs them under
# wine. Runs, a resumed run, a text and a score must have the bits of the programs in BUILD; golden reads the folder's
# files.
set -euo pipefail
build=$1
tools/need.sh python3 wine
OPTIONS=-DOMIT_AVX512=ON tools/zig_build.sh x86_64-windows-gnu train generate evaluate golden
folder=$(mktemp -d)
trap 'wineserver -k; rm -rf "$folder"' EXIT
export WINEPREFIX=$folder/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" ATTENTION_ISA=baseline
wineboot --init >/dev/null 2>&1

windows() { local program=$1; shift; wine build-x86_64-windows-gnu/"$program.exe" "$@"; }
linux() { local program=$1; shift; "$build/$program" "$@"; }
use() {
  local system=$1 run=$folder/$1
  "$system" train --data README.md --mixer additive,dot --conv-kernel 3 --layers 2 --channels 24 --heads 3 --context 32 \
    --batch 4 --dropout 0.1 --steps 20 --threads 2 --out "$run"
  "$system" train --resume "$run" --steps 30
  "$system" generate --checkpoint "$run" --prompt "The " --tokens 100 >"$run/written.txt"
  "$system" evaluate --checkpoint "$run" --data README.md | tail -n 1 >"$run/score.txt"
  sed -i 's/,[^,]*$//' "$run/log.csv"  # tokens per second
  rm "$run/data.txt"                   # a path
}
use linux >/dev/null
use windows | tail -n 1
diff -r "$folder/linux" "$folder/windows"
echo "the same bits"
printf '#!/bin/bash\nexec wine "$1.exe" "${@:2}"\n' >"$folder/run"
chmod +x "$folder/run"
for isa in baseline avx2; do
  ATTENTION_ISA=$isa tools/compare_bits.py "$build" "$folder/run:build-x86_64-windows-gnu" "--steps 30"
done

# Windows paths with a non-ASCII letter; leftovers and older runs in a folder; messages.
expect() { grep -F -- "$1" >/dev/null || { echo "expected: $1" >&2; exit 1; }; }
mkdir "$folder/été"
cp README.md "$folder/été/words.txt"
top=$(winepath -w "$folder/été")
run="$top\\runs\\one"
# small STEPS FLAG...: trains a small network.
small() {
  windows train --layers 1 --channels 8 --heads 1 --context 8 --batch 2 --eval-tokens 100 --steps "$@"
}
small 2 --data "$top\\words.txt" --out "$run" >/dev/null
expect "$top\\words.txt" <"$folder/été/runs/one/data.txt"
leftover=$folder/été/runs/one/model.safetensors.abh-1-0.tmp
touch "$leftover"
windows train --resume "$run" --steps 4 >/dev/null
[ ! -e "$leftover" ]
small 2 --data "$top\\words.txt" --out "$run\\" | expect "one.1"
cmp "$folder/été/runs/one/data.txt" "$folder/été/runs/one.1/data.txt"
small 2 --data "$top\\words.txt" --out "$run" --overwrite | expect "the run in this folder was dropped"
small 2 --data "$top\\none.txt" --out "$run" 2>"$folder/message" && exit 1
expect "none.txt: cannot be opened: No such file or directory" <"$folder/message"
windows generate --checkpoint "$run" --prompt "×" --tokens 1 | expect "×"

# A second run must not use the folder while the first run is alive.
run="$top\\runs\\two"
small 1000000 --data README.md --out "$run" >/dev/null &
while kill -0 $! && [ ! -e "$folder/été/runs/two/log.csv" ]; do sleep 0.1; done
small 2 --data README.md --out "$run" >/dev/null 2>"$folder/message" && exit 1
expect "another run is writing into this folder" <"$folder/message"
wineserver -k
wait
small 2 --data README.md --out "$run" | expect "two.1"
echo "paths, messages and folders as on Linux"
[ $# = 1 ] || windows golden "$2"/*.safetensors | grep -c ": ok"
