#!/bin/sh
# tools/site.sh [--test] [ARGUMENTS...]: writes the side-by-side page of equations and code with the generator in
# docs/page, or, with --test, runs the generator's own tests first. What the generator needs is installed where it is
# missing; of it the tools for WebAssembly may be missing. ARGUMENTS go to the generator.
set -u
tools/need.sh page || exit 1
tools/need.sh wasm || echo "the site is written without the lab and without pictures that can be touched" >&2
python=$(tools/page_python.sh) || exit 1
if [ "${1-}" = --test ]; then
  shift
  "$python" -m unittest discover -s docs/page -p 'test_*.py' || exit 1
fi
exec "$python" docs/page/generate.py "$@"
