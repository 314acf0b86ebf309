#!/bin/sh
# Runs extras/reviews/fetch_reviews.sh on small collections that stand in for the public ones, offline: on a copy that
# expects their sizes, with a stand-in for curl first on PATH. Prints `N passed, N failed`; status 1 if one failed.
set -u
. "$(dirname -- "$0")/../../tests/harness/checks.sh"

script=$(cd "$(dirname -- "$0")" && pwd)/fetch_reviews.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir bin
cat >bin/curl <<'END'
#!/bin/sh
[ -n "${FAKE_ANSWER:-}" ] || exit 6
while [ "$1" != --output ]; do shift; done
cp "$FAKE_ANSWER" "$2"
END
chmod +x bin/curl
PATH=$folder/bin:$PATH
export PATH

for part in train test; do
  mkdir -p "aclImdb/$part/pos" "aclImdb/$part/neg"
  for label in pos neg; do
    printf 'a <br /><br />%s\tfilm of %s' "$label" "$part" >"aclImdb/$part/$label/0_9.txt"
    printf 'two\nlines' >"aclImdb/$part/$label/1_8.txt"
  done
done
tar -czf imdb.tar.gz aclImdb
mkdir rt-polaritydata
printf 'a caf\351\nfine\n' >rt-polaritydata/rt-polarity.pos
printf 'bad\ndull\r\n' >rt-polaritydata/rt-polarity.neg
tar -czf polarity.tar.gz rt-polaritydata
printf 'so good\t1\r\nso bad\t0\n' >first.txt
printf 'fine\t1\nworse\t0\n' >second.txt

sha1=$(sha1sum <imdb.tar.gz | cut -d ' ' -f 1)
sed -e "s/^imdb_bytes=.*/imdb_bytes=$(wc -c <imdb.tar.gz)/" -e "s/^imdb_sha1=.*/imdb_sha1=$sha1/" \
  -E -e 's/^(imdb|polarity|sentences)_texts=[0-9]*/\1_texts=2/' "$script" >fetch_reviews.sh
chmod +x fetch_reviews.sh

run() {
  ./fetch_reviews.sh "$@" >out 2>err
  status=$?
}
explain() { cat out err; }
succeeds() { [ "$status" -eq 0 ] && [ ! -s err ]; }
# refused STATUS WORDS: one line with these words, and no file.
refused() { [ "$status" -eq "$1" ] && [ "$(wc -l <err)" -eq 1 ] && grep -q -e "^fetch_reviews.sh: .*$2" err && [ ! -e x.tsv ]; }
holds() { printf "$2" | cmp -s - "$1"; }

imdb_lines='pos\ta   pos film of train\nneg\ta   neg film of train\npos\ttwo lines\nneg\ttwo lines\n'
imdb_lines=$imdb_lines'pos\ta   pos film of test\nneg\ta   neg film of test\npos\ttwo lines\nneg\ttwo lines\n'
run imdb imdb.tsv imdb.tar.gz
check "IMDB from an archive" succeeds
check "its lines" holds imdb.tsv "$imdb_lines"
rm imdb.tsv
FAKE_ANSWER=imdb.tar.gz run imdb imdb.tsv
check "IMDB is downloaded" succeeds
check "the same lines" holds imdb.tsv "$imdb_lines"
run polarity polarity.tsv polarity.tar.gz
check "polarity" succeeds
check "its lines, in UTF-8" holds polarity.tsv 'pos\ta caf\303\251\nneg\tbad\npos\tfine\nneg\tdull \n'
run sentences sentences.tsv first.txt second.txt
check "sentences" succeeds
check "its lines" holds sentences.tsv 'pos\tso good\npos\tfine\nneg\tso bad\nneg\tworse\n'
check "how many there are is said" grep -qx 'sentences.tsv: 4 texts' out

run
check "no set" refused 2 "expected a set and a file"
run films x.tsv
check "another set" refused 2 'expected imdb, polarity or sentences, found "films"'
run imdb x.tsv a b
check "two archives" refused 2 "expected one archive, found 2"
run sentences x.tsv
check "no texts" refused 2 "data set 331"
for set in imdb polarity; do
  run "$set" x.tsv
  check "$set without a network" refused 1 "cannot be downloaded; give the archive as FILE"
  run "$set" x.tsv none.tar.gz
  check "$set, a missing archive" refused 1 "none.tar.gz: no such file"
done
run imdb x.tsv polarity.tar.gz
check "another archive" refused 1 "polarity.tar.gz: expected [0-9]* bytes with SHA-1 $sha1"
run polarity x.tsv first.txt
check "no archive" refused 1 "first.txt: is no archive"
run polarity x.tsv imdb.tar.gz
check "an archive of others" refused 1 "rt-polarity.pos: expected 2 texts, found 0"
run sentences x.tsv rt-polaritydata/rt-polarity.pos
check "lines without a label" refused 1 "expected lines of a text, a tab, and 0 or 1"
printf 'fine\t1\n' >short.txt
run sentences x.tsv short.txt
check "too few lines" refused 1 "short.txt: expected 2 texts, found 1"
run sentences none/x.tsv first.txt
check "a folder that is not there" refused 1 "none/x.tsv: cannot be written"
check "nothing is left behind" [ -z "$(ls x.tsv* none/x.tsv* 2>/dev/null)" ]
for i in 1 2 3 4 5 6; do
  ./fetch_reviews.sh sentences shared.tsv first.txt second.txt >"out$i" 2>"err$i" || echo failed >"err$i" &
done
wait
explain() { cat err?; }
check "several at a time" [ -z "$(cat err?)" ]
check "leave one file, whole" [ "$(ls shared.tsv*)" = shared.tsv ]
check "as one alone does" [ "$(wc -l <shared.tsv)" -eq 4 ]

printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
