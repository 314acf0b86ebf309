#!/usr/bin/env bash
# tools/gpu_report.sh [--emulated] [OUT_DIR]: builds, tests and measures everything on the GPU of this machine, within
# nine minutes and without a network. Each section writes into OUT_DIR/raw (default: build-gpu/report/raw). After each
# section tools/gpu_report.py writes OUT_DIR/report.md and report.json, and raw.tgz archives the results. A section that
# fails or runs out of time does not stop the next. With a shorter time limit use three runs, in the order of
# importance: SECTIONS="machine build tests bench", "training profile pytorch", "sanitizer". The second and third run
# use the programs in BUILD, which another machine may have built.
#
# --emulated runs everything without a GPU, at tiny sizes on the emulator. In the environment: BUDGET, seconds in total
# (540); SECTIONS, the sections to run (all); BUILD, the build folder; CATCH2_DIR, the folder of catch2/catch.hpp if
# Catch2 is not installed; TINYSHAKESPEARE, the text if data/ does not contain it; CMAKE_ARGS, more CMake options.
# shellcheck disable=SC2317 # sections are called by name
set -u
cd "$(dirname "$0")/.." || exit 1
emulated=0
[ "${1:-}" != --emulated ] || { emulated=1; shift; }
case ${1:-} in -*) echo "tools/gpu_report.sh: expected [--emulated] [OUT_DIR], found $1" >&2; exit 2 ;; esac
if [ $emulated = 0 ]; then
  reason=$(tools/need_gpu.sh 2>&1) || {
    echo "tools/gpu_report.sh: $(cut -d : -f 2- <<<"${reason%;*}" | cut -c 2-); --emulated runs this report without a GPU" >&2
    exit 1
  }
  device=cuda
  BUILD=${BUILD:-build-gpu}
else
  device=emulated
  BUILD=${BUILD:-build-gpu-emulated}
fi
all="machine build tests bench training profile pytorch sanitizer"
out=${1:-$BUILD/report}
sections=${SECTIONS:-$all}
BUDGET=${BUDGET:-540}
rm -rf "$out/raw"
mkdir -p "$out/raw" "$BUILD" || exit 1
out=$(cd "$out" && pwd) || exit 1
raw=$out/raw
echo "$device" >"$raw/device.txt"
jobs=$(getconf _NPROCESSORS_ONLN)
export BUILD raw jobs device emulated
export TORCHINDUCTOR_CACHE_DIR=$PWD/$BUILD/inductor
[ ! -d "${CUDA_HOME:-/usr/local/cuda}/bin" ] || PATH=${CUDA_HOME:-/usr/local/cuda}/bin:$PATH

# Seconds reserved for a section: earlier sections may not use them.
reserve() {
  case $1 in
    machine) echo 15 ;; build) echo 180 ;; tests) echo 60 ;; bench) echo 40 ;;
    training) echo 60 ;; profile) echo 30 ;; pytorch) echo 90 ;; sanitizer) echo 45 ;; *) echo 0 ;;
  esac
}

has() { command -v "$1" >/dev/null 2>&1; }
torch() { python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; }
note() { echo "$*" >>"$raw/notes.$section"; }
skip() { # a whole section: skip REASON; return 77
  note "skipped: $*"
  return 77
}

# Facts of this machine, "name: value".
run_machine() {
  {
    if [ "$emulated" = 1 ]; then
      echo "GPU: skipped: needs a GPU; kernels run on the emulator"
    else
      nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap,clocks.max.sm,power.limit \
        --format=csv,noheader | head -n 1 | {
        IFS=, read -r name driver memory capability clock power
        printf 'GPU: %s\ndriver:%s\nmemory:%s\ncompute capability:%s\nhighest clock:%s\npower limit:%s\n' \
          "$name" "$driver" "$memory" "$capability" "$clock" "$power"
      }
    fi
    has nvcc && echo "nvcc: $(nvcc --version | sed -n 's/.*release //p')"
    echo "compiler: $(c++ --version | head -n 1)"
    echo "cmake: $(cmake --version | head -n 1 | sed 's/.* //')"
    echo "processor:$(sed -n 's/^model name[^:]*://p' /proc/cpuinfo | head -n 1), $jobs threads"
    if torch; then
      python3 -c 'import torch; print("PyTorch:", torch.__version__, "CUDA", torch.version.cuda)'
    else
      echo "PyTorch: missing"
    fi
    has git && echo "commit: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
  } >"$raw/machine.txt"
}

