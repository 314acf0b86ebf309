# Sourced by the tests that are scripts: check WHAT COMMAND... counts one check, in passed or in failed. A test that has
# more to show of a failure defines explain.
passed=0
failed=0
explain() { :; }
check() {
  what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$what"
    explain
  fi
}
