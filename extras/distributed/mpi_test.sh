#!/usr/bin/env bash
# extras/distributed/mpi_test.sh BUILD_DIR [KILLS]: training in several processes: the same bits for any number of them,
# signals, and so many runs of which one process is killed at a random moment. The last line counts the checks. With
# MPI=mpich or MPI=openmpi in the environment that one is taken, by the names that Debian gives its programs.
set -u
cd "$(dirname "$0")/../.."
build=${1:?the build folder}
kills=${2:-3}
tools/need.sh cmake c++ "${MPI:-mpi}" || exit 1
cmake -S . -B "$build" -DBUILD_MPI=ON ${MPI:+-DMPI_CXX_COMPILER=mpicxx.$MPI} >/dev/null || exit 1
cmake --build "$build" -j "$(getconf _NPROCESSORS_ONLN)" --target train sums | tail -n 1 || exit 1
mpi=openmpi
# Hydra is the name of what starts MPICH's processes.
"mpirun${MPI:+.$MPI}" --version 2>&1 | grep -qi hydra && mpi=mpich
# One job after the other, each in a process group of its own.
set -m

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
train=$PWD/$build/train
awk 'BEGIN { for (i = 0; i < 300; ++i) print "line", i % 37, "of a", (i % 5 ? "small" : "large"), "text" }' >"$folder/text.txt"
flags="--data $folder/text.txt --layers 2 --channels 18 --heads 3 --context 13 --batch 8 --mixer additive,dot --window 5,0
  --conv-kernel 3 --conv-groups 2 --dropout 0.2 --label-smoothing 0.1 --warmup 3 --weight-average 20
  --steps 1000 --eval-every 250 --log-every 10 --checkpoint-every 50 --shards 4"

passed=0
failed=0
# check TEXT COMMAND...: counts one check.
check() {
  local text=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: $text"
    tail -n 5 "$folder/out.txt" "$folder/err.txt"
  fi
}

