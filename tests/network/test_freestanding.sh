#!/bin/sh
# tests/network/test_freestanding.sh BUILD: networks need no threads, files, signals and terminal, and compute without them
# what they compute with them, bit by bit.
set -eu
cd "$(dirname "$0")/../.."
. tests/harness/checks.sh
build=${1:-build}
cmake --build "$build" --target on_network_freestanding on_core >/dev/null
asked=$(nm -uC "$build/src/device/freestanding/libnetwork_freestanding.a" | sed -n 's/^ *U //p' | sed 's/@.*//' | sort -u)

# Search the names of the functions that the library needs from the system.
asks_for() { printf '%s\n' "$asked" | grep -qE "$1"; }
asks_for_no() { ! printf '%s\n' "$asked" | grep -E "$1"; }
check "the symbols can be read" asks_for '^memcpy$'
check "no threads" asks_for_no 'pthread_|std::(thread|mutex|condition_variable)|sched_|sysconf|futex|^syscall$'
check "no files" asks_for_no '^(open|openat|creat|fopen|fopen64|read|write|close|l?stat|fstat|rename|unlink|mmap|madvise)(64)?$|f(stream|ilebuf)|filesystem'
check "no signals" asks_for_no 'sigaction|^signal$|^raise$|^kill$'
check "no terminal" asks_for_no 'isatty|ioctl|tcgetattr|std::c(out|in|err)|^(printf|puts|putchar|fwrite|stdout|stderr)$|getrusage'

freestanding=$("$build/on_network_freestanding") others=$(ATTENTION_ISA=baseline "$build/on_core")
check "a freestanding network says something" test -n "$freestanding"
check "the same bits" test "$freestanding" = "$others"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
