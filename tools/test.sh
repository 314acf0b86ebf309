#!/bin/sh
# tools/test.sh BUILD_DIR [TEST_ARGUMENTS...]: builds the tests and runs the named tests, or all of them. Prints each
# test that has passed with its seconds. The last line counts the tests.
set -u
build=$1
shift
tools/need.sh cmake c++ catch2 python3 || exit 1
cmake -S . -B "$build" -DBUILD_TESTING=ON -DBUILD_EMULATOR=ON >/dev/null || exit 1
cmake --build "$build" -j "$(getconf _NPROCESSORS_ONLN)" || exit 1

TMPDIR=$(tools/temporary_folder.sh)
export TMPDIR

passed=0
failed=0
# count COMMAND...: runs the command, shows its output, and adds its last line "N passed, N failed" to the counts.
count() {
  output=$build/test_output.txt
  { "$@" 2>&1; echo $? >"$output.status"; } | tee "$output"
  status=$(cat "$output.status")
  line=$(tail -n 1 "$output")
  case $line in
    *' passed, '*' failed')
      passed=$((passed + ${line%% passed*}))
      line=${line#* passed, }
      failed=$((failed + ${line%% failed}))
      [ $status = 0 ] || [ "${line%% failed}" != 0 ] || failed=$((failed + 1))
      ;;
    *) failed=$((failed + 1)) ;;
  esac
}

if [ $# -gt 0 ]; then
  count "$build/tests" -d yes "$@"
else
  # All tests in two halves of about the same length, run concurrently. Tests that run programs have a process of their
  # own, whose memory is small, so that starting a program (fork) is fast.
  "$build/tests" -d yes "[gpu]~[check_all]" >"$build/beside.txt" 2>&1 &
  beside=$!
  trap 'kill "$beside" 2>/dev/null; exit 130' INT TERM
  count "$build/tests" -d yes "[programs]~[gpu],[run_folder]~[gpu]"
  count "$build/tests" -d yes "~[gpu]~[programs]~[run_folder]~[check_all]"
  wait "$beside"
  count sh -c 'cat "$1"; exit "$2"' sh "$build/beside.txt" $?
fi
count tests/tasks/test_data_script.sh
count extras/reviews/test_reviews_script.sh
count tests/programs/test_need_script.sh
count extras/seq2seq/test_pairs_script.sh
count tests/base/test_model_file.py
count tests/network/test_interchange.py "$build"
count tests/network/test_freestanding.sh "$build"
count tests/documents/test_documents.sh "$build"
count tests/test_gpu_report.sh "$build"
echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
