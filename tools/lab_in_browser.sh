#!/bin/sh
# tools/lab_in_browser.sh BUILD SITE [--firefox|--jsc]: compares the module of the lab in SITE with the programs in BUILD,
# in Chromium, in Firefox if it is there, or in JavaScriptCore; the last line counts the tests.
set -u
case " $* " in
  *" --firefox "*) tools/need.sh page || exit 1 ;;
  *" --jsc "*) tools/need.sh jsc page || exit 1 ;;
  *) tools/need.sh chromium chromedriver page || exit 1 ;;
esac
exec "$(tools/page_python.sh)" docs/page/browser_bits_test.py "$@"