# with FLAGS...: sets `line` to the flags of these runs with some replaced or added.
with() {
  local i
  line=$flags
  for ((i = 1; i < $#; i += 2)); do line=$(echo $line | sed "s|${!i} [^ ]*||"); done
  line="$line $*"
}
# resumed RUN FLAGS...: sets `line` to what goes on with a run.
data="--data $folder/text.txt"
resumed() { line="$data --resume $*"; }
# run PROCESSES: train with the flags of `line`; sets `status`. What is printed is in out.txt and err.txt.
run() {
  # shellcheck disable=SC2086 # flags are words
  timeout 300 extras/distributed/mpirun.sh "$1" "$train" $line >"$folder/out.txt" 2>"$folder/err.txt"
  status=$?
}
# start PROCESSES: the same, without waiting; sets `job`.
start() {
  : >"$folder/out.txt" # or wait_for would find what another run has printed
  # shellcheck disable=SC2086
  extras/distributed/mpirun.sh "$1" "$train" $line >"$folder/out.txt" 2>"$folder/err.txt" &
  job=$!
}
# alone: the same in this process alone, without mpirun.
alone() {
  # shellcheck disable=SC2086
  "$train" $line >"$folder/out.txt" 2>"$folder/err.txt"
  status=$?
}
# Waits until `step N/` or another text has been printed.
wait_for() {
  local turn
  for ((turn = 0; turn < 1200; ++turn)); do
    grep -q "$1" "$folder/out.txt" && return 0
    kill -0 "$job" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}
# The processes of the job, in the order of their ranks. MPICH has a process between mpirun and them.
processes() {
  for process in $(pgrep -P "$job,$(pgrep -d , -P "$job")" -x train); do
    echo "$(tr '\0' '\n' <"/proc/$process/environ" | sed -n 's/^\(OMPI_COMM_WORLD\|PMI\)_RANK=//p') $process"
  done | sort -n | cut -d ' ' -f 2
}
process_of_rank() { processes | sed -n "$(($1 + 1))p"; }

same_run() { # two folders hold the same run, but for its speed
  local file
  for file in model.safetensors resume.safetensors loss.svg sample.txt; do cmp -s "$1/$file" "$2/$file" || return 1; done
  cmp -s <(sed 's/,[^,]*$//' "$1/log.csv") <(sed 's/,[^,]*$//' "$2/log.csv")
}
lines_of_ours() { grep -c '^train: ' "$folder/err.txt"; }
one_line() { [ "$(lines_of_ours)" = 1 ] && grep -q -- "^train: .*$1" "$folder/err.txt"; }
# When a process ends before its time, MPICH's mpirun kills the others, mostly before they speak, and mixes their statuses.
is_mpich() { [ $mpi = mpich ]; }
says_lost() { is_mpich || one_line "$1"; }
refuses_with() { if is_mpich; then [ "$status" != 0 ]; else status_is "$1"; fi; }
status_is() { [ "$status" = "$1" ]; }

echo "== the same bits"
with --threads 1 --out "$folder/expected"
alone
for processes in 1 2 4; do
  for threads in 1 2; do
    what="$processes processes of $threads threads"
    with --threads $threads --out "$folder/run$processes$threads"
    run $processes
    check "$what: status $status" status_is 0
    check "$what: the same run" same_run "$folder/run$processes$threads" "$folder/expected"
    check "$what: nothing on standard error" test ! -s "$folder/err.txt"
    check "$what: one final line, the last one" test "$(sed -n "/^final: /=" "$folder/out.txt")" = "$(sed -n '$=' "$folder/out.txt")"
  done
done
# On GPUs, where there are two, or emulated ones. A step is done as it is, then recorded, then replayed.
of_build() { grep -q "^$1" "$build/CMakeCache.txt"; }
gpu=none gpu_processes="1 2 4"
if of_build BUILD_EMULATOR:BOOL=ON; then
  gpu=emulated
elif of_build BUILD_CUDA:BOOL=ON && ! of_build NCCL_LIBRARY:FILEPATH=NCCL_LIBRARY-NOTFOUND; then
  case $(nvidia-smi -L 2>/dev/null | wc -l) in 0 | 1) ;; 2 | 3) gpu=cuda gpu_processes="1 2" ;; *) gpu=cuda ;; esac
fi
small_on_gpu="--device $gpu --layers 1 --mixer dot --window 0 --channels 8 --heads 2 --conv-kernel 0 --eval-every 0"
if [ $gpu != none ]; then
  for type in float bf16; do
    for processes in $gpu_processes; do
      # shellcheck disable=SC2086
      with $small_on_gpu --type $type --steps 4 --out "$folder/$type$processes"
      run "$processes"
      check "$processes processes, $gpu, $type: status $status" status_is 0
      check "$processes processes, $gpu, $type" same_run "$folder/$type$processes" "$folder/${type}1"
    done
  done
fi

echo "== what cannot be"
# refused WHAT STATUS TEXT: the last run was, with this in its line.
refused() {
  check "$1: status $status" refuses_with "$2"
  check "$1: one line" one_line "$3"
}
with --shards 1 --out "$folder/none"
run 2
refused "fewer shards than processes" 2 "--shards: expected a multiple of the 2 processes, found 1"
with --out "$folder/none"
run 3
refused "three processes" 2 "--shards: expected a multiple of the 3 processes, found 4"
with --out "$folder/none" --no-such-flag 1
run 2
refused "an unknown flag" 2 "no-such-flag"
with --data "$folder/none.txt" --out "$folder/none"
run 4
refused "a missing text" 1 "none.txt"
with --out "$folder/text.txt"
run 2
refused "what process 0 alone finds" 1 "text.txt"
with --out "$folder/none"
one=$line
with --learning-rate 0.001 --out "$folder/none"
line="$one : -np 1 $train $line"
run 1
refused "processes with other settings" 1 "process 1 differs from process 0: expected learning_rate 0.003, found"
check "no folder is written for nothing" test ! -e "$folder/none/log.csv"

