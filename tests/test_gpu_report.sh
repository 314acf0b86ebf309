#!/bin/sh
# tests/test_gpu_report.sh BUILD_DIR: the page that tools/gpu_report.py makes of canned results; what tools/gpu_report.sh
# says without a GPU, and of tests that hang and crash on a GPU that is made up; and, where the build has the emulator,
# that bench's JSON fits. The last line counts the checks.
set -u
build=$1
. "$(dirname -- "$0")/harness/checks.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
raw=$folder/report/raw
says() { grep -q -F -e "$1" "$folder/report/report.md"; }

python3 tools/gpu_report.py "$folder/report" 2>"$folder/err"
check "a folder without results is refused" [ $? = 1 ]
check "and named" grep -q "raw: no such folder" "$folder/err"
mkdir -p "$raw"
python3 tools/gpu_report.py "$folder/report"
check "a page of nothing" says "# Measured on a GPU"

printf 'machine\tpassed\t2\nbuild\tout of time\t100\nsanitizer\tskipped\t0\n' >"$raw/sections.tsv"
echo "skipped: needs a GPU" >"$raw/notes.sanitizer"
echo "GPU: A stand-in" >"$raw/machine.txt"
cat >"$raw/build.txt" <<'END'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN3abh49_GLOBAL__N__73692c65_12_layernorm_cu_518ce6a9_6596kernelEPf' for 'sm_90'
ptxas info    : Function properties for _ZN3abh49_GLOBAL__N__73692c65_12_layernorm_cu_518ce6a9_6596kernelEPf
    0 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 42 registers, used 1 barriers, 256 bytes smem
ptxas info    : Function properties for _Z4cut_Pf
END
cat >"$raw/tests.txt" <<'END'
layer      case                         pass      tensor     device           type       error       bar
layernorm  B 3, C 37, D 40              forward   out_bcd    cuda             float    1.0e-07   1.0e-05
layernorm  B 3, C 37, D 40              backward  d_in_bcd   cuda             float    3.0e-06   2.0e-05
layernorm  B 3, C 37, D 40              backward  d_in_bcd   cuda, hand gemm  bf16     5.0e-02   2.0e-02  FAIL
4 passed, 1 failed
END
cat >"$raw/golden.txt" <<'END'
a.safetensors: linear, cuda, float: 3 of 3 tensors within 2e-05, worst 1.0e-07: ok
b.safetensors: linear, cuda, float: 2 of 3 tensors within 2e-05, worst 1.0e-03: FAIL
END
cat >"$raw/training_additive.txt" <<'END'
900 data: x.txt, 9 tokens for training
2500 step 250/500, train 1.5, val 1.5000, 100 tokens/s, 0:01 left
4200 step 500/500, train 1.4, val 1.4697, 100 tokens/s, 0:00 left
4300 final: corpus x, step 500, train 1.4, val 1.4697 nats/char (2.1 bits/char), best 1.4697 at step 500, 123456 tokens/s
END
echo "100 step 1/500, train 4.0, 100 tokens/s, 0:01 left" >"$raw/training_dot.txt"
cat >"$raw/pytorch.json" <<'END'
{"torch": "2", "device": "cuda", "gpu": "A stand-in", "type": "bf16", "layers": 6, "channels": 384, "heads": 6,
 "context": 256, "batch": 64, "dropout": 0.2, "rounds": 3, "steps": [
 {"mixer": "dot", "name": "ours", "ms": 4.0, "all_ms": [3.5, 4.0, 5.0], "tokens_per_s": 4096000},
 {"mixer": "dot", "name": "PyTorch, eager", "ms": 9.0, "all_ms": [9.0], "tokens_per_s": 1820444},
 {"mixer": "dot", "name": "PyTorch, compile", "ms": 6.0, "all_ms": [6.0], "tokens_per_s": 2730667}]}
