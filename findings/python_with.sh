#!/bin/sh
# findings/python_with.sh PACKAGE==VERSION... <PROGRAM: runs a Python program with these public packages, which it
# installs in a temporary folder; this folder is also the program's home. PYTHON in the environment names a Python to
# use instead, if it has these versions. Status: the program's; 2 if the packages cannot be installed.
set -u

has_versions() {
  "$python" - "$@" <<'PROGRAM' 2>/dev/null
import importlib.metadata
import sys

for word in sys.argv[1:]:
    name, _, version = word.partition("==")
    if importlib.metadata.version(name).split("+")[0] != version:
        sys.exit(1)
PROGRAM
}

folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
python=${PYTHON:-}
if [ -z "$python" ] || ! has_versions "$@"; then
  python=$folder/bin/python
  if command -v uv >/dev/null; then  # unpacks a package only once for all environments
    uv venv --quiet --allow-existing --python python3 "$folder" && uv pip install --quiet --python "$python" "$@"
  else
    python3 -m venv "$folder" && "$python" -m pip install --quiet --no-compile "$@"
  fi </dev/null >&2 || exit 2
fi
HOME=$folder TMPDIR=$folder "$python" -
