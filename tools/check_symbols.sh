#!/bin/sh
# tools/check_symbols.sh BUILD_DIR: objects for AVX2 and AVX-512 must not define functions with names that other files
# also use: the linker might keep the wide version for a machine that cannot run it (cpu/lanes.hpp). nm does not
# demangle some names.
set -u
found=0
for set in avx2 avx512; do
  objects=0
  for object in "$1/CMakeFiles/cpu_$set.dir"/cpu/*.o "$1/CMakeFiles/cpu_$set.dir"/extras/*/*.o; do
    [ -e "$object" ] || continue
    objects=$((objects + 1))
    shared=$(nm -C --defined-only "$object" | grep -E ' [WVu] ' | grep -v -E "Isa\)[0-9]|3IsaE[0-9]|abh::$set::|\(anonymous namespace\)|DW\.ref\.__gxx_personality")
    [ -z "$shared" ] || { printf '%s defines\n%s\n' "$object" "$shared" >&2; found=1; }
  done
  [ $objects -gt 0 ] || { echo "tools/check_symbols.sh: $1: no objects for $set" >&2; exit 1; }
done
exit $found
