"""The interactive pictures in a real browser: python3 docs/page/browser_touch_test.py [SITE [SCREENSHOTS]].

SITE (build/site by default) must have been written on a machine with tools for WebAssembly. Needs what browser_test.py
needs.
"""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

import browser_test
from browser_test import Browser, InBrowser

POOLING, WINDOWED, ATTENTION, REGRESSION = (
    f"layers/{name}.html" for name in ("pooling", "pooling_sliding_window", "attention", "kernel_regression")
)
KINDS = {POOLING: ("logit",), WINDOWED: ("window",), ATTENTION: ("row",), REGRESSION: ("bell",)}  # the pictures of a page
WIDTHS = (390, 1280)
UP, DOWN, LEFT, RIGHT, HOME, TAB = "\ue013", "\ue015", "\ue012", "\ue014", "\ue011", "\ue004"
TAKEN = "return document.querySelectorAll('[data-touch] input').length"
INPUT = "[data-touch={}] label:nth-of-type({}) input"
# Texts of a class in a picture; all its texts.
TEXTS = "return [...document.querySelectorAll(arguments[0])].map((text) => text.textContent)"


class Touch(InBrowser):
    """Dragging and keys change numbers, and the new numbers are correct."""

    needs = "touch-pooling.js"

    def open(self, width: int, page: str = POOLING) -> None:
        self.browser.resize(width)
        self.browser.open(page)
        for _ in range(50):  # the compiled code is loaded asynchronously
            if self.browser.run(TAKEN):
                return
            self.browser.run("return new Promise((done) => setTimeout(done, 20))")
        self.fail("the script did not take the pictures over")

    def texts(self, kind: str, name: str = "") -> list[str]:
        return self.browser.run(TEXTS, f"[data-touch={kind}] svg text" + (f".{name}" if name else ""))

    def numbers(self, kind: str, name: str) -> list[float]:
        return [float(text.replace("−", "-").replace("∞", "inf")) for text in self.texts(kind, name)]

    def drag(self, selector: str, x: int, y: int, pointer: str = "mouse") -> None:
        self.browser.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        press = [{"type": "pointerDown", "button": 0}, {"type": "pause", "duration": 20}]
        moves = [{"type": "pointerMove", "origin": "pointer", "x": x // 2, "y": y // 2, "duration": 20}] * 2
        start = {"type": "pointerMove", "origin": self.browser.element(selector), "x": 0, "y": 0}
        actions = [start, *press, *moves, {"type": "pointerUp", "button": 0}]
        finger = {"type": "pointer", "id": pointer, "parameters": {"pointerType": pointer}, "actions": actions}
        self.browser._request("POST", "/actions", {"actions": [finger]})

    def focus(self, selector: str) -> None:
        self.browser.run("document.querySelector(arguments[0]).focus()", selector)

    def test_first_drawing_is_that_without_script(self) -> None:
        browser = Browser(script=False)
        browser.resize(1280)
        try:
            for page, kinds in KINDS.items():
                self.open(1280, page)
                browser.open(page)
                self.assertEqual(browser.run(TAKEN), 0)
                for kind in kinds:
                    self.assertEqual(browser.run(TEXTS, f"[data-touch={kind}] svg text"), self.texts(kind))
                    height = browser.run(f"return document.querySelector('[data-touch={kind}] svg').clientHeight")
                    self.assertGreater(height, 300)
                hints = "return [...document.querySelectorAll('[data-touch] p')].filter((p) => p.checkVisibility()).length"
                self.assertEqual(browser.run(hints), 0)
        finally:
            browser.close()

    def test_fits_at_every_width(self) -> None:
        for width in WIDTHS:
            for page, kinds in KINDS.items():
                self.open(width, page)
                places = "[...document.querySelectorAll('[data-touch], [data-touch] *')]"
                right = self.browser.run(f"return Math.max(...{places}.map((part) => part.getBoundingClientRect().right))")
                self.assertLessEqual(right, width)
                smallest = self.browser.run(
                    "const texts = [...document.querySelectorAll('[data-touch] svg text, [data-touch] svg tspan')];"
                    "return Math.min(...texts.map((text) => parseFloat(getComputedStyle(text).fontSize)"
                    " * text.ownerSVGElement.getScreenCTM().a))"
                )
                self.assertGreaterEqual(smallest, 10.9 if width == 390 else 11)
                for kind in kinds:
                    self.browser.run(f"document.querySelector('[data-touch={kind}]').scrollIntoView({{block: 'center'}})")
                    self.browser.keep(f"touch-{kind}-{width}")
                self.assertEqual(self.browser.messages(), [])

    def test_dragging_a_logit(self) -> None:
        for width in WIDTHS:
            for pointer in ("mouse", "touch"):
                with self.subTest(width=width, pointer=pointer):
                    self.open(width)
                    out, d_logit = self.numbers("logit", "out"), self.numbers("logit", "d_logit")
                    self.drag(INPUT.format("logit", 5), 0, -24, pointer)  # position 4: from 1.5 up by 24 / 16
                    self.assertAlmostEqual(self.numbers("logit", "logit")[4], 3.0, delta=0.11)
                    now = self.numbers("logit", "out")
                    self.assertEqual(now[:4], out[:4], "a later position changed an earlier average")
                    self.assertTrue(all(abs(now[c] - 0.5) < abs(out[c] - 0.5) for c in range(4, 8)), (out, now))
                    self.assertNotEqual(self.numbers("logit", "d_logit"), d_logit)
                    self.assertEqual(self.numbers("logit", "total"), [0])
                    self.assertEqual(self.browser.messages(), [])
        self.browser.keep("touch-logit-dragged")

    def test_keys_change_a_logit(self) -> None:
        self.open(1280)
        self.focus(INPUT.format("logit", 1))
        for key in (UP, UP, DOWN, RIGHT):
            self.browser.press(key)
        self.assertAlmostEqual(self.numbers("logit", "logit")[0], 0.7)
        says = "return [document.activeElement.getAttribute('aria-label'), document.activeElement.ariaValueText]"
        now = "0.7; out 3.00, d_logit " + self.texts("logit", "d_logit")[0]
        self.assertEqual(self.browser.run(says), ["logit of position 0", now])
        self.browser.press(TAB)
        self.assertEqual(self.browser.run(says)[0], "logit of position 1")
        outline = "return getComputedStyle(document.activeElement.parentElement).outlineStyle"
        self.assertEqual(self.browser.run(outline), "solid")
        self.browser.press(HOME)
        self.assertEqual(self.numbers("logit", "logit")[1], -3)
        self.browser.keep("touch-logit-focused")

    def test_dragging_a_score(self) -> None:
        for width in WIDTHS:
            for pointer in ("mouse", "touch"):
                with self.subTest(width=width, pointer=pointer):
                    self.open(width, ATTENTION)
                    weight, (out,) = self.numbers("row", "weight"), self.numbers("row", "out")
                    self.drag(INPUT.format("row", 5), 0, -24, pointer)  # key 4, with value 0.5: from 1.0 up by 24 / 16
                    self.assertAlmostEqual(self.numbers("row", "score")[4], 2.5, delta=0.11)
                    now = self.numbers("row", "weight")
                    self.assertGreater(now[4], weight[4])
                    self.assertTrue(all(now[s] < weight[s] for s in range(8) if s != 4), (weight, now))
                    self.assertLess(self.numbers("row", "out")[0], out)
                    self.assertLess(self.numbers("row", "d_score")[4], 0)
                    self.assertEqual(self.numbers("row", "total"), [0])
                    self.assertEqual(self.browser.messages(), [])
        self.browser.keep("touch-row-dragged")

    def test_keys_change_a_score(self) -> None:
        self.open(1280, ATTENTION)
        self.focus(INPUT.format("row", 1))
        for key in (UP, UP, DOWN, RIGHT):
            self.browser.press(key)
        self.assertAlmostEqual(self.numbers("row", "score")[0], 0.7)
        says = "return [document.activeElement.getAttribute('aria-label'), document.activeElement.ariaValueText]"
        now = f"0.7; weight {self.texts('row', 'weight')[0]}, d_score {self.texts('row', 'd_score')[0]}"
        self.assertEqual(self.browser.run(says), ["score of key 0", now])

    def test_moving_and_resizing_the_window(self) -> None:
        for width in WIDTHS:
            with self.subTest(width=width):
                self.open(width, WINDOWED)
                self.assertEqual(self.texts("window", "range"), ["3–5", "6–8", "3–8"])
                self.drag(INPUT.format("window", 1), 22 * 2, 0)
                self.assertEqual(self.texts("window", "range"), ["5–5", "6–10", "5–10"])
                self.drag(INPUT.format("window", 2), 22 * 2, 0)
                self.assertEqual(self.texts("window", "size"), ["w = 4"])
                self.assertEqual(self.texts("window", "range"), ["7–7", "8–10", "7–10"])
                self.browser.keep(f"touch-window-moved-{width}")
                self.drag(INPUT.format("window", 1), 22, 0)
                self.assertEqual(self.texts("window", "range"), ["none", "8–11", "8–11"])
                numbers = self.numbers("window", "number")
                self.assertEqual(numbers[:3], [float("-inf"), 0, 0])
                self.assertEqual(numbers[3:6], numbers[6:], "a window of one block is its prefix")
                self.drag(INPUT.format("window", 1), -210, 0)
                self.assertEqual(self.texts("window", "range")[2], "0–3")
                self.drag(INPUT.format("window", 2), 200, 0)
                self.assertEqual(self.texts("window", "size"), ["w = 1"])
                self.assertEqual(self.browser.messages(), [])

    def test_keys_move_and_resize_the_window(self) -> None:
        self.open(1280, WINDOWED)
        self.focus(INPUT.format("window", 1))
        self.browser.press(RIGHT)
        self.assertEqual(self.texts("window", "range")[2], "4–9")
        self.browser.press(TAB)
        self.browser.press(LEFT)
        self.assertEqual(self.texts("window", "size"), ["w = 7"])
        self.assertEqual(self.texts("window", "range")[2], "3–9")
        self.browser.press(HOME)
        self.assertEqual(self.texts("window", "size"), ["w = 10"])
        suffix, prefix, both = (self.numbers("window", "number")[i : i + 3] for i in (0, 3, 6))
        self.assertEqual(both[0], max(suffix[0], prefix[0]))

    def test_moving_and_widening_the_bell(self) -> None:
        for width in WIDTHS:
            with self.subTest(width=width):
                self.open(width, REGRESSION)
                query, out, inverse, loss, _ = self.numbers("bell", "word")
                self.drag(INPUT.format("bell", 1), -68, 0)  # by one, from 3
                moved = self.numbers("bell", "word")
                self.assertAlmostEqual(moved[0], query - 1, delta=0.06)
                self.assertGreater(moved[1], out, "the points to the left are higher")
                self.assertEqual(moved[2:], [inverse, loss, moved[4]], "the loss must depend on the width alone")
                self.drag(INPUT.format("bell", 2), 34, 0)  # from a deviation of 0.5 to 1
                wide = self.numbers("bell", "word")
                self.assertAlmostEqual(wide[2], 1, delta=0.06)
                self.assertGreater(wide[3], loss)
                self.assertEqual(self.browser.messages(), [])
        self.browser.keep("touch-bell-dragged")

    def test_keys_widen_the_bell_to_where_it_is_best(self) -> None:
        self.open(1280, REGRESSION)
        self.focus(INPUT.format("bell", 2))
        for _ in range(4):
            self.browser.press(LEFT)
        self.assertAlmostEqual(self.numbers("bell", "word")[2], 1 / 0.3, delta=0.01)
        self.assertAlmostEqual(self.numbers("bell", "word")[4], 0, delta=0.005)

    def test_every_control_has_a_name(self) -> None:
        for page, count in ((POOLING, 8), (WINDOWED, 2), (ATTENTION, 8), (REGRESSION, 2)):
            self.open(390, page)
            inputs = "[...document.querySelectorAll('[data-touch] input')]"
            names = self.browser.run(f"return {inputs}.map((input) => input.ariaLabel)")
            self.assertEqual(len(names), count)
            self.assertEqual(len(set(names)), count)


class Dark(unittest.TestCase):
    """Pictures in dark colours, for inspection."""

    def test_dark(self) -> None:
        browser = Browser(dark=True)
        try:
            for width in WIDTHS:
                browser.resize(width)
                for page, kinds in KINDS.items():
                    browser.open(page)
                    for kind in kinds:
                        browser.run(f"document.querySelector('[data-touch={kind}]').scrollIntoView({{block: 'center'}})")
                        browser.keep(f"touch-{kind}-{width}-dark")
            self.assertEqual(browser.messages(), [])
        finally:
            browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        browser_test.SITE = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        browser_test.SCREENSHOTS = Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
