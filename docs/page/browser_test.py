"""The written site in a real browser: python3 docs/page/browser_test.py [build/site [SCREENSHOTS]].

Needs Chromium and its driver (Debian: chromium, chromium-driver), and opens the pages as files by the WebDriver
protocol. Writes pictures of some pages into the folder SCREENSHOTS, if it is given. The tests of the lab and of the
kernel pages (browser_lab_test.py, browser_kernels_test.py) are run with these.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import sys
import time
import unittest
import urllib.request
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SITE = Path(__file__).resolve().parents[2] / "build/site"
SCREENSHOTS: Path | None = None
WIDTHS = (390, 1280, 1920)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # key of an element reference in the WebDriver standard


class Browser:
    """A browser without a window."""

    def __init__(self, script: bool = True, dark: bool = False) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
        self._base = f"http://127.0.0.1:{port}"
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-prefers-reduced-motion"]
            + (["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []),
            "prefs": {} if script else {"profile.managed_default_content_settings.javascript": 2},
        }
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        for _ in range(100):
            try:
                answer = self._request("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
                break
            except ConnectionError:
                time.sleep(0.1)
        else:
            raise RuntimeError("chromedriver does not answer")
        self._base += "/session/" + answer["sessionId"]

    def _request(self, method: str, path: str, body: dict | None = None):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error
        except urllib.error.URLError as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        self._request("DELETE", "")
        self._driver.terminate()
        self._driver.wait()

    def open(self, page: str, fragment: str = "") -> None:
        address = (SITE / page).as_uri()
        if self.address() == address:  # a page is not loaded again for another fragment
            self._request("POST", "/url", {"url": "about:blank"})
        self._request("POST", "/url", {"url": address + ("#" + fragment if fragment else "")})

    def address(self) -> str:
        """Address of the page, without fragment."""
        return self._request("GET", "/url").split("#")[0]

    def run(self, script: str, *arguments):
        return self._request("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def resize(self, width: int, height: int = 1000) -> None:
        """Sets the size by the developer tools' protocol: a window cannot be narrower than about 500 pixels."""
        parameters = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._request("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": parameters})

    def actions(self, kind: str, actions: list[dict]) -> None:
        self._request("POST", "/actions", {"actions": [{"type": kind, "id": kind, "actions": actions}]})

    def element(self, selector: str) -> dict:
        return self._request("POST", "/element", {"using": "css selector", "value": selector})

    def point(self, selector: str, click: bool = False) -> None:
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}] if click else []
        self.actions("pointer", [{"type": "pointerMove", "origin": self.element(selector), "x": 0, "y": 0}] + press)

    def press(self, key: str) -> None:
        self.actions("key", [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}])

    def printed(self) -> bytes:
        """Returns the page as PDF in A4."""
        return base64.b64decode(self._request("POST", "/print", {"page": {"width": 21.0, "height": 29.7}}))

    def choose(self, pane: str) -> None:
        self.run("document.querySelector(`.Panes button[value=${arguments[0]}]`).click()", pane)

    def messages(self) -> list[str]:
        return [entry["message"] for entry in self._request("POST", "/se/log", {"type": "browser"})]

    def keep(self, name: str) -> None:
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            (SCREENSHOTS / f"{name}.png").write_bytes(base64.b64decode(self._request("GET", "/screenshot")))


PANES = ("plain", "cpu", "cuda")
SHOWN = ("index.html", "story.html", "conventions.html", "layers/pooling.html", "layers/layernorm.html", "blocks/additive.html")
LIT = "return [...document.querySelectorAll('.lit')].map((place) => place.id).sort()"
# All places of a tag on the page.
PLACES = "return [...document.querySelectorAll(`[data-t~='${arguments[0]}']`)].map((place) => place.id).sort()"
SETTLE = "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(scrollY))))"
UNDER_THE_BAR = """return document.querySelector(arguments[0]).getBoundingClientRect().top
  < document.querySelector('header').getBoundingClientRect().bottom"""
