#!/bin/sh
# tools/page_python.sh: prints the Python that has the libraries of docs/page; status 1 where there is none. The first
# python3 of the path may be another one than that of the system's packages.
for python in python3 /usr/bin/python3; do
  "$python" -c 'import markdown_it, pygments, fontTools, brotli' 2>/dev/null && { echo "$python"; exit 0; }
done
exit 1