echo "== signals"
of_stopped="--checkpoint-every 0 --steps 4000 --eval-every 1000" # on a fast machine, too, there is time to stop them
# shellcheck disable=SC2086
with $of_stopped --out "$folder/expected_of_stopped"
alone
stop_and_go_on() { # SIGNAL STATUS WHO: stops 4 processes by a signal to one or to mpirun, goes on with 2, then with 1
  local run=$folder/signal$1$3
  # shellcheck disable=SC2086
  with --threads 1 $of_stopped --out "$run"
  start 4
  check "a run that lasts until SIG$1" wait_for 'step 20/'
  case $3 in
    mpirun) kill "-$1" "$job" ;; # which has a status of its own and loses what is printed from then on
    *) kill "-$1" "$(process_of_rank "$3")" ;;
  esac
  wait "$job"
  status=$?
  [ "$3" = mpirun ] || check "status after SIG$1 to process $3: $status" status_is "$2"
  [ "$3" = mpirun ] || check "SIG$1 to process $3: said" test "$(grep -c '^stopping: ' "$folder/out.txt")" = 1
  [ "$3" = mpirun ] || check "SIG$1 to process $3: a last line" grep -q '^stopped at step ' "$folder/out.txt"
  check "SIG$1 to $3: saved" test -e "$run/resume.safetensors"
  check "SIG$1 to $3: no error" test "$(lines_of_ours)" = 0
  resumed "$run" --threads 2
  start 2
  wait_for 'step [3-6]00/' && kill -TERM "$(process_of_rank 1)" 2>/dev/null
  wait "$job"
  resumed "$run"
  alone
  check "SIG$1 to $3, then 2 processes, then 1: the same run" same_run "$run" "$folder/expected_of_stopped"
}
stop_and_go_on TERM 143 0
stop_and_go_on TERM 143 3
stop_and_go_on INT 130 1
stop_and_go_on HUP 129 2
stop_and_go_on TERM 143 mpirun
stop_and_go_on INT 130 mpirun
is_mpich || stop_and_go_on HUP 129 mpirun # which that of MPICH dies of

# During an evaluation, which the processes share out: all leave it after the same batches. It is of a part, so that the
# best weights are measured anew at the end.
for ((i = 0; i < 5000; ++i)); do cat "$folder/text.txt"; done >"$folder/long.txt"
of_evaluated="--data $folder/long.txt --steps 9 --eval-every 8 --log-every 1 --eval-tokens 2000000 --threads 1"
# shellcheck disable=SC2086
with $of_evaluated --out "$folder/expected_of_evaluated"
alone
run=$folder/evaluated
leave_evaluation() { # LOGGED STEP RANK: when a step has been logged, stops the evaluation after the next one
  wait_for "step $1/9, train"
  sleep 0.5
  kill -TERM "$(process_of_rank "$3")"
  wait "$job"
  status=$?
  check "status after TERM in an evaluation: $status" status_is 143
  check "TERM in an evaluation: said" test "$(grep -c '^stopping: ' "$folder/out.txt")" = 1
  check "TERM in an evaluation: at its step" grep -q "^stopped at step $2;" "$folder/out.txt"
  check "TERM in an evaluation: no error" test "$(lines_of_ours)" = 0
  check "TERM in an evaluation: it is still to be made" grep -qa pending_gradient_norm "$run/resume.safetensors"
}
# shellcheck disable=SC2086
with $of_evaluated --out "$run"
start 2
leave_evaluation 7 8 1
line="--resume $run --threads 1"
start 4
leave_evaluation 8 9 0
run 2
check "evaluations that were left: status $status" status_is 0
check "evaluations that were left: the same run" same_run "$run" "$folder/expected_of_evaluated"

