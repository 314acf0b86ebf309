#!/bin/sh
# tools/need.sh PROGRAM...: makes sure that programs and headers are installed; installs missing ones if the user may.
# "catch2" stands for its header, "libc++" for the standard library of clang++ 19, "mpi" for any MPI, "openmpi" and
# "mpich" for one MPI (found by Debian's names of its programs), "page" for the libraries and the font of docs/page,
# "wasm" for clang and the libraries for WebAssembly, "libclang-rt" for clang's sanitizer runtimes, "venv" for Python's
# virtual environments.
set -u

has() {
  case $1 in
    catch2)
      for folder in /usr/include /usr/local/include /opt/homebrew/include; do
        [ -e "$folder/catch2/catch.hpp" ] || [ -e "$folder/catch2/catch_all.hpp" ] && return 0
      done
      return 1
      ;;
    libc++) [ -e /usr/lib/llvm-19/include/c++/v1/version ] ;;
    libclang-rt) ls "$(clang++ -print-resource-dir 2>/dev/null)"/lib/*/libclang_rt.asan* >/dev/null 2>&1 ;;
    venv) python3 -c 'import ensurepip' 2>/dev/null ;;
    mpi) command -v mpirun >/dev/null 2>&1 && command -v mpicxx >/dev/null 2>&1 ;;
    openmpi) command -v mpirun.openmpi >/dev/null 2>&1 && command -v mpicxx.openmpi >/dev/null 2>&1 ;;
    mpich) command -v mpirun.mpich >/dev/null 2>&1 && command -v mpicxx.mpich >/dev/null 2>&1 ;;
    wasm)
      command -v clang++ >/dev/null 2>&1 && command -v wasm-ld >/dev/null 2>&1 && command -v wasm-opt >/dev/null 2>&1 &&
        command -v cmake >/dev/null 2>&1 && [ -e /usr/include/wasm32-wasi/c++ ] &&
        [ -e "$(clang++ --target=wasm32-wasi -print-libgcc-file-name)" ]
      ;;
    page) tools/page_python.sh >/dev/null && [ -e /usr/share/texmf/fonts/opentype/public/tex-gyre-math ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

package_of() {
  case $1 in
    c++) echo g++ ;;
    clang++) echo clang ;;
    clang++-*) echo "clang-${1#clang++-}" ;;
    libc++) echo libc++-19-dev libc++abi-19-dev ;;
    libclang-rt) echo libclang-rt-dev ;;
    *-linux-gnu-g++) echo "g++-${1%-g++}" ;;
    qemu-*) echo qemu-user ;;
    chromedriver) echo chromium-driver ;;
    jsc) apt-cache search --names-only '^libjavascriptcoregtk-.*-bin$' | awk 'END { print $1 }' ;;
    venv) echo python3-venv ;;
    mpi | openmpi) echo openmpi-bin libopenmpi-dev ;;
    mpich) echo mpich libmpich-dev ;;
    wasm) echo clang lld wasi-libc libc++-dev-wasm32 libclang-rt-dev-wasm32 binaryen cmake ;;
    page) echo python3-markdown-it python3-pygments python3-fonttools python3-brotli fonts-texgyre-math ;;
    *) echo "$1" ;;
  esac
}

missing=
for program; do
  has "$program" || missing="$missing $(package_of "$program")"
done
[ -n "$missing" ] || exit 0

# Another process may hold the locks of apt: the automatic update of a new machine, or a second run of this script.
# Waits up to five minutes. apt-get itself waits only for the lock of the packages, not for the lock of the package
# lists.
apt() { apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >/dev/null 2>&1; }
update_lists() {
  for _ in $(seq 60); do
    message=$(LC_ALL=C apt-get -qq update 2>&1 >/dev/null) && return 0
    case $message in *lists/lock*) sleep 5 ;; *) return 1 ;; esac
  done
  return 1
}

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  echo "installing$missing" >&2
  # shellcheck disable=SC2086 # a list of words
  apt install -y $missing || { update_lists && apt install -y $missing; }
elif command -v brew >/dev/null 2>&1; then
  echo "installing$missing" >&2
  # shellcheck disable=SC2086
  brew install $missing >/dev/null
fi
for program; do
  has "$program" && continue
  echo "tools/need.sh: $(package_of "$program") is missing; install it (Debian, Ubuntu: sudo apt-get install$missing) and try again" >&2
  exit 1
done
