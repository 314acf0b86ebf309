#!/bin/sh
# tests/documents/test_documents.sh BUILD_DIR: the links of the documents lead somewhere, tables of chapters are those
# that their script prints, exercises and the changes that tests must notice can be made, the README's Python reads a
# checkpoint that the program wrote, and train takes the flags of make train. The last line counts the checks.
set -u
build=$1
passed=0
failed=0
# check STATUS TEXT: counts one check.
check() {
  if [ "$1" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: $2"
  fi
}

for document in README.md data/*.md findings/*.md docs/*.md docs/*/*.md docs/*/*/*.md extras/*/*.md; do
  folder=$(dirname "$document")
  for link in $(grep -o ']([^)#]*' "$document" | cut -c3- | grep -v '^https\?:'); do
    [ -e "$folder/$link" ]
    check $? "$document: the link $link leads nowhere"
  done
done

# Rows of a table that chapter_figures.py prints stand in the chapter.
for figures in scale:extras/distributed/README.md transformer_xl:extras/transformer_xl/README.md; do
  chapter=${figures#*:}
  rows=$(tools/chapter_figures.py "${figures%%:*}" | grep '^|')
  [ -n "$rows" ] && ! echo "$rows" | grep -vxFf "$chapter"
  check $? "$chapter: lacks this row of tools/chapter_figures.py"
done

tools/exercises.py --list
check $? "the exercises of the chapters"
tools/changes.py --list
check $? "the changes that tests must notice"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/runs"
awk 'BEGIN { for (i = 0; i < 400; ++i) print "line", i, "of a small text" }' >"$folder/text.txt"
"$build/train" --data "$folder/text.txt" --out "$folder/runs/tiny" --steps 2 --layers 1 --channels 8 --heads 2 \
  --context 8 --batch 2 >/dev/null
check $? "a small training run"
sed -n '/^```python$/,/^```$/p' README.md | sed '/^```/d' >"$folder/read.py"
(cd "$folder" && python3 read.py >output.txt)
check $? "the README's Python"
grep -q "embedding.token_vd" "$folder/output.txt"
check $? "the README's Python prints the tensors"

recipe=$(make -pn help | sed -n 's/^RECIPE = //p' | sed 's/--steps [0-9]*/--steps 1/; s|runs/tiny|'"$folder"'/runs/recipe|')
# shellcheck disable=SC2086
"$build/train" --data "$folder/text.txt" $recipe >"$folder/output.txt"
check $? "the flags of make train"
grep -q "^final: .*step 1," "$folder/output.txt"
check $? "a step of make train"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