# Folder of cuBLASLt in Python's packages, if PyTorch has installed it.
cublas_of_python() {
  python3 2>/dev/null - <<'END'
import importlib.util, pathlib
nvidia = importlib.util.find_spec("nvidia")
for place in nvidia.submodule_search_locations if nvidia else []:
    for header in sorted(pathlib.Path(place).glob("*/include/cublasLt.h")):
        print(header.parent.parent)
END
}

# Builds the programs, then the tests, for this GPU; build.txt has the output of ptxas for every kernel. Tests that run
# programs or read golden files are left out: their compile errors would prevent all other tests.
run_build() {
  local cuda=ON emulator=OFF testing=OFF architectures include= cublas=
  [ "$emulated" = 0 ] || { cuda=OFF; emulator=ON; }
  [ "$emulated" = 1 ] || cublas=$(cublas_of_python | head -n 1)
  if [ -n "${CATCH2_DIR:-}" ]; then
    [ -e "$CATCH2_DIR/catch2/catch.hpp" ] || { echo "CATCH2_DIR: $CATCH2_DIR/catch2/catch.hpp: no such file" >&2; return 1; }
    include="-isystem $(cd "$CATCH2_DIR" && pwd)"
    testing=ON
  elif printf '#if !__has_include(<catch2/catch.hpp>) && !__has_include(<catch2/catch_all.hpp>)\n#error\n#endif\n' |
    c++ -x c++ -E - >/dev/null 2>&1; then
    testing=ON  # checked with the compiler: tools/need.sh would try to install it, but there is no network
  else
    note "tests skipped: Catch2 is missing; CATCH2_DIR names the folder that holds catch2/catch.hpp"
  fi
  architectures=$(tools/gpu_architectures.sh)
  local generator=Ninja go_on="-k 0"
  has ninja || generator="Unix Makefiles" go_on="-k -Otarget"
  # shellcheck disable=SC2086 # a list of words
  cmake -G "$generator" -S . -B "$BUILD" -DBUILD_CUDA=$cuda -DBUILD_EMULATOR=$emulator -DBUILD_TESTING=$testing \
    -DOMIT_PROGRAM_TESTS=ON ${cublas:+"-DCUBLAS_ROOT=$cublas"} \
    ${architectures:+"-DCMAKE_CUDA_ARCHITECTURES=$architectures"} \
    -DCMAKE_CUDA_FLAGS=-Xptxas=-v "-DCMAKE_CXX_FLAGS=$include" ${CMAKE_ARGS:-} \
    >"$raw/configure.txt" 2>&1 || { tail -n 20 "$raw/configure.txt" >&2; return 1; }
  ! grep -q "cuBLASLt was not found" "$raw/configure.txt" ||
    note "cuBLASLt is missing: matrix products are those of cuda/gemm.cu"
  # Output of one target at a time, so that a line of ptxas stands below the name of its kernel. A compile error affects
  # only the programs that contain the file.
  local status=0 more=tests
  [ $testing = ON ] || more=
  # shellcheck disable=SC2086 # lists of words
  {
    cmake --build "$BUILD" -j "$jobs" --target bench train -- $go_on >"$raw/build.txt" 2>&1 || status=1
    cmake --build "$BUILD" -j "$jobs" --target $more generate evaluate golden -- $go_on >>"$raw/build.txt" 2>&1 || status=1
  }
  [ $status = 0 ] || grep -E -m 5 'error|Error' "$raw/build.txt" >&2
  return $status
}

