#!/bin/sh
# Runs data/tinyshakespeare.sh through its branches, offline: on a copy that expects the checksum of a stand-in text,
# with stand-ins for curl, cmake and the corpus program first on PATH. Prints `N passed, N failed`; status 1 if one failed.
set -u
. "$(dirname -- "$0")/../harness/checks.sh"

script=$(cd "$(dirname -- "$0")/../../data" && pwd)/tinyshakespeare.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir data bin build elsewhere

printf 'a stand-in for the text\n' >right.txt
printf 'another text\n' >wrong.txt
sum=$(sha256sum <right.txt | cut -d ' ' -f 1)
sed "s/^sha256=.*/sha256=$sum/" "$script" >data/tinyshakespeare.sh
chmod +x data/tinyshakespeare.sh

# curl: the last argument is the URL; FAKE_CURL tells which host answers, and with what.
cat >bin/curl <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do
  [ "$1" != --output ] || out=$2
  shift
done
case $1 in
  *"$FAKE_HOST"*) cp "$FAKE_ANSWER" "$out" ;;
  *) exit 6 ;;
esac
END
cat >bin/cmake <<'END'
#!/bin/sh
echo "cmake speaks"
[ -z "${FAKE_CMAKE_FAILS:-}" ]
END
cat >build/built_in_corpus <<'END'
#!/bin/sh
echo "entropy speaks"
echo corpus >"$1"
END
chmod +x bin/curl bin/cmake build/built_in_corpus
touch build/CMakeCache.txt
PATH=$folder/bin:$PATH
export PATH FAKE_HOST=none FAKE_ANSWER="$folder/right.txt"
unset TINYSHAKESPEARE FAKE_CMAKE_FAILS

lines() { [ "$(wc -l <err)" -eq "$1" ]; }
# expect WHAT STATUS STDOUT STDERR_PART: checks the last `run`. An empty part stands for a silent standard error.
expect() {
  if [ "$status" -eq "$2" ] && [ "$(cat out)" = "$3" ] && if [ -n "$4" ]; then grep -q -e "$4" err; else lines 0; fi; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s: status %s, output "%s", errors:\n' "$1" "$status" "$(cat out)"
    cat err
  fi
}
run() {
  data/tinyshakespeare.sh "$@" >out 2>err
  status=$?
}

run
expect "no build folder" 2 "" "expected one argument"
check "one line" lines 1

run build
expect "offline" 0 build/built_in_corpus.txt "cannot be downloaded; put it at data/tinyshakespeare.txt"
check "the corpus is there" cmp -s build/built_in_corpus.txt - <<END
corpus
END
check "what the programs print goes to standard error" grep -q "entropy speaks" err
check "no file is left behind" [ "$(ls data)" = tinyshakespeare.sh ]

FAKE_CMAKE_FAILS=1 run build
expect "a build that fails" 1 "" "cannot be downloaded"

for host in raw.githubusercontent.com storage.googleapis.com cdn.jsdelivr.net; do
  FAKE_HOST=$host run build
  expect "only $host answers" 0 data/tinyshakespeare.txt "$host"
  check "the text of $host" cmp -s right.txt data/tinyshakespeare.txt
  check "no file beside it" [ "$(find data -type f | wc -l)" -eq 2 ]
  rm data/tinyshakespeare.txt
done

FAKE_HOST=/ FAKE_ANSWER=$folder/wrong.txt run build
expect "all answer with another text" 0 build/built_in_corpus.txt "what came is not Tiny Shakespeare"
check "another text is not kept" [ "$(ls data)" = tinyshakespeare.sh ]

cp right.txt data/tinyshakespeare.txt
TINYSHAKESPEARE=none.txt run build
expect "the file is in data" 0 data/tinyshakespeare.txt ""
cd elsewhere || exit 1
../data/tinyshakespeare.sh ../build >../out 2>../err
status=$?
cd ..
expect "from another folder" 0 ../data/tinyshakespeare.txt ""

cp wrong.txt data/tinyshakespeare.txt
run build
expect "a wrong file in data, offline" 0 build/built_in_corpus.txt "data/tinyshakespeare.txt is not Tiny Shakespeare"
check "a wrong file stays" cmp -s wrong.txt data/tinyshakespeare.txt
FAKE_HOST=/ run build
expect "a wrong file in data is replaced and that is said" 0 data/tinyshakespeare.txt "replacing data/tinyshakespeare.txt"
check "by the right one" cmp -s right.txt data/tinyshakespeare.txt
rm data/tinyshakespeare.txt

cp right.txt "a name with blanks.txt"
TINYSHAKESPEARE="a name with blanks.txt" run build
expect "a file that the environment names" 0 "a name with blanks.txt" ""
FAKE_HOST=/ TINYSHAKESPEARE=wrong.txt run build
expect "the environment names another text" 1 "" "wrong.txt (from the environment variable.*expected SHA-256"
check "one line" lines 1
FAKE_HOST=/ TINYSHAKESPEARE=none.txt run build
expect "the environment names no file" 1 "" "none.txt (from the environment variable.*no such file"
check "one line" lines 1

printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
