"""The pages of draw in a real browser: python3 docs/page/browser_draw_test.py BUILD [SCREENSHOTS].

Trains a small network of every mixer and every task with the programs in BUILD, draws them with `draw`, and opens the
pages as files: at the width of a telephone and of a screen, light and dark. Writes pictures of the pages into the
folder SCREENSHOTS, if it is given.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import browser_test
from browser_test import SETTLE, Browser

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
sys.path.append(str(ROOT / "tools"))
from checkpoint import MIXERS  # noqa: E402

WIDEST_BEAM = "widest_beam"
TEXT = "The quick brown fox\njumps over the lazy dog. "
MEASURES = """return [document.documentElement.scrollWidth, document.scripts.length, getComputedStyle(document.body).backgroundColor,
  [...document.images].filter((image) => !(image.complete && image.naturalWidth > 0 && image.alt)).length,
  document.images.length, Math.max(...[...document.images].map((image) => image.getBoundingClientRect().right))]"""

# Script for a picture that is opened by itself: the extent of its text, and the number of texts that overlap another.
TEXTS = """const boxes = [...document.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  return [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right)),
          boxes.filter((a, i) => boxes.some((b, j) => j < i && meet(a, b))).length]"""


def run(program: str, *arguments: str) -> None:
    subprocess.run([BUILD / program, *arguments], check=True, stdout=subprocess.DEVNULL)


def draw_all(folder: Path) -> list[str]:
    """Writes a page for every network. Returns the names of the pages."""
    (folder / "text.txt").write_text(40 * TEXT, encoding="utf-8")
    shown = {mixer: ("--text", TEXT) for mixer in MIXERS}
    for name, mixer in MIXERS.items():
        run("train", "--data", f"{folder}/text.txt", "--out", f"{folder}/runs/{name}", "--mixer", name, "--steps", "3", "--warmup", "1",
            "--layers", "2", "--channels", "24", "--heads", "2", "--conv-kernel", "3", "--batch", "2", *mixer.flags.split())  # fmt: skip
    tasks = {
        "sort": ("--text", "3 1 2 1 3 2"),
        "reviews": ("--example", "1"),
        "digits": ("--example", "2"),
        "dates": ("--example", "3"),
        "recall": ("--example", "1"),
    }
    for task, what in tasks.items():
        more = ("--class-pooling", "cls") if task in ("reviews", "digits") else ()
        run("train", "--task", task, "--steps", "3", "--out", f"{folder}/runs/{task}", *more)
        shown[task] = what
    for name, what in shown.items():
        run("draw", "--checkpoint", f"{folder}/runs/{name}", *what, "--out", f"{folder}/{name}")
    run("draw", "--checkpoint", f"{folder}/runs/dates", "--text", "3 may 1999", "--beam", "8", "--out", f"{folder}/{WIDEST_BEAM}")
    return [*shown, WIDEST_BEAM]


class Pages(unittest.TestCase):
    """Every page fits into the window, writes nothing to the console, and shows all of its pictures."""

    def test_every_page(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            names = draw_all(Path(folder))
            browser_test.SITE = Path(folder)
            for dark in (False, True):
                browser = Browser(dark=dark)
                try:
                    self.check(browser, names, dark)
                    self.check_beams(browser, dark)
                finally:
                    browser.close()

    def check_beams(self, browser: Browser, dark: bool) -> None:
        """The tree of a beam search is readable: its texts lie inside the picture and do not overlap."""
        browser.resize(390)
        for name in ("dates", WIDEST_BEAM):
            with self.subTest(name=name, dark=dark):
                browser.open(f"{name}/beam.svg")
                left, right, over = browser.run(TEXTS)
                self.assertGreaterEqual(left, 0)
                self.assertLessEqual(right, 358)
                self.assertEqual(over, 0)
                browser.keep(f"{name}-beam-{'dark' if dark else 'light'}")

    def check(self, browser: Browser, names: list[str], dark: bool) -> None:
        for width in (390, 1280):
            browser.resize(width)
            for name in names:
                with self.subTest(name=name, width=width, dark=dark):
                    browser.open(f"{name}/index.html")
                    browser.run(SETTLE)
                    wide, scripts, ground, broken, pictures, right = browser.run(MEASURES)
                    self.assertLessEqual(wide, width, "the page is wider than the window")
                    self.assertLessEqual(right, width, "a picture is wider than the window")
                    self.assertEqual((scripts, broken), (0, 0))
                    self.assertGreater(pictures, 5)
                    self.assertEqual(max(int(part) for part in ground[4:-1].split(",")) < 80, dark)
                    self.assertEqual(browser.messages(), [])
                    browser.keep(f"{name}-{width}-{'dark' if dark else 'light'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BUILD = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        browser_test.SCREENSHOTS = Path(sys.argv[2])
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    failed = len({str(test).split(" (name=")[0] for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
