#!/bin/sh
# extras/seq2seq/fetch_pairs.sh OUT [ARCHIVE]: writes the English and French sentences of "Dive into deep learning",
# 10.5 (made from Tatoeba, CC BY 2.0 FR), to OUT, lines `ENGLISH TAB FRENCH` for `train --task pairs --data OUT`. They
# are sorted by length, and train holds the last tenth back: every tenth line goes to the end. Without ARCHIVE,
# fra-eng.zip is downloaded; either is checked by its SHA-1.
set -u

source=http://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip
sha1=${FRA_ENG_SHA1:-94646ad1522d915e7b0f9296181140edcf86a4f5}

fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit "${2:-1}"
}

has() { command -v "$1" >/dev/null 2>&1; }

[ $# -ge 1 ] && [ $# -le 2 ] || fail 'expected OUT [ARCHIVE]' 2
out=$1
for program in python3; do
  has "$program" || fail "needs $program, which is not installed"
done
folder=$(mktemp -d) || fail 'no temporary folder can be made'
trap 'rm -rf "$folder"' EXIT

archive=${2:-}
if [ -z "$archive" ]; then
  archive=$folder/fra-eng.zip
  if has curl; then
    curl --fail --location --silent --connect-timeout 10 --max-time 600 --output "$archive" -- "$source"
  else
    wget -q -T 10 -t 1 -O "$archive" -- "$source"
  fi || fail "$source: cannot be downloaded; give the archive as ARCHIVE"
fi
[ -f "$archive" ] || fail "$archive: no such file"

python3 - "$archive" "$sha1" "$folder/pairs" <<'EOF' || exit 1
import hashlib
import sys
import zipfile

archive, sha1, out = sys.argv[1:]


def fail(what):
    sys.exit(f"fetch_pairs.sh: {archive}: {what}")


with open(archive, "rb") as file:
    found = hashlib.sha1(file.read()).hexdigest()
if found != sha1:
    fail(f"expected SHA-1 {sha1}, found {found}")
try:
    with zipfile.ZipFile(archive) as members:
        names = [name for name in members.namelist() if name.endswith("fra.txt")]
        if len(names) != 1:
            fail("expected one fra.txt in it")
        lines = members.read(names[0]).decode("utf-8").splitlines()
except (zipfile.BadZipFile, UnicodeDecodeError) as error:
    fail(str(error))
pairs = ["\t".join(line.split("\t")[:2]) for line in lines if "\t" in line]
if not pairs:
    fail("fra.txt holds no pairs")
ordered = [pair for i, pair in enumerate(pairs) if i % 10 != 9] + pairs[9::10]
with open(out, "w", encoding="utf-8", newline="\n") as file:
    file.writelines(pair + "\n" for pair in ordered)
print(f"{len(pairs)} pairs")
EOF
# A name of its own in the same folder, so that the rename is atomic and two runs do not meet.
part=$(mktemp "$out.XXXXXX" 2>/dev/null) || fail "$out: cannot be written"
trap 'rm -rf "$folder" "$part"' EXIT
cp "$folder/pairs" "$part" 2>/dev/null && chmod 644 "$part" && mv -f "$part" "$out" || fail "$out: cannot be written"
