#!/bin/sh
# tools/page_python.sh: prints the name of a Python that has the libraries of docs/page; status 1 without one. The first
# python3 of the PATH may not be the system's Python, which has Debian's packages.
for python in python3 /usr/bin/python3; do
  "$python" -c 'import markdown_it, pygments, fontTools, brotli' 2>/dev/null && { echo "$python"; exit 0; }
done
exit 1