VISIBLE = """const box = document.querySelector(arguments[0]).getBoundingClientRect();
const frame = document.querySelector(arguments[0]).closest('.beside .listing')?.getBoundingClientRect();
return box.bottom > (frame?.top ?? 0) && box.top < (frame?.bottom ?? innerHeight) && box.top < innerHeight && box.bottom > 0"""


class InBrowser(unittest.TestCase):
    """Tests that share one browser. script: true if scripts run. needs: a file of the site, else the tests skip."""

    browser: Browser
    script, needs = True, ""

    @classmethod
    def setUpClass(cls) -> None:
        if not (SITE / cls.needs).exists():
            raise unittest.SkipTest(f"the site has no {cls.needs}: no tools for WebAssembly where it was written")
        cls.browser = Browser(script=cls.script)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.close()


# Measures of a page: its width, equations without height, the state of its fonts, tables that are too wide.
MEASURES = """return document.fonts.ready.then(() => [document.documentElement.scrollWidth,
  [...document.querySelectorAll("math")].filter((math) => math.checkVisibility() && !(math.getBoundingClientRect().height > 4)).length,
  [...document.fonts].map((font) => font.status), document.querySelectorAll("math").length,
  [...document.querySelectorAll(".wide > table:not(.costs)")].filter((table) => table.offsetWidth > innerWidth - 32).length])"""
# Opens all folds. Lines of excerpts that are cut off; for each line that computes something, true if it needs one line.
EXCERPTS = """document.querySelectorAll("details").forEach((fold) => (fold.open = true));
  const items = [...document.querySelectorAll(".excerpt li")];
  return [items.filter((item) => item.scrollWidth > item.clientWidth + 1).length, items
    .filter((item) => item.querySelector("mark"))
    .map((item) => item.getBoundingClientRect().height < 1.5 * parseFloat(getComputedStyle(item).lineHeight))]"""


@dataclass
class Measured:
    """A page as it is laid out at one width of the window."""

    wide: int
    flat: int
    fonts: list[str]
    equations: int
    tables: int
    messages: list[str]
    excerpts: tuple[int, list[bool]]  # lines cut off; marked lines that need one line


