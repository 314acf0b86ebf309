#!/usr/bin/env bash
# tools/zig_build.sh TARGET [CMAKE_TARGET...]: compiles and links for another system, such as aarch64-macos or
# x86_64-windows-gnu, with the clang++ and the libraries of zig (PyPI's ziglang, installed in build-zig), into
# build-TARGET. Without CMAKE_TARGET: everything. OPTIONS in the environment: CMake options, such as -DBUILD_TESTING=ON.
set -euo pipefail
target=$1
build=build-$target
shift
tools/need.sh cmake catch2 venv
[ -x build-zig/bin/python ] || python3 -m venv build-zig
build-zig/bin/python -m pip install --quiet ziglang==0.17.1
zig=$(build-zig/bin/python -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig
link_flags=
case $target in
  *-windows-*) system=Windows link_flags=$PWD/src/device/windows/utf8.manifest ;;
  *-macos) system=Darwin ;;
  *) system=Linux ;;
esac
# Catch2 is the only header from this machine.
mkdir -p "$build/include"
ln -sfn /usr/include/catch2 "$build/include/catch2"
# shellcheck disable=SC2086 # options are words
cmake -S . -B "$build" -DCMAKE_SYSTEM_NAME=$system -DCMAKE_SYSTEM_PROCESSOR="${target%%-*}" \
  -DCMAKE_CXX_COMPILER="$zig;c++;-target;$target" -DCMAKE_CXX_FLAGS="-fno-sanitize=undefined -isystem $PWD/$build/include" \
  -DCMAKE_CXX_ARCHIVE_CREATE="$zig ar qc <TARGET> <OBJECTS>" -DCMAKE_CXX_ARCHIVE_FINISH="$zig ranlib <TARGET>" \
  -DCMAKE_EXE_LINKER_FLAGS="$link_flags" ${OPTIONS:-} >/dev/null
if [ $# -gt 0 ]; then set -- --target "$@"; fi
cmake --build "$build" -j "$(getconf _NPROCESSORS_ONLN)" "$@" | tail -n 1
