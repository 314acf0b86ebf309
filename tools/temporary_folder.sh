#!/bin/sh
# tools/temporary_folder.sh: prints a folder for files of the tests: /dev/shm if it has a gigabyte free, because runs
# then do not wait for a disk when they write checkpoints; else TMPDIR or /tmp.
free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ -w /dev/shm ] && [ "${free:-0}" -gt 1000000 ]; then echo /dev/shm; else echo "${TMPDIR:-/tmp}"; fi