class WithScript(InBrowser):
    """Every page at three widths, with all actions of pointer and keyboard."""

    @classmethod
    @cache
    def measured(cls, page: str, width: int) -> Measured:
        """Loads a page and measures it. Several tests use the measures, and loading takes most of their time. A page of
        a file is loaded once for all widths, because its script does nothing that depends on the width."""
        browser = cls.browser
        browser.resize(width)
        if not page.startswith("files/") or browser.address() != (SITE / page).as_uri():
            browser.open(page)
        measures = browser.run(MEASURES)
        messages = browser.messages()
        if page in SHOWN:
            browser.keep(f"{page.replace('/', '-')[:-5]}-{width}")
        excerpts = browser.run(EXCERPTS) if page.startswith("layers/") else (0, [])
        return Measured(*measures, messages, excerpts)

    def test_every_page_at_every_width(self) -> None:
        pages = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")}
        pages -= {"lab.html"}  # grows while it is open, and has tests of its own
        files = sorted(page for page in pages if page.startswith("files/"))
        in_turn = [(page, width) for page in files for width in WIDTHS]
        in_turn += [(page, width) for width in WIDTHS for page in sorted(pages.difference(files))]
        for page, width in in_turn:
            with self.subTest(page=page, width=width):
                measured = self.measured(page, width)
                self.assertLessEqual(measured.wide, width, "the page is wider than the window")
                self.assertEqual(measured.flat, 0, "equations without height")
                self.assertEqual(measured.fonts, ["loaded" if measured.equations else "unloaded"])
                self.assertEqual(measured.messages, [])

    def test_index_begins_with_how_to_run_it_and_where_to_begin(self) -> None:
        places = """return [document.querySelector("pre"), document.querySelector("li"), document.querySelector(".map svg")].map(
            (place) => place.getBoundingClientRect()).map(({top, left, right}) => [top + scrollY, left, right])"""
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("index.html")
            (run, _, _), (first, _, end), (map_top, map_left, _) = self.browser.run(places)
            self.assertLess(run, first)
            self.assertLess(first, 640)
            if width < 1024:
                self.assertGreater(map_top, first)
            else:
                self.assertGreaterEqual(map_left, end)
                self.assertLess(map_top, 600)

    def test_lines_of_the_story_face_each_other(self) -> None:
        boxes = """return [...document.querySelectorAll('.pairs section')].map((side) => {
            const {top, bottom, left, right} = side.getBoundingClientRect();
            return [side.className, top, bottom, left, right];
        })"""
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("story.html")
            sides = self.browser.run(boxes)
            self.assertEqual(len(sides), 36)
            for forward, backward in zip(sides[::2], sides[1::2], strict=True):
                self.assertEqual((forward[0], backward[0]), ("forward", "backward"))
                if width < 960:
                    self.assertEqual(backward[3], forward[3])
                    self.assertGreater(backward[1], forward[2])
                else:
                    self.assertEqual(backward[1], forward[1])
                    self.assertGreater(backward[3], forward[4])

    def test_a_line_of_the_story_leads_to_its_equation_and_its_loop(self) -> None:
        self.browser.resize(1280)
        for link, place in (("span a", "figure[id='additive.4']"), ("p > a", "#plain li[data-t~='5']")):
            self.browser.open("story.html")
            self.browser.point(f"section[id='forward-additive.4'] {link}", click=True)
            self.browser.run(SETTLE)
            self.assertTrue(self.browser.run(VISIBLE, place), place)

    def test_pointer_lights_every_place_of_a_tag(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/layernorm.html")
        self.browser.point("figure[data-t='2'] .math")
        self.assertEqual(self.browser.run(LIT), self.browser.run(PLACES, "2"))
        self.assertGreaterEqual(len(self.browser.run(LIT)), 4)
        self.browser.point(".beside li[data-t='4']")
        self.assertEqual(self.browser.run(LIT), self.browser.run(PLACES, "4"))

    def test_click_on_an_equation_brings_its_lines(self) -> None:
        self.browser.resize(1280)
        for pane in PANES:
            self.browser.open("layers/causal_conv.html")
            self.browser.choose(pane)
            self.browser.point("figure[data-t='3'] .math", click=True)
            self.assertTrue(self.browser.run(VISIBLE, f"#{pane} li[data-t~='3']"), pane)
            self.assertTrue(self.browser.run(VISIBLE, "figure[data-t='3']"))
        self.browser.choose("plain")

    def test_click_on_a_line_brings_its_equation(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/causal_conv.html")
        self.browser.choose("cuda")
        for _ in range(2):  # the page scrolls, the listings follow, and the line stays in its place
            self.browser.run("document.querySelector('#cuda li[data-t~=\"3\"]').scrollIntoView({block: 'center'})")
            self.browser.run(SETTLE)
        self.browser.point("#cuda li[data-t~='3']", click=True)
        self.assertTrue(self.browser.run(VISIBLE, "figure[data-t='3']"))
        self.assertEqual(self.browser.run(LIT), self.browser.run(PLACES, "3"))
        self.browser.choose("cpu")
        self.assertTrue(self.browser.run(VISIBLE, "#cpu li[data-t~='3']"))
        self.browser.choose("plain")

    def test_panes(self) -> None:
        shown = "return [...document.querySelectorAll('.listing')].filter((one) => one.checkVisibility()).map((one) => one.id)"
        pressed = "return document.querySelector('.Panes [aria-pressed=true]').textContent"
        for width, beside in ((1280, []), (1920, ["plain"])):
            self.browser.resize(width)
            self.browser.open("layers/layernorm.html")
            self.assertEqual(self.browser.run(shown), ["plain"], "the plain loops must be shown first")
            self.assertEqual(self.browser.run(pressed), "Plain loops")
            for pane in ("cpu", "cuda"):
                self.browser.choose(pane)
                self.assertEqual(self.browser.run(shown), beside + [pane])
            self.browser.open("layers/gelu.html")
            self.assertEqual(self.browser.run(shown), beside + ["cuda"], "the choice of the device was lost")
            self.assertEqual(self.browser.run(pressed), "GPU")
            self.browser.point("figure[data-t='3'] .lines span:nth-child(2) a", click=True)
            self.browser.run(SETTLE)
            self.assertEqual(self.browser.run(shown), beside + ["cpu"], "a link to a line must switch the device")
            self.assertTrue(self.browser.run(VISIBLE, "#cpu li:target"))
            self.assertTrue(self.browser.run(VISIBLE, "figure[data-t='3']"), "the equation is no longer visible")
            self.browser.choose("plain")
            self.browser.point("figure[data-t='3'] .lines span:nth-child(2) a", click=True)  # the same link once more
            self.browser.run(SETTLE)
            self.assertTrue(self.browser.run(VISIBLE, "#cpu li:target"))
            self.browser.choose("plain")
        self.browser.resize(390)
        self.browser.open("layers/layernorm.html")
        self.assertEqual(self.browser.run(shown), list(PANES), "a single column must show all devices")

    def test_panes_open_where_something_is_computed(self) -> None:
        self.browser.resize(1280)
        for page in ("layernorm", "pooling", "attention"):
            self.browser.open(f"layers/{page}.html")
            for pane in PANES:
                self.browser.choose(pane)
                first = self.browser.run(
                    "const pane = document.getElementById(arguments[0]);"
                    "return (pane.querySelector(\"li[data-t~='1']\") ?? pane.querySelector('li[data-t]')).id",
                    pane,
                )
                self.assertTrue(self.browser.run(VISIBLE, f"#{first}"), (page, pane))
            self.browser.choose("plain")

    def test_lines_behind_a_gap_have_their_numbers(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/pooling.html")
        numbers = """return [...document.querySelectorAll("#cuda .gap + li")].map((li) => [li.value, getComputedStyle(li).counterSet,
            li.id, li.nextSibling.id, li.nextSibling.className])"""
        for value, drawn, name, following, kind in self.browser.run(numbers):
            self.assertEqual(drawn, f"n {value}")
            self.assertRegex(name, rf"^g(\d+-)?{value}$")
            self.assertTrue(kind == "gap" or following.endswith(str(value + 1)), following)

    def test_panes_are_never_stale(self) -> None:
        """Every equation brings the matching line of every device into view, in whole and in partial listings."""
        self.browser.resize(1280)
        self.browser.open("layers/pooling.html")
        stale = self.browser.run(
            """const stale = [];
            for (const pane of arguments[0]) {
              document.querySelector(`.Panes button[value=${pane}]`).click();
              const listing = document.getElementById(pane);
              for (const figure of document.querySelectorAll("figure[data-t]")) {
                if (pane != "plain" && figure.innerText.includes("a definition")) continue;
                figure.querySelector(".math").click();
                const line = listing.querySelector(`li[data-t~="${figure.dataset.t}"].lit`)?.getBoundingClientRect();
                const {top, bottom} = listing.getBoundingClientRect();
                if (!line || line.bottom <= top || line.top >= bottom) stale.push(pane + " " + figure.id);
              }
            }
            document.querySelector(".Panes button").click();
            return stale""",
            PANES,
        )
        self.assertEqual(stale, [])

    def test_excerpts_fit(self) -> None:
        """No line of an excerpt is cut off, and few of the lines that compute something need a second line."""
        for width, least in ((390, 0), (1280, 0.95), (1920, 0.95)):
            fits = []
            for page in sorted(SITE.glob("layers/*.html")):
                cut, marked = self.measured(f"layers/{page.name}", width).excerpts
                self.assertEqual(cut, 0, page.name)
                fits += marked
            self.assertGreater(len(fits), 400)
            self.assertGreaterEqual(sum(fits) / len(fits), least, width)

    def test_tables_of_chapters_fit(self) -> None:
        for page in sorted([*SITE.glob("layers/*.html"), *SITE.glob("blocks/*.html")]):
            self.assertEqual(self.measured(page.relative_to(SITE).as_posix(), 390).tables, 0, page.name)

    def test_what_is_cut_off_says_so(self) -> None:
        self.browser.resize(390)
        self.browser.open("blocks/leap.html")
        cut, ground = self.browser.run(
            """const cut = [...document.querySelectorAll(".math")].filter((one) => one.scrollWidth > one.clientWidth + 1);
            return [cut.length, cut.map((one) => getComputedStyle(one).backgroundAttachment)]"""
        )
        self.assertGreater(cut, 0, "no equation is too long here: use another page in this test")
        self.assertEqual(set(ground), {"local, local, scroll, scroll"})

    def test_listings_follow_reading_unless_told_not_to(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/causal_conv.html")
        self.browser.choose("cpu")
        top = "window.scrollTo(0, document.querySelector('figure[data-t=\"3\"]').offsetTop)"
        self.browser.run(top)
        self.browser.run(SETTLE)
        self.assertTrue(self.browser.run(VISIBLE, "#cpu li[data-t~='3']"))
        self.browser.run("window.scrollTo(0, 0)")
        self.browser.run(SETTLE)
        self.browser.run("document.querySelector('.Listings').click()")
        self.browser.run("document.querySelector('#cpu').scrollTop = 0")
        self.browser.run(top)
        self.browser.run(SETTLE)
        self.assertEqual(self.browser.run("return document.querySelector('#cpu').scrollTop"), 0)
        self.browser.run("document.querySelector('.Listings').click()")
        self.browser.choose("plain")

    def test_deep_links(self) -> None:
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("layers/pooling.html", "pooling.8")
            self.assertTrue(self.browser.run(VISIBLE, "figure[data-t='8']"), width)
            self.assertFalse(self.browser.run(UNDER_THE_BAR, "figure[data-t='8']"), width)
            self.assertEqual(self.browser.run(LIT), self.browser.run(PLACES, "8"))
            line = self.browser.run("return document.querySelector('#cuda li[data-t~=\"8\"]').id")
            self.browser.open("layers/pooling.html", line)
            self.assertTrue(self.browser.run(VISIBLE, f"#{line}"), width)
            plain = self.browser.run("return document.querySelectorAll('#cuda li:not([data-t], .gap)')[40].id")
            self.browser.open("layers/pooling.html", plain)
            self.browser.run(SETTLE)
            self.assertTrue(self.browser.run(VISIBLE, f"#{plain}:target"), width)

    def test_a_line_in_the_address_stays_until_the_reader_moves(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/pooling.html")
        line = self.browser.run("return document.querySelector('#cuda li[data-t~=\"11\"]').id")
        self.browser.open("layers/pooling.html", line)
        elsewhere = "window.scrollTo(0, document.querySelector('figure[data-t=\"5\"]').offsetTop)"
        self.browser.run(elsewhere)  # as the browser itself may: it scrolls every box that contains the line
        self.browser.run(SETTLE)
        self.assertTrue(self.browser.run(VISIBLE, f"#{line}"))
        self.browser.press("\ue008")  # Shift
        self.browser.run("window.scrollBy(0, 1)")
        self.browser.run(SETTLE)
        self.assertTrue(self.browser.run(VISIBLE, "#cuda li[data-t~='5']"))

    def test_focus_lights_and_tab_goes_in_order(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/layernorm.html")
        seen = []
        for _ in range(60):
            self.browser.press("\ue004")
            seen.append(
                self.browser.run(
                    "const at = document.activeElement, style = getComputedStyle(at);"
                    "return [at.textContent.slice(0, 30), at.getAttribute('href') ?? '', style.outlineStyle]"
                )
            )
        texts = [text for text, _, _ in seen]
        self.assertEqual(texts[0], "Attention by Hand")
        self.assertLess(texts.index("(layernorm.1)"), texts.index("(layernorm.2)"))
        self.assertTrue(all(outline != "none" for _, _, outline in seen), "focus cannot be seen")
        self.browser.run("document.querySelector('figure[data-t=\"3\"] .tag').focus()")
        self.assertEqual(self.browser.run(LIT), self.browser.run(PLACES, "3"))

    def test_colours(self) -> None:
        paper = "return getComputedStyle(document.body).backgroundColor"
        self.browser.resize(1280)
        self.browser.open("layers/layernorm.html")
        shown = set()
        for _ in range(3):
            self.browser.run("document.querySelector('.Colours').click()")
            name = self.browser.run("return document.querySelector('.Colours').textContent")
            shown.add((name, self.browser.run(paper)))
        colours = dict(shown)
        self.assertNotEqual(colours["Colours: light"], colours["Colours: dark"])
        self.browser.run("document.querySelector('.Colours').click(); document.querySelector('.Colours').click()")
        self.browser.open("blocks/ffn.html")
        self.browser.keep("ffn-dark")
        self.assertEqual(self.browser.run(paper), colours["Colours: dark"], "the choice was not remembered")
        self.browser.run("document.querySelector('.Colours').click()")

    def test_copied_lines_have_no_numbers(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/layernorm.html")
        select = "getSelection().selectAllChildren(document.querySelector('#plain .code')); return getSelection().toString()"
        copied = self.browser.run(select)
        source = (SITE.parents[1] / "plain/layernorm.cpp").read_text(encoding="utf-8")
        self.assertEqual([line.rstrip() for line in copied.strip().split("\n")], source.strip().split("\n"))

    def test_print(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/layernorm.html")
        media = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
        self.browser._request("POST", "/goog/cdp/execute", media)
        shown = "return [...document.querySelectorAll(arguments[0])].filter((place) => place.checkVisibility()).length"
        self.assertEqual(self.browser.run(shown, "header, footer, .listing, .contents, figure details"), 0)
        self.assertEqual(self.browser.run(shown, "figure.equation > .excerpt"), 6)
        breaks = "return getComputedStyle(document.querySelector(arguments[0])).breakInside"
        self.assertEqual((self.browser.run(breaks, ".equation"), self.browser.run(breaks, ".math")), ("auto", "avoid"))
        media["params"]["media"] = ""
        self.browser._request("POST", "/goog/cdp/execute", media)

    def test_printed_pages(self) -> None:
        """Few sheets: boxes break across pages, code of the CPU and the GPU stays folded, and folds of the text are
        open."""
        for page, most in (("index", 5), ("layers/layernorm", 8), ("layers/pooling", 15)):
            self.browser.open(f"{page}.html")
            sheets = len(re.findall(rb"/Type\s*/Page\b", self.browser.printed()))
            self.assertGreater(sheets, 1)
            self.assertLessEqual(sheets, most, page)

    def test_folds_of_a_chapter_open_where_a_link_leads_into_them_and_in_print(self) -> None:
        opened = "return [...document.querySelectorAll('.fold')].map((fold) => fold.open)"
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("layers/layernorm.html")
            closed = self.browser.run(opened)
            self.assertTrue(closed, "this page has no fold: use another page in this test")
            self.assertFalse(any(closed))
            high = self.browser.run("return document.querySelector('.fold > summary').getBoundingClientRect().height")
            self.assertGreater(high, 36)
            self.browser.run("document.querySelector('.fold').lastElementChild.id = 'here'; location.hash = '#here'")
            self.browser.run(SETTLE)
            self.assertTrue(self.browser.run(opened)[0])
            self.browser.open("layers/layernorm.html")
            self.browser.run("dispatchEvent(new Event('beforeprint'))")
            self.assertTrue(all(self.browser.run(opened)))
            self.browser.run("dispatchEvent(new Event('afterprint'))")
            self.assertFalse(any(self.browser.run(opened)))

    def test_files_are_folded_below_a_chapter_and_open_beside_it(self) -> None:
        opened = "return [...document.querySelectorAll('.listing > details')].map((file) => file.open)"
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("layers/pooling.html")
            self.assertEqual(set(self.browser.run(opened)), {width > 1000}, width)
        self.browser.resize(390)
        self.browser.open("layers/pooling.html")
        self.browser.point("figure[data-t='3'] .lines span:nth-child(2) a", click=True)
        self.browser.run(SETTLE)
        self.assertEqual(self.browser.run(opened).count(True), 1)
        self.assertTrue(self.browser.run(VISIBLE, "#cpu li:target"))
        self.browser.open("layers/pooling.html", "cuda")
        self.assertTrue(self.browser.run("return document.querySelector('#cuda details').open"))


class WithoutScript(InBrowser):
    """Links work without script, and all places of the tag in the address are highlighted."""

    script = False

    def test_target_lights_every_place_of_its_tag(self) -> None:
        self.browser.resize(1280)
        self.browser.open("layers/layernorm.html", "layernorm.2")
        self.assertFalse(self.browser.run("return document.documentElement.classList.contains('js')"))
        ground = "return [...document.querySelectorAll(arguments[0])].map((place) => getComputedStyle(place).backgroundColor)"
        lit = set(self.browser.run(ground, "[data-t~='2']"))
        self.assertEqual(len(lit), 1)
        self.assertFalse(lit & set(self.browser.run(ground, "[data-t]:not([data-t~='2'])")))

    def test_a_link_leads_to_its_line(self) -> None:
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("layers/pooling.html")
            self.browser.point("figure[data-t='9'] .lines span:nth-child(3) a", click=True)
            self.assertTrue(self.browser.run(VISIBLE, "#cuda li[data-t~='9']"), width)

    def test_a_gap_leads_to_the_whole_file_and_a_tag_back(self) -> None:
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("layers/pooling.html")
            self.browser.run("document.querySelectorAll('.listing details').forEach((file) => (file.open = true))")
            self.browser.point("#cpu .gap a", click=True)
            self.assertTrue(self.browser.run(VISIBLE, "li:target"), width)
            back = self.browser.run("return document.querySelector(\"li a[href*='#pooling.']\").getAttribute('href')")
            self.browser.point(f"li a[href='{back}']", click=True)
            self.assertTrue(self.browser.run(VISIBLE, "figure:target"), width)
            self.assertEqual(self.browser.run("return location.hash"), back[back.index("#") :])

    def test_all_code_stands_one_below_the_other(self) -> None:
        tops = """return [...document.querySelectorAll(".listing")].map((one) => {
          const box = one.getBoundingClientRect();
          return [box.top, box.height];
        });"""
        for width in WIDTHS:
            self.browser.resize(width)
            self.browser.open("layers/layernorm.html")
            boxes = self.browser.run(tops)
            self.assertEqual(len(boxes), 3)
            for (top, height), (below, _) in zip(boxes, boxes[1:], strict=False):
                if width > 1000:  # narrower: the files are closed
                    self.assertGreater(height, 500)
                self.assertGreaterEqual(below, top + height - 0.01)

    def test_no_button(self) -> None:
        self.browser.open("index.html")
        self.assertEqual(self.browser.run("return document.querySelectorAll('button').length"), 0)


class Dark(unittest.TestCase):
    """Dark colours if the system asks for them."""

    def test_follows_the_system(self) -> None:
        browser = Browser(dark=True)
        try:
            browser.resize(1280)
            browser.open("layers/pooling.html")
            ground = browser.run("return getComputedStyle(document.body).backgroundColor")
            self.assertLess(max(int(part) for part in ground[4:-1].split(",")), 80)
            browser.keep("pooling-dark")
        finally:
            browser.close()


def main() -> int:
    """Runs all tests of the site and of the lab; the last line counts them."""
    import browser_kernels_test
    import browser_lab_test
    import browser_test  # under the name by which the other tests import it

    if len(sys.argv) > 1:
        browser_test.SITE = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        browser_test.SCREENSHOTS = Path(sys.argv[2])
    tests = [unittest.defaultTestLoader.loadTestsFromModule(module) for module in (browser_test, browser_kernels_test, browser_lab_test)]
    result = unittest.TextTestRunner().run(unittest.TestSuite(tests))
    failed = len({str(test).split(" (page=")[0] for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
