"""Tests of the pages of kernels in a real browser; browser_test.py runs these tests with its own."""

from __future__ import annotations

import re

from browser_test import SETTLE, WIDTHS, Browser, InBrowser

PAGES = ("attention", "basics", "embedding_gradient", "layernorm", "pooling", "product", "production")
TOLD = "return document.querySelector('.pane .told').textContent"
# Changes the address as a link of the page does, and waits until the page has read it.
GO = """return new Promise((done) => {
    addEventListener("hashchange", () => done(document.querySelector(".pane .told").textContent), {once: true});
    location.hash = arguments[0];
  })"""
# Steps forward some times; the sentences before each step.
STEP_ON = """const go = document.querySelectorAll(".controls button")[2], told = document.querySelector(".told"), all = [];
  for (let i = 0; i < arguments[0]; ++i) { all.push(told.textContent); go.click() }
  return all"""
RIGHT, DOWN, TAB, SPACE = "\ue014", "\ue015", "\ue004", " "


class Kernels(InBrowser):
    def open(self, page: str, fragment: str = "", width: int = 1280) -> str:
        self.browser.resize(width)
        self.browser.open(f"kernels/{page}.html", fragment)
        self.browser.run(SETTLE)
        return self.browser.run(TOLD)

    def address(self) -> str:
        """The fragment; the viewer writes it 100 ms after the last step."""
        return self.browser.run("return new Promise((done) => setTimeout(() => done(location.hash), 500))")

    def step_on(self, steps: int) -> list[str]:
        """Steps forward; a few steps per call, because each step draws. Returns the sentences before each step."""
        told = []
        while len(told) < steps:
            told += self.browser.run(STEP_ON, min(10, steps - len(told)))
        return told

    def tearDown(self) -> None:
        self.assertEqual(self.browser.messages(), [])

    def test_fits_at_every_width(self) -> None:
        for page in PAGES:
            for width in WIDTHS:
                with self.subTest(page=page, width=width):
                    self.assertRegex(self.open(page, width=width), r"^Step 1 of \d+\. .")
                    self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width)
                    self.browser.keep(f"kernels-{page}-{width}")

    def test_the_first_steps_of_every_level_can_be_drawn(self) -> None:
        for page in PAGES:
            self.open(page)
            levels = self.browser.run("return [...document.querySelector('.fields select').options].map((one) => one.value)")
            for level in levels:
                with self.subTest(page=page, level=level):
                    count = int(re.match(r"Step 1 of (\d+)", self.browser.run(GO, f"level={level}")).group(1))
                    last = min(count, 20)
                    told = self.step_on(last - 1) + [self.browser.run(TOLD)]
                    self.assertEqual([one.split(".")[0] for one in told], [f"Step {step} of {count}" for step in range(1, last + 1)])

    def test_a_link_leads_to_its_moment(self) -> None:
        told = self.open("basics", "level=transpose_32&step=17&beside=transpose_33&besideStep=17")
        self.assertIn("32 passes, 31 more than needed (32-way bank conflict)", told)
        beside = self.browser.run("return [...document.querySelectorAll('.told')].map((one) => one.textContent)")
        self.assertIn("1 pass, no bank conflict", beside[1])
        self.browser.run("document.querySelectorAll('.controls button')[2].click()")
        address = self.address()
        self.assertIn("&step=18", address)
        self.assertIn("besideStep=18", address)

    def test_the_viewer_counts_what_the_emulator_counts(self) -> None:
        """Row of a level in the chapter's table, summed from the sentences of all steps."""
        self.open("layernorm", "level=2")
        rows = self.browser.run("return [...document.querySelectorAll('table tr')].map((row) => row.innerText.split('\\t'))")
        row = next(row for row in rows if row[0] == "2")
        total = [0, 0]
        launches = self.browser.run("return document.querySelectorAll('.fields select')[1].options.length")
        self.assertEqual(int(row[2]), launches)
        for launch in range(launches):
            blocks = warps = 1
            block = 0
            while block < blocks:
                warp = 0
                while warp < warps:
                    begin = self.browser.run(GO, f"level=2&launch={launch}&block={block}&warp={warp}&step=0")
                    counts = "return [2, 3].map((one) => document.querySelectorAll('.fields select')[one].options.length)"
                    blocks, warps = self.browser.run(counts)
                    told = self.step_on(int(re.search(r"of (\d+)", begin).group(1)))
                    moved = [re.search(r"moved (\d+) sector", text) for text in told]
                    total[0] += sum(one is not None for one in moved)
                    total[1] += sum(int(one.group(1)) for one in moved if one)
                    warp += 1
                block += 1
        self.assertEqual(total, [int(row[3]), int(row[5])])

    def test_keyboard_alone(self) -> None:
        self.open("layernorm", "level=2")
        self.browser.run("document.querySelector('.time canvas').focus()")
        for key, expected in ((RIGHT, "Step 2 of"), (RIGHT, "Step 3 of"), (DOWN, "Step 3 of")):
            self.browser.press(key)
            self.assertIn(expected, self.browser.run(TOLD))
        self.assertIn("warp=1", self.address())
        self.browser.run("document.querySelectorAll('.controls button')[2].focus()")
        self.browser.press(SPACE)
        self.assertIn("Step 4 of", self.browser.run(TOLD))

    def test_every_control_has_a_name(self) -> None:
        self.open("layernorm", "level=2&beside=3")
        nameless = self.browser.run(
            "return [...document.querySelectorAll('#kernels :is(button, select, canvas)')].filter((one) =>"
            " !(one.ariaLabel || one.labels?.length || one.textContent.trim())).map((one) => one.outerHTML.slice(0, 60))"
        )
        self.assertEqual(nameless, [])

    def test_a_click_on_an_output_tells_where_it_comes_from(self) -> None:
        self.open("layernorm", "level=2&step=23")
        canvas = "[...document.querySelectorAll('.memory h3')].find((one) => one.textContent.startsWith('out_bcd')).nextSibling.firstChild"
        self.browser.run(
            f"const box = {canvas}.getBoundingClientRect();"
            f"{canvas}.dispatchEvent(new MouseEvent('click', {{clientX: box.left + 3, clientY: box.top + 3, bubbles: true}}))"
        )
        origin = self.browser.run("return document.querySelector('.origin').textContent")
        self.assertRegex(origin, r"^out_bcd\[0, 0\] = .*, written by lane 0 of warp 0\.")
        self.assertIn("128 numbers of in_bcd, from in_bcd[0, 0] to in_bcd[0, 127]", origin)

    def test_without_script_there_is_a_moment_and_the_costs(self) -> None:
        browser = Browser(script=False)
        try:
            browser.resize(390)
            browser.open("kernels/layernorm.html")
            shown = browser._request("POST", "/element", {"using": "css selector", "value": "#kernels svg"})
            self.assertTrue(shown)
            browser.element("table.costs")
            browser.keep("kernels-no-script")
        finally:
            browser.close()