# Runs all tests of kernels with the table of errors: one process per layer, eight at a time, so that a hanging process
# affects only its own results. Then checks golden files, which PyTorch writes here.
run_tests() {
  local status=0 mixer tag tags passed=0 failed=0
  if [ -x "$BUILD/tests" ]; then
    [ "$emulated" = 1 ] || export ABH_REQUIRE_GPU=1  # without a GPU the tests would have nothing to do, and would pass
    export GRADCHECK=1 counted='^([0-9]+) passed, ([0-9]+) failed$'
    deadline=$(($(date +%s) + limit * 3 / 4))
    export deadline
    test_layer() {
      local tag=$1 log=$raw/tests_$1.txt left=$((deadline - $(date +%s))) status
      timeout -k 3 $((left > 0 ? left : 1)) "$BUILD/tests" "[$tag][gpu]~[programs]~[heavy]~[slow]" >"$log" 2>&1
      status=$?
      [[ $(tail -n 1 "$log") =~ $counted ]] && return
      case $status in 124 | 137) status="out of time" ;; *) status="ended with status $status" ;; esac
      note "$tag: $status"
      printf '\n%s: %s\n' "$tag" "$status" >>"$log"
    }
    export -f test_layer
    tags=$("$BUILD/tests" --list-tags "[gpu]" | sed -n 's/^ *[0-9]* *\[\([a-z0-9_]*\)\]$/\1/p' |
      grep -v -x -e gpu -e slow -e heavy -e long -e programs)
    [ "$emulated" = 0 ] || tags=layernorm
    xargs -P 8 -L 1 bash -c 'test_layer "$@"' test_layer <<<"$tags"
    for tag in $tags; do
      if [[ $(tail -n 1 "$raw/tests_$tag.txt") =~ $counted ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
        sed -i '$d' "$raw/tests_$tag.txt"
      else
        failed=$((failed + 1))
      fi
      cat "$raw/tests_$tag.txt" >>"$raw/tests.txt"
      rm "$raw/tests_$tag.txt"
    done
    [ -n "$tags" ] || note "the test program names no tests of kernels"
    echo "$passed passed, $failed failed" >>"$raw/tests.txt"
    [ "$passed" != 0 ] && [ "$failed" = 0 ] || status=1
  else
    note "tests skipped: they are not built"
  fi
  if torch; then
    mkdir -p "$BUILD/golden_files"
    python3 tests/golden_cases.py "$BUILD/golden_files" && for mixer in additive metric dot; do
      python3 tools/pytorch_reference.py --mixer $mixer --golden "$BUILD/golden_files/reference_$mixer.safetensors"
    done
    local files=("$BUILD/golden_files"/*.safetensors)
    [ "$emulated" = 0 ] || files=("$BUILD/golden_files"/l[ai]*.safetensors "$BUILD/golden_files"/reference_*.safetensors)
    "$BUILD/golden" --device "$device" --type float "${files[@]}" >"$raw/golden.txt" 2>&1 || status=1
  else
    note "golden files skipped: PyTorch, which writes them, is missing"
  fi
  return $status
}

# bench at several sizes: raw/bench_NAME.txt and .json.
run_bench() {
  local status=0
  measure() {
    local name=$1
    shift
    "$BUILD/bench" --device "$device" --json "$raw/bench_$name.json" "$@" >"$raw/bench_$name.txt" 2>&1 || {
      status=1
      note "$name: $(tail -n 1 "$raw/bench_$name.txt")"
    }
  }
  if [ "$emulated" = 1 ]; then
    for type in float bf16; do
      measure "small_$type" --type $type --seconds 0 --layers 1 --channels 16 --heads 2 --context 8 --batch 2
    done
    return $status
  fi
  local large="--preset baby --layers 12 --channels 1024 --heads 16 --context 1024 --batch 32 --seconds 0.1"
  measure baby_bf16 --preset baby --type bf16
  # shellcheck disable=SC2086
  measure large_bf16 $large --type bf16
  measure baby_float --preset baby --type float --seconds 0.1
  # shellcheck disable=SC2086
  measure large_float $large --type float --mixer dot
  measure baby_bf16_hand --preset baby --type bf16 --gemm hand --seconds 0.1
  return $status
}

# Training steps, alternating with PyTorch's.
run_pytorch() {
  torch || { skip "PyTorch is missing"; return; }
  if [ "$emulated" = 1 ]; then
    python3 tools/pytorch_reference.py --device cpu --bench "$BUILD/bench" --bench-device emulated --modes eager \
      --layers 1 --channels 16 --heads 2 --context 8 --batch 2 --rounds 1 --seconds 0.01 --type float \
      --json "$raw/pytorch.json" >"$raw/pytorch.txt" 2>&1
  else
    local status=0
    python3 tools/pytorch_reference.py --attention --bench "$BUILD/bench" --json "$raw/attention.json" \
      >"$raw/attention.txt" 2>&1 || status=1
    python3 tools/pytorch_reference.py --bench "$BUILD/bench" --preset baby --rounds 3 --seconds 0.5 \
      --limit $((limit * 2 / 3)) --json "$raw/pytorch.json" >"$raw/pytorch.txt" 2>&1 || status=1
    return $status
  fi
}

# Complete training runs; each output line begins with the time since the start. First the recipes with the lowest loss,
# short and long, then the preset baby.
run_training() {
  local text run recipe small=() begin line status=0
  lasting() { [ "$emulated" = 1 ] && echo "--steps 3 --eval-every 2" || echo "$*"; } # short on the emulator
  text=$(data/tinyshakespeare.sh "$BUILD") || return 1
  if [ "$emulated" = 0 ] && [ "$text" != "${TINYSHAKESPEARE:-data/tinyshakespeare.txt}" ]; then
    echo "tools/gpu_report.sh: data/tinyshakespeare.txt: missing; losses of another text cannot be compared" >&2
    note "Tiny Shakespeare is missing"
    return 1
  fi
  if [ "$emulated" = 1 ]; then
    head -c 3000 "$text" >"$BUILD/short.txt"
    text=$BUILD/short.txt
    small=(--layers 1 --channels 16 --heads 2 --context 8 --batch 2)
  fi
  # shellcheck disable=SC2046 # flags are words
  for run in shakespeare_quick shakespeare additive dot metric additive_muon dot_muon; do
    case $run in
      shakespeare_quick) recipe=(--preset shakespeare --dropout 0.1 $(lasting --steps 2000 --eval-every 250)) ;;
      shakespeare) recipe=(--preset shakespeare $(lasting --eval-every 500)) ;;
      *_muon)
        recipe=(--preset baby --mixer "${run%_muon}" --optimizer muon --learning-rate 2e-3)
        recipe+=($(lasting --steps 1500 --eval-every 250))
        ;;
      *) recipe=(--preset baby --mixer "$run" $(lasting --eval-every 250)) ;;
    esac
    begin=$(date +%s%N)
    "$BUILD/train" --device "$device" --data "$text" --type bf16 --checkpoint-every 0 --log-every 50 "${recipe[@]}" \
      "${small[@]}" --out "$BUILD/runs/$run" --overwrite 2>&1 | while IFS= read -r line; do
      printf '%s %s\n' $((($(date +%s%N) - begin) / 1000000)) "$line"
    done >"$raw/training_$run.txt"
    cp "$BUILD/runs/$run/log.csv" "$raw/log_$run.csv" 2>/dev/null
    cp "$BUILD/runs/$run/sample.txt" "$raw/sample_$run.txt" 2>/dev/null
    grep -q ' final:' "$raw/training_$run.txt" || {
      status=1
      note "$run: $(tail -n 1 "$raw/training_$run.txt")"
    }
  done
  return $status
}

# Kernels of a training step without a CUDA graph, one by one: raw/profile_MIXER.csv.
run_profile() {
  [ "$emulated" = 0 ] || { skip "needs a GPU"; return; }
  has ncu || { skip "ncu is missing"; return; }
  local metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum mixer status=0
  for mixer in additive metric dot; do
    timeout $((limit / 3)) ncu --clock-control none --metrics $metrics --csv --page raw --kill yes \
      --launch-count 600 \
      "$BUILD/bench" --device "$device" --preset baby --type bf16 --mixer $mixer --each-layer 0 --seconds 0 \
      >"$raw/profile_$mixer.csv" 2>"$raw/profile_$mixer.txt" || status=1
  done
  return $status
}

# Tests of every layer under compute-sanitizer, four at a time, with one line each in raw/sanitizer.txt.
run_sanitizer() {
  [ "$emulated" = 0 ] || { skip "needs a GPU"; return; }
  has compute-sanitizer || { skip "compute-sanitizer is missing"; return; }
  [ -x "$BUILD/tests" ] || { skip "the tests are not built"; return; }
  export ABH_REQUIRE_GPU=1
  check() {
    local tool=$1 layer=$2 log=$raw/sanitizer_$1_$2.txt
    timeout 90 compute-sanitizer --tool "$tool" "$BUILD/tests" "[$layer][gpu]" >"$log" 2>&1
    local status=$? found
    found=$(sed -n 's/^=========.* SUMMARY: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    if [ $status = 124 ]; then
      status="out of time"
    elif grep -q 'No test cases matched' "$log"; then
      status="no tests"
    elif [ -z "$found" ]; then
      status="did not run: $(grep -m 1 '=========' "$log" || tail -n 1 "$log")"
    elif [ "$found" != 0 ]; then
      status="$found errors"
    elif [ $status != 0 ]; then
      status="clean, but its tests fail"
    else
      status=clean
    fi
    printf '%s\t%s\t%s\n' "$tool" "$layer" "$status" >>"$raw/sanitizer.txt"
    [ "$status" != clean ] || rm -f "$log"
  }
  export -f check
  for tool in memcheck racecheck; do
    for layer in cuda/*.cu extras/*/*.cu; do
      layer=$(basename "$layer" .cu)
      layer=${layer%_cuda}
      for test in tests/*/test_"$layer".cpp extras/*/test_"$layer".cpp; do
        [ ! -e "$test" ] || printf '%s %s\n' "$tool" "$layer"
      done
    done
  done | xargs -P 4 -L 1 bash -c 'check "$@"' check
  ! grep -q -E '( errors|no tests)$' "$raw/sanitizer.txt"
}

export -f has torch note skip cublas_of_python run_machine run_build run_tests run_bench run_pytorch run_training run_profile run_sanitizer
# PyTorch compiles its kernels before all measurements, while the programs are built. Without the build section it
# compiles them on first use.
warm=()
case " $sections " in *" build "*" pytorch "*)
  if [ "$emulated" = 0 ] && torch; then
    for mixer in additive metric dot; do
      nice timeout 170 python3 tools/pytorch_reference.py --mixer $mixer --rounds 0 >"$raw/warm_$mixer.txt" 2>&1 &
      warm+=($!)
    done
  fi ;;
esac
status=0
rest=" $sections "
for section in $sections; do
  case $section in bench | training | profile | pytorch) [ ${#warm[@]} = 0 ] || wait "${warm[@]}" ;; esac
  case " $all " in *" $section "*) ;; *) echo "tools/gpu_report.sh: SECTIONS: no section $section" >&2; exit 2 ;; esac
  rest=${rest#* "$section"}
  limit=$((BUDGET - SECONDS - 5))
  for later in $rest; do limit=$((limit - $(reserve "$later"))); done
  begin=$SECONDS
  export section limit
  if [ $limit -lt 5 ]; then
    note "left out: no time left"
    result="out of time"
  else
    echo "== $section: at most $limit s"
    timeout -k 3 "$limit" bash -c "run_$section"
    case $? in 0) result=passed ;; 77) result=skipped ;; 124 | 137) result="out of time" ;; *) result=failed ;; esac
  fi
  [ "$result" = passed ] || [ "$result" = skipped ] || status=1
  printf '%s\t%s\t%s\n' "$section" "$result" "$((SECONDS - begin))" >>"$raw/sections.tsv"
  echo "== $section: $result, $((SECONDS - begin)) s"
  python3 tools/gpu_report.py "$out" || status=1
  tar -czf "$out/raw.tgz" -C "$out" raw || status=1
done
echo "report: $out/report.md"
exit $status
