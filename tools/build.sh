#!/bin/sh
# tools/build.sh BUILD_DIR TARGET...: builds and shows the progress; shows the compiler's output only if the build
# fails.
set -u
build=$1
shift
printf 'building %s\n' "$*"
{ cmake --build "$build" -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" --target "$@" 2>&1 || echo "failed: $*"; } |
  tee "$build/build.log" |
  awk -v terminal="$([ -t 1 ] && echo 1)" '
    # On a terminal: one line that is overwritten; otherwise a line per quarter.
    /^\[ *[0-9]+%\]/ {
      percent = substr($0, 2, 3) + 0
      if (terminal) printf "\r%3d %%", percent
      else if (percent >= shown + 25 && percent < 100) { shown = percent - percent % 25; printf "%3d %%\n", shown }
      fflush()
    }
    END { if (terminal) printf "\r\033[K" }'
if [ "$(tail -n 1 "$build/build.log")" = "failed: $*" ]; then
  cat "$build/build.log" >&2
  exit 1
fi