END
printf 'memcheck\tlayernorm\tclean\n' >"$raw/sanitizer.txt"
echo '{"cut' >"$raw/bench_baby.json"
python3 tools/gpu_report.py "$folder/report"
check "status of the page" [ $? = 0 ]
check "what a section came to" says "| build | out of time |  | 100 |"
check "why one was left out" says "| sanitizer | skipped | skipped: needs a GPU | 0 |"
# shellcheck disable=SC2016 # backquotes of Markdown
check "registers and spills" says '| layernorm.cu | `kernel` | 42 | 256 | 20 |'
check "a kernel whose line is cut off is not one" says "1 kernels"
check "tests" says "4 passed, 1 failed"
check "the worst tensor of a layer" says "| layernorm | cuda | float | backward, d_in_bcd | 3.0e-06 | 2.0e-05 | ok |"
check "a tensor over its bar" says "| layernorm | cuda, hand gemm | bf16 | backward, d_in_bcd | 5.0e-02 | 2.0e-02 | FAIL |"
check "golden files" says "1 of 2 within tolerance"
check "seconds to the aim" says "| additive | 4.2 s, step 500 | 1.4697 | 4.3 | 123,456 |"
check "a training that was cut off" says "| dot | not reached | - | cut off | 0 |"
check "beside the fastest PyTorch" says "| dot | ours | 1.50 times the fastest PyTorch | 4.000 | 3.500 | 5.000 | 4,096,000 |"
check "the sanitizer" says "| memcheck | layernorm | clean |"
check "the JSON can be read" python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); sys.exit(r["bench"]["baby"] is not None or r["trainings"][0]["target_step"] != 500)' "$folder/report/report.json"

# A driver that finds no GPU.
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 1\n' >"$folder/bin/nvidia-smi"
chmod +x "$folder/bin/nvidia-smi"
PATH=$folder/bin:$PATH BUILD=$folder/build tools/gpu_report.sh "$folder/none" >"$folder/out" 2>"$folder/err"
check "without a GPU: status 1" [ $? = 1 ]
check "without a GPU: one line" [ "$(wc -l <"$folder/err")" = 1 ]
check "without a GPU: what to do" grep -q "tools/gpu_report.sh: no .* found.*--emulated" "$folder/err"
check "without a GPU: nothing is made" [ ! -e "$folder/none" ]
check "without a GPU: no architecture" [ -z "$(CUDAARCHS='' PATH=$folder/bin:$PATH tools/gpu_architectures.sh)" ]
check "architectures that the environment asks for" [ "$(CUDAARCHS='75;90' tools/gpu_architectures.sh)" = '75;90' ]

# Two GPUs, and tests of four layers: one is fine, one fails, one never ends, one crashes. All tests but those of the
# first are unknown to the sanitizer's program.
mkdir "$folder/fake"
python=$(command -v python3)
program() { # program FILE: a shell script of the lines that follow
  { echo '#!/bin/sh'; cat; } >"$1"
  chmod +x "$1"
}
program "$folder/bin/nvidia-smi" <<'END'
case $* in *compute_cap*) printf '9.0\n8.0\n9.0\n' ;; *) echo "GPU 0: made up" ;; esac
END
program "$folder/bin/nvcc" </dev/null
program "$folder/bin/python3" <<END
case "\$*" in *find_spec*) exit 1 ;; esac # no PyTorch, wherever this runs
exec "$python" "\$@"
END
program "$folder/bin/compute-sanitizer" <<'END'
shift 2
"$@"
echo "========= ERROR SUMMARY: 0 errors"
END
program "$folder/fake/tests" <<'END'
case $* in
  --list-tags*) printf 'Tags:\n   1  [adamw]\n   1  [conv_2]\n   2  [endless]\n   1  [crashing]\n   5  [gpu]\n   2  [slow]\n5 tags\n' ;;
  '[adamw][gpu]'*)
    echo "adamw  4 steps  update  weight  cuda  float  1.0e-07  2.0e-05"
    echo "$ABH_REQUIRE_GPU passed, 0 failed"
    ;;
  '[conv_2][gpu]'*) printf '2 passed, 3 failed\n'; exit 124 ;;
  '[endless][gpu]'*) exec sleep 60 ;;
  '[crashing][gpu]'*) echo "half a line"; kill -SEGV $$ ;;
  *) printf "No test cases matched '%s'\n0 passed, 0 failed\n" "$1" ;;
esac
END
check "architectures of GPUs" [ "$(CUDAARCHS='' PATH=$folder/bin:$PATH tools/gpu_architectures.sh)" = '80;90' ]
PATH=$folder/bin:$PATH CUDA_HOME=$folder BUILD=$folder/fake BUDGET=12 SECTIONS=tests \
  tools/gpu_report.sh "$folder/made_up" >"$folder/out" 2>"$folder/err"
