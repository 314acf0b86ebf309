#!/usr/bin/env bash
# Fuzzes the safetensors reader and reports the line coverage that was reached: run.sh [SECONDS], default 600.
# Needs clang with its fuzzer runtime, llvm-profdata and llvm-cov of the same version, python3. Fails on any finding (the
# input is kept in the work folder) and if fewer than 90 % of the lines of src/files/safetensors.cpp were reached.
# Environment: CXX, FUZZ_DIR (work folder, default build/fuzz; the corpus in it is kept from run to run).
set -euo pipefail

seconds=${1:-600}
minimum=90
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${FUZZ_DIR:-$root/build/fuzz}
mkdir -p "$work/corpus"

# The first of the commands that exists.
pick() {
  local name
  for name in "$@"; do
    if command -v "$name" >/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "run.sh: none of these is installed: $*" >&2
  exit 1
}

compiler=${CXX:-$(pick clang++-14 clang++)}
version=$("$compiler" -dumpversion | cut -d. -f1)
profdata=$(pick "llvm-profdata-$version" llvm-profdata)
cov=$(pick "llvm-cov-$version" llvm-cov)

fuzzer=$work/fuzz_safetensors
"$compiler" -std=c++20 -O1 -g -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror \
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fprofile-instr-generate -fcoverage-mapping \
  -I "$root/src" "$root"/tests/fuzz/fuzz_safetensors.cpp "$root"/src/{files/safetensors,files/safetensors_header,files/atomic_file,files/atomic_file_posix,base/crc32}.cpp -o "$fuzzer"

python3 "$root/tests/fuzz/seeds.py" "$work/seeds"

echo "fuzzing for $seconds s"
LLVM_PROFILE_FILE=$work/fuzz.profraw "$fuzzer" -max_total_time="$seconds" -max_len=1024 -timeout=10 \
  -rss_limit_mb=2048 -dict="$root/tests/fuzz/safetensors.dict" -artifact_prefix="$work/" -print_final_stats=1 \
  -verbosity=1 "$work/corpus" "$work/seeds" >"$work/log" 2>&1 || {
  tail -n 40 "$work/log" >&2
  echo "run.sh: the fuzzer found something; the input and the log are in $work" >&2
  exit 1
}
grep '^stat::' "$work/log"

"$profdata" merge -sparse "$work/fuzz.profraw" -o "$work/fuzz.profdata"
"$cov" show "$fuzzer" -instr-profile="$work/fuzz.profdata" "$root/src/files/safetensors.cpp" >"$work/coverage.txt"
# The TOTAL row: regions, functions, lines (count, missed, percent), and so on.
covered=$("$cov" report "$fuzzer" -instr-profile="$work/fuzz.profdata" "$root/src/files/safetensors.cpp" |
  awk '$1 == "TOTAL" { sub("%", "", $10); print $10 }')
echo "line coverage of src/files/safetensors.cpp: $covered % (at least $minimum %); line by line in $work/coverage.txt"
awk -v covered="$covered" -v minimum="$minimum" 'BEGIN { exit !(covered + 0 >= minimum) }' || {
  echo "run.sh: coverage is too low" >&2
  exit 1
}
