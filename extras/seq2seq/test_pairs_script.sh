#!/bin/sh
# Runs extras/seq2seq/fetch_pairs.sh on an archive that is made up. Prints `N passed, N failed`; status 1 if one failed.
set -u
. "$(dirname -- "$0")/../../tests/harness/checks.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$(dirname "$0")/../.." || exit 1

python3 - "$folder" <<'EOF'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1] + "/a.zip", "w") as archive:
    lines = [f"english {i}\tfrançais {i}\tCC-BY" for i in range(25)]
    archive.writestr("fra-eng/fra.txt", "\n".join(lines) + "\n")
EOF
FRA_ENG_SHA1=$(python3 -c 'import hashlib, sys; print(hashlib.sha1(open(sys.argv[1], "rb").read()).hexdigest())' "$folder/a.zip")
export FRA_ENG_SHA1
said=$(extras/seq2seq/fetch_pairs.sh "$folder/out" "$folder/a.zip" 2>&1)
check 'the pairs are counted' test "$said" = '25 pairs'
check 'as many lines' test "$(wc -l <"$folder/out")" -eq 25
check 'two columns, in order' test "$(head -1 "$folder/out")" = "$(printf 'english 0\tfrançais 0')"
check 'every tenth comes last' test "$(tail -1 "$folder/out")" = "$(printf 'english 19\tfrançais 19')"
said=$(FRA_ENG_SHA1=0 extras/seq2seq/fetch_pairs.sh "$folder/none" "$folder/a.zip" 2>&1)
check 'another archive is refused' test "${said#fetch_pairs.sh: }" != "$said"
check 'and nothing is written' test ! -e "$folder/none"
said=$(extras/seq2seq/fetch_pairs.sh "$folder/none" "$folder/missing.zip" 2>&1)
check 'a missing archive' test "$said" = "fetch_pairs.sh: $folder/missing.zip: no such file"
said=$(extras/seq2seq/fetch_pairs.sh 2>&1)
check 'no argument' test "$said" = 'fetch_pairs.sh: expected OUT [ARCHIVE]'
for i in 1 2 3 4; do
  extras/seq2seq/fetch_pairs.sh "$folder/shared" "$folder/a.zip" >/dev/null 2>>"$folder/said" &
done
wait
check 'several at a time' test ! -s "$folder/said"
check 'leave one file, whole' test "$(ls "$folder"/shared*)" = "$folder/shared"
check 'as one alone does' cmp -s "$folder/shared" "$folder/out"
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