echo "== a process that is lost"
lose() { # PROCESSES RANK SIGNAL STEP: at about this step
  start "$1"
  check "a run that can lose a process" wait_for "step $4/"
  local begin
  begin=$(date +%s%N)
  kill "-$3" "$(process_of_rank "$2")" 2>/dev/null || kill "$job"
  wait "$job"
  status=$?
  milliseconds=$((($(date +%s%N) - begin) / 1000000))
}
slowest=0
kill_and_go_on() { # RUN EXPECTED STEP: kills a process at about this step, and goes on in 1, 2 or 4
  local size=$((RANDOM % 2 ? 4 : 2)) others=$((1 << RANDOM % 3))
  local rank=$((RANDOM % size))
  local what="kill in ${1##*/}, process $rank of $size"
  with --threads 1 --out "$1"
  lose $size $rank KILL "$3"
  if [ $status != 0 ]; then # else it was done before
    [ $milliseconds -gt $slowest ] && slowest=$milliseconds
    check "$what: all stop within 10 s, not $milliseconds ms" test $milliseconds -lt 10000
    check "$what: one line" says_lost "process $rank of $size has ended"
    [ ! -e "$1/resume.safetensors" ] || resumed "$1"
    run $others
    check "$what: goes on in $others processes" status_is 0
  fi
  check "$what: the same run" same_run "$1" "$2"
}
for ((i = 0; i < kills; ++i)); do
  kill_and_go_on "$folder/killed$i" "$folder/expected" $((RANDOM % 80 + 1))0
done
echo "$kills processes killed, all others had ended after $slowest ms at most"
with --steps 1000000 --out "$folder/stopped"
lose 4 2 STOP 10
check "a process that hangs: all stop within 10 s, not $milliseconds ms" test $milliseconds -lt 10000
check "a process that hangs: one line" one_line "process 2 of 4 gives no sign of life"
with --steps 1000000 --out "$folder/tcp"
OMPI_MCA_btl=tcp,self lose 2 1 KILL 10
check "over TCP: all stop within 10 s, not $milliseconds ms" test $milliseconds -lt 10000

if [ $gpu != none ]; then
  # shellcheck disable=SC2086
  with $small_on_gpu --steps 100000 --log-every 1 --out "$folder/lost_on_gpu"
  lose 2 1 KILL 4
  check "$gpu: all stop within 10 s, not $milliseconds ms" test $milliseconds -lt 10000
  check "$gpu: one line" says_lost "process 1 of 2 has ended"
fi

echo "== tasks that are no texts"
# Two stacks, sources that are padded, the average of weights; a network without a source.
of_text=$flags data=""
of_dates="--encoder-layers 2 --decoder-layers 1 --mixer additive,dot,leap --cross bahdanau --norm post"
for task in dates sort; do
  flags="--task $task --channels 18 --heads 3 --batch 8 --dropout 0.2 --warmup 3 --weight-average 20 --steps 1000
    --eval-every 250 --log-every 10 --checkpoint-every 50 --shards 4"
  [ $task = sort ] || flags="$flags $of_dates"
  with --threads 1 --out "$folder/expected_$task"
  alone
  check "$task: status $status" status_is 0
  for processes in 2 4; do
    with --threads $((4 / processes)) --out "$folder/$task$processes"
    run $processes
    check "$task in $processes processes: status $status" status_is 0
    check "$task in $processes processes: the same run" same_run "$folder/$task$processes" "$folder/expected_$task"
  done
  kill_and_go_on "$folder/killed_$task" "$folder/expected_$task" $((RANDOM % 80 + 1))0
done
flags=$of_text

echo "== the speed of sums"
measured() { grep -q ' 4194304 .* [0-9.]*$' "$folder/out.txt"; }
for device in cpu $gpu; do
  [ $device != none ] || continue
  extras/distributed/mpirun.sh 2 "$PWD/$build/sums" --largest 4 --device $device >"$folder/out.txt" 2>"$folder/err.txt"
  check "sums, $device" measured
done
extras/distributed/mpirun.sh 3 "$PWD/$build/sums" >"$folder/out.txt" 2>"$folder/err.txt"
status=$?
check "sums in three processes: status $status" status_is 2
check "sums in three processes" grep -q '^sums: expected 2, 4, 8, ... processes, found 3$' "$folder/err.txt"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
