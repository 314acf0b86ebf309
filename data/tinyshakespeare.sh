#!/bin/sh
# data/tinyshakespeare.sh BUILD_DIR
# Prints the path of a text to train on: Tiny Shakespeare where it can be had, else the built-in corpus, which is made
# with the program built in BUILD_DIR. Only the path goes to standard output; data/README.md says where the text is from.
set -u

data=$(dirname -- "$0")
text=$data/tinyshakespeare.txt
sha256=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
# The same bytes on three hosts.
sources='
https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
https://storage.googleapis.com/download.tensorflow.org/data/shakespeare.txt
https://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/data/tinyshakespeare/input.txt
'

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

has() { command -v "$1" >/dev/null 2>&1; }

# The SHA-256 of a file in hexadecimal; empty where no program can compute it, which then counts as a mismatch.
sha256_of() {
  if has sha256sum; then
    sha256sum <"$1"
  elif has shasum; then
    shasum -a 256 <"$1"
  elif has openssl; then
    openssl dgst -sha256 -r <"$1"
  fi | cut -d ' ' -f 1
}

is_tiny_shakespeare() { [ -f "$1" ] && [ -r "$1" ] && [ "$(sha256_of "$1")" = "$sha256" ]; }

# download URL FILE; gives up after 5 seconds without a connection and after a minute in all, without a second try.
download() {
  if has curl; then
    curl --fail --location --silent --connect-timeout 5 --max-time 60 --output "$2" -- "$1"
  else
    wget -q -T 5 -t 1 -O "$2" -- "$1"
  fi
}

if [ $# -ne 1 ]; then
  say "expected one argument, the build folder: data/tinyshakespeare.sh BUILD_DIR"
  exit 2
fi
build=$1

if is_tiny_shakespeare "$text"; then
  printf '%s\n' "$text"
  exit 0
fi
[ ! -e "$text" ] || say "$text is not Tiny Shakespeare (its SHA-256 is not $sha256): left out"

# A file that is named has no fallback.
if [ -n "${TINYSHAKESPEARE:-}" ]; then
  if is_tiny_shakespeare "$TINYSHAKESPEARE"; then
    printf '%s\n' "$TINYSHAKESPEARE"
    exit 0
  fi
  if [ ! -f "$TINYSHAKESPEARE" ] || [ ! -r "$TINYSHAKESPEARE" ]; then
    say "$TINYSHAKESPEARE (from the environment variable TINYSHAKESPEARE): no such file, or not readable"
  else
    say "$TINYSHAKESPEARE (from the environment variable TINYSHAKESPEARE): not Tiny Shakespeare, expected SHA-256 $sha256"
  fi
  exit 1
fi

# A name of its own in the same folder, so that the rename is atomic and two runs do not meet.
if [ ! -d "$text" ] && { has curl || has wget; } && part=$(mktemp "$data/tinyshakespeare.XXXXXX" 2>/dev/null); then
  trap 'rm -f "$part"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  for source in $sources; do
    say "downloading $source"
    download "$source" "$part" || continue
    if is_tiny_shakespeare "$part"; then
      [ ! -e "$text" ] || say "replacing $text"
      chmod 644 "$part"
      if mv -f "$part" "$text"; then
        printf '%s\n' "$text"
        exit 0
      fi
    else
      say "what came is not Tiny Shakespeare, expected SHA-256 $sha256"
    fi
  done
fi

say "Tiny Shakespeare cannot be downloaded; put it at $text, or name it in TINYSHAKESPEARE. Taking the built-in corpus."
[ -f "$build/Makefile" ] || cmake -S "$data/.." -B "$build" >&2 || exit 1
MAKEFLAGS= cmake --build "$build" --target built_in_corpus >/dev/null || exit 1
"$build/built_in_corpus" "$build/built_in_corpus.txt" >&2 || exit 1
printf '%s\n' "$build/built_in_corpus.txt"
