#!/bin/sh
# extras/reviews/fetch_reviews.sh SET OUT [FILE...]: writes a public collection of reviews to OUT, as lines `LABEL TAB
# TEXT` with both labels in turns, for `train --task reviews --data OUT`. SET is one of
#   imdb       50,000 reviews of films, the 25,000 for testing last (Maas et al. 2011); FILE: the archive, aclImdb_v1.tar.gz
#   polarity   10,662 sentences of such (Pang and Lee 2005); FILE: the archive, rt-polaritydata.tar.gz
#   sentences  1,000 each of Amazon, IMDb and Yelp (Kotzias et al. 2015); FILE...: the texts of data set 331 of the UCI
#              repository, which has to be fetched by hand
# Without FILE the archive is downloaded. What is downloaded or given is checked: by size and SHA-1 where its authors state
# them, else by its number of texts.
set -u

imdb_source=https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz
imdb_bytes=84125825
imdb_sha1=01ada507287d82875905620988597833ad4e0903
imdb_texts=12500 # of a label, for training and for testing
polarity_source=http://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz
polarity_texts=5331 # of a label
sentences_texts=1000 # of a file

fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit "${2:-1}"
}

has() { command -v "$1" >/dev/null 2>&1; }

# The SHA-1 of a file in hexadecimal; empty where no program can compute it, which then counts as a mismatch.
sha1_of() {
  if has sha1sum; then
    sha1sum <"$1"
  elif has shasum; then
    shasum <"$1"
  elif has openssl; then
    openssl dgst -sha1 -r <"$1"
  fi | cut -d ' ' -f 1
}

# download URL FILE; gives up after 10 seconds without a connection and after half an hour in all.
download() {
  if has curl; then
    curl --fail --location --silent --connect-timeout 10 --max-time 1800 --output "$2" -- "$1"
  else
    wget -q -T 10 -t 1 -O "$2" -- "$1"
  fi
}

# archive URL [FILE]: the path of the archive, downloaded where none is given.
archive() {
  if [ -n "${2:-}" ]; then
    [ -f "$2" ] && [ -r "$2" ] || fail "$2: no such file, or not readable"
    archive=$2
  else
    archive=$folder/archive.tar.gz
    download "$1" "$archive" || fail "$1: cannot be downloaded; give the archive as FILE"
  fi
}

unpack() { tar -xzf "$1" -C "$folder" 2>/dev/null || fail "$1: is no archive that tar can unpack"; }

# require_texts FILE WHAT COUNT: FILE has so many lines; WHAT they are, for people.
require_texts() {
  found=$(wc -l <"$1" | tr -d ' ')
  [ "$found" -eq "$3" ] || fail "$2: expected $3 texts, found $found"
}

# labelled LABEL: what comes in, a text a line, with its label, and without tabs, returns and marks of line breaks.
labelled() { LC_ALL=C awk -v label="$1" '{ gsub(/<br *\/?>|[\t\r]/, " "); print label "\t" $0 }'; }

# in_turns POSITIVE NEGATIVE: a line of one, a line of the other.
in_turns() { paste -d '\n' "$1" "$2"; }

# The texts of a folder that has a file for each, in the order of their names, one a line.
texts_of() {
  find "$1" -name '*.txt' 2>/dev/null | LC_ALL=C sort | tr '\n' '\0' | LC_ALL=C xargs -0 awk '
    FNR == 1 && NR > 1 { print text; text = "" }
    { text = text (FNR > 1 ? " " : "") $0 }
    END { if (NR) print text }'
}

imdb() {
  archive "$imdb_source" "$@"
  [ "$(wc -c <"$archive" | tr -d ' ')" -eq "$imdb_bytes" ] && [ "$(sha1_of "$archive")" = "$imdb_sha1" ] ||
    fail "$archive: expected $imdb_bytes bytes with SHA-1 $imdb_sha1"
  unpack "$archive"
  for part in train test; do
    for label in pos neg; do
      texts_of "$folder/aclImdb/$part/$label" | labelled "$label" >"$folder/$part.$label"
      require_texts "$folder/$part.$label" "$archive: aclImdb/$part/$label" "$imdb_texts"
    done
    in_turns "$folder/$part.pos" "$folder/$part.neg" >>"$folder/all"
  done
}

polarity() {
  archive "$polarity_source" "$@"
  unpack "$archive"
  for label in pos neg; do
    # Their authors wrote them in Windows' Latin.
    iconv -f WINDOWS-1252 -t UTF-8 "$folder/rt-polaritydata/rt-polarity.$label" 2>/dev/null | labelled "$label" >"$folder/$label"
    require_texts "$folder/$label" "$archive: rt-polaritydata/rt-polarity.$label" "$polarity_texts"
  done
  in_turns "$folder/pos" "$folder/neg" >"$folder/all"
}

# Lines TEXT TAB 0 or 1, in whatever order they were collected.
sentences() {
  [ $# -gt 0 ] || fail "sentences: expected the texts of data set 331 of the UCI repository, fetched by hand, as FILE..." 2
  for file; do
    [ -f "$file" ] && [ -r "$file" ] || fail "$file: no such file, or not readable"
    LC_ALL=C awk -F '\t' '
      { sub(/\r$/, "") }
      NF != 2 || $2 !~ /^[01]$/ { exit 1 }
      { print ($2 == 1 ? "pos" : "neg") "\t" $1 }' "$file" >"$folder/part" || fail "$file: expected lines of a text, a tab, and 0 or 1"
    require_texts "$folder/part" "$file" "$sentences_texts"
    cat "$folder/part" >>"$folder/sentences"
  done
  # The last tenth of OUT is held back, and has some of every file.
  LC_ALL=C awk -v files=$# -v texts="$sentences_texts" '{ line[NR] = $0 }
    END { for (i = 1; i <= texts; ++i) for (f = 0; f < files; ++f) print line[f * texts + i] }' "$folder/sentences" >"$folder/all"
}

[ $# -ge 2 ] || fail "expected a set and a file to write: fetch_reviews.sh imdb|polarity|sentences OUT [FILE...]" 2
set=$1
out=$2
shift 2
case $set in
  imdb | polarity) [ $# -le 1 ] || fail "$set: expected one archive, found $# files" 2 ;;
  sentences) ;;
  *) fail "expected imdb, polarity or sentences, found \"$set\"" 2 ;;
esac
folder=$(mktemp -d) || fail "no temporary folder can be made"
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$set" "$@"
# A name of its own in the same folder, so that the rename is atomic and two runs do not meet.
part=$(mktemp "$out.XXXXXX" 2>/dev/null) || fail "$out: cannot be written"
trap 'rm -rf "$folder" "$part"' EXIT
cp "$folder/all" "$part" 2>/dev/null && chmod 644 "$part" && mv -f "$part" "$out" || fail "$out: cannot be written"
printf '%s: %s texts\n' "$out" "$(wc -l <"$out" | tr -d ' ')"
