#!/bin/sh
# Runs tools/need.sh with stand-ins for apt-get, id and sleep first on PATH: it waits for whoever else installs, and
# gives up where waiting does not help. Prints `N passed, N failed`; status 1 if one failed.
set -u
. "$(dirname -- "$0")/../harness/checks.sh"

script=$(cd "$(dirname -- "$0")/../../tools" && pwd)/need.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir bin

# apt-get: notes its arguments; FAKE_UPDATES_FAIL updates find the lock of the lists taken, as FAKE_MESSAGE says; after
# one that works, or with lists from before, what is installed is there.
cat >bin/apt-get <<'END'
#!/bin/sh
echo "$*" >>calls
case " $* " in
  *' update '*)
    if [ "$(grep -c update calls)" -le "$FAKE_UPDATES_FAIL" ]; then
      echo "$FAKE_MESSAGE" >&2
      exit 100
    fi
    touch lists
    ;;
  *' install '*)
    [ -e lists ] || exit 100
    printf '#!/bin/sh\n' >bin/wanted-tool
    chmod +x bin/wanted-tool
    ;;
esac
END
printf '#!/bin/sh\necho 0\n' >bin/id
printf '#!/bin/sh\necho "$*" >>sleeps\n' >bin/sleep
chmod +x bin/apt-get bin/id bin/sleep
PATH=$folder/bin:$PATH
export PATH FAKE_UPDATES_FAIL=0
export FAKE_MESSAGE='E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)'

explain() {
  echo "status $status"
  cat calls err
}
run() {
  rm -f lists sleeps calls bin/wanted-tool
  touch sleeps calls
  [ "$1" = fresh ] || touch lists
  "$script" wanted-tool 2>err
  status=$?
}
calls() { [ "$(cat calls)" = "$1" ]; }
install='-qq -o DPkg::Lock::Timeout=300 install -y wanted-tool'

run known
check "what is known is installed" [ $status = 0 ]
check "and waits for the lock of the packages" calls "$install"

run fresh
check "a machine without lists gets them" [ $status = 0 ]
check "once" calls "$install
-qq update
$install"

FAKE_UPDATES_FAIL=3
run fresh
check "the lock of the lists is waited for" [ $status = 0 ]
check "a while" [ "$(wc -l <sleeps)" -eq 3 ]

FAKE_MESSAGE='E: Failed to fetch: no route to host'
run fresh
check "without a network there is nothing to wait for" [ $status = 1 ]
check "at once" [ "$(wc -l <sleeps)" -eq 0 ]
check "and one is told" grep -q '^tools/need.sh: wanted-tool is missing; install it (.*sudo apt-get install wanted-tool)' err

FAKE_UPDATES_FAIL=1000
FAKE_MESSAGE='E: Could not get lock /var/lib/apt/lists/lock'
run fresh
check "a lock that stays is given up" [ $status = 1 ]
check "after five minutes" [ "$(wc -l <sleeps)" -eq 60 ]

touch lists
"$script" clang++-99 2>err
status=$?
check "a version of clang++ has a package of its own" grep -q 'sudo apt-get install clang-99)' err

printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
