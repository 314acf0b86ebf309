#!/bin/sh
# tools/site_in_browser.sh SITE [SCREENSHOTS]: tests the written pages in Chromium; the last line counts the tests.
# Writes pictures of some pages into the second folder.
set -u
tools/need.sh chromium chromedriver page || exit 1
exec "$(tools/page_python.sh)" docs/page/browser_test.py "$@"