check "tests that fail: status 1" [ $? = 1 ]
tests=$folder/made_up/raw/tests.txt
check "tests that fail: counted" [ "$(tail -n 1 "$tests")" = "3 passed, 5 failed" ]
check "the table of those that end" grep -q '^adamw .* 2.0e-05$' "$tests"
check "tests that do not end are named" grep -q '^endless: out of time$' "$tests"
check "tests that crash are named" grep -q '^crashing: ended with status 139$' "$tests"
check "on the page, too" grep -q '^| tests | failed | .*endless: out of time' "$folder/made_up/report.md"
check "one list of results" [ ! -e "$folder/made_up/raw/tests_adamw.txt" ]
PATH=$folder/bin:$PATH CUDA_HOME=$folder BUILD=$folder/fake BUDGET=60 SECTIONS=sanitizer \
  tools/gpu_report.sh "$folder/made_up" >"$folder/out" 2>"$folder/err"
check "a sanitizer without tests: status 1" [ $? = 1 ]
sanitizer=$folder/made_up/raw/sanitizer.txt
tab=$(printf '\t')
check "a sanitizer with tests" grep -q "^memcheck${tab}adamw${tab}clean\$" "$sanitizer"
check "a sanitizer without tests says so" grep -q "^racecheck${tab}gemm${tab}no tests\$" "$sanitizer"

# A build there, with Ninja, in which golden does not compile, and cuBLASLt is nowhere but in Python's packages.
mkdir -p "$folder/catch/catch2" "$folder/packages/nvidia/cu13/include"
touch "$folder/catch/catch2/catch.hpp" "$folder/packages/nvidia/cu13/include/cublasLt.h"
program "$folder/bin/ninja" </dev/null
program "$folder/bin/cmake" <<END
echo "\$*" >>"$folder/cmake.txt"
case \$* in
  *golden*) echo "golden.cpp: error: made up"; exit 1 ;;
  *BUILD_CUDA*) echo "-- cuBLASLt was not found" ;;
esac
END
PATH=$folder/bin:$PATH CUDA_HOME=$folder BUILD=$folder/fake CATCH2_DIR=$folder/catch PYTHONPATH=$folder/packages BUDGET=30 \
  SECTIONS=build tools/gpu_report.sh "$folder/made_up" >"$folder/out" 2>"$folder/err"
check "a build that fails in part: status 1" [ $? = 1 ]
check "a build that fails in part: why" grep -q "golden.cpp: error: made up" "$folder/err"
built() { sed -n "$1p" "$folder/cmake.txt" | grep -q -e "$2"; }
check "a build with Ninja" built 1 "^-G Ninja .*-DBUILD_TESTING=ON"
check "cuBLASLt of Python's packages" built 1 "-DCUBLAS_ROOT=$folder/packages/nvidia/cu13 "
check "tests that do without the programs and golden files" built 1 "-DOMIT_PROGRAM_TESTS=ON "
check "bench and train before all else" built 2 "--target bench train -- -k 0$"
check "then the tests, whatever becomes of the rest" built 3 "--target tests generate evaluate golden -- -k 0$"
check "a build without cuBLASLt says so" grep -q "^| build | failed | cuBLASLt is missing: " "$folder/made_up/report.md"

tools/gpu_report.sh --wrong >"$folder/out" 2>"$folder/err"
check "an unknown flag: status 2" [ $? = 2 ]

if "$build/bench" --device emulated --type bf16 --seconds 0 --layers 1 --channels 16 --heads 2 --context 5 --batch 2 \
  --mixer additive --json "$folder/bench.json" >"$folder/bench.txt" 2>"$folder/err"; then
  check "bench on the emulator" python3 - "$folder/bench.json" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
names = {row["layer"] for row in r["layers"]}
ok = r["matrix_product_flops_per_s"] is None and r["copy_bytes_per_s"] is None and r["type"] == "bf16"
ok = ok and {"layernorm", "pooling", "attention", "metric_key", "adamw"} <= names
sys.exit(not (ok and all(row["ms"] > 0 for row in r["layers"] + r["training"])))
END
  check "it says that it has no peaks" grep -q "an emulator has no peaks" "$folder/bench.txt"
else
  check "bench: a build without the emulator says so" grep -q "this build has no emulated CUDA device" "$folder/err"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
