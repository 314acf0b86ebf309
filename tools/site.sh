#!/bin/sh
# tools/site.sh [--test] [ARGUMENTS...]: writes the side-by-side page of equations and code with the generator in
# docs/page.
# --test: runs the generator's tests first. Installs missing packages; the tools for WebAssembly are optional. ARGUMENTS
# are passed to the generator.
set -u
tools/need.sh page || exit 1
tools/need.sh wasm || echo "the site is written without the lab and without interactive pictures" >&2
python=$(tools/page_python.sh) || exit 1
if [ "${1-}" = --test ]; then
  shift
  "$python" -m unittest discover -s docs/page -p 'test_*.py' || exit 1
fi
exec "$python" docs/page/generate.py "$@"
