"""The lab in a real browser; browser_test.py runs these with its own.

But for a newcomer's first ten seconds nothing here is timed: a network has so many steps to learn, and whoever waits gives
up where nothing goes on any more.
"""

from __future__ import annotations

import json
import time
import unittest

import browser_test
from browser_test import SETTLE, WIDTHS, Browser

PAGE = "lab.html"
SHIFT, TAB, ENTER, SPACE, UP = "\ue008", "\ue004", "\ue007", " ", "\ue013"
READY = "return !document.getElementById('head').hidden && document.getElementById('how-right').textContent !== ''"
STEP = "return +document.getElementById('state').textContent.match(/step (\\d+)/)?.[1]"
SCORE = "return parseFloat(document.querySelector('#how-right b')?.textContent ?? '0')"
STATE = "return document.getElementById('state').textContent"
LOSS = "return document.querySelector('#outputs .loss b')?.textContent"
FAULT = "return document.getElementById('fault').textContent"
PATIENCE = 400  # looks at a page on which nothing changes


def has_lab() -> bool:
    return (browser_test.SITE / "lab-engine.js").is_file()


class Lab(unittest.TestCase):
    """What a newcomer does, and what somebody does who stays."""

    browser: Browser

    @classmethod
    def setUpClass(cls) -> None:
        if not has_lab():
            raise unittest.SkipTest("the site has no lab-engine.js: no tools for WebAssembly where it was written")
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.close()

    def until(self, script: str, *arguments) -> None:
        """Waits until a script says yes, as long as the page goes on."""
        before, still = None, 0
        while still < PATIENCE:
            if self.browser.run(script, *arguments):
                return
            now = self.browser.run(STATE)
            before, still = now, still + 1 if now == before else 0
            time.sleep(0.1)
        self.fail(f"never: {script}; {self.browser.run(FAULT)}")

    def open(self, fragment: str = "", width: int = 1280) -> None:
        self.browser.resize(width)
        self.browser.open(PAGE, fragment)
        self.until(READY)

    def choose(self, name: str, value: str) -> None:
        self.browser.run(
            "const field = document.getElementById('settings').elements[arguments[0]]; field.value = arguments[1];"
            "field.dispatchEvent(new Event('change', {bubbles: true}))",
            name,
            value,
        )

    def train(self, steps: int) -> None:
        self.browser.run("document.getElementById('train').click()")
        self.until(f"{STEP} >= arguments[0]", steps)
        self.browser.run("document.getElementById('train').click()")
        # The last look and score are said when they are there.
        self.until("return document.getElementById('announced').textContent.startsWith('Step')")

    def test_a_sorter_learns_within_300_steps(self) -> None:
        self.open()
        first = self.browser.run(LOSS)
        self.browser.run("document.getElementById('train').click()")
        self.until(f"const step = (() => {{ {STEP} }})(), score = (() => {{ {SCORE} }})(); return score >= 90 || step >= 300")
        self.until(f"{SCORE} >= 90")
        self.assertLessEqual(self.browser.run(STEP), 325, "a score comes with the step that it is of")
        self.browser.keep("lab-trained")
        self.assertLess(float(self.browser.run(LOSS)), float(first))
        self.browser.run("document.getElementById('train').click()")
        self.assertEqual(self.browser.messages(), [])

    def test_a_newcomer_trains_within_ten_seconds(self) -> None:
        # Milliseconds since the page began, losses on the curve, their first and last height, and what is right of how
        # many steps.
        seen = """const path = document.querySelector('#curve path.loss')?.getAttribute('d') ?? '';
          const heights = path.split(/[ML]/).slice(1).map((point) => -point.split(' ')[1]);
          const right = document.querySelector('#how-right b')?.textContent;
          const scored = (document.querySelector('#curve path.score')?.getAttribute('d').split('L').length ?? 1) > 1;
          return [performance.now(), heights.length, heights[0], heights.at(-1), scored && right]"""
        for way, begin in (
            ("a click", lambda: self.browser.point("#train", click=True)),
            ("Enter", lambda: self.browser.press(ENTER)),
        ):
            with self.subTest(way=way):
                self.browser.resize(1280)
                self.browser.open(PAGE)
                begin()
                time_, losses, first, last, right = self.browser.run(seen)
                while losses < 30 or not right:
                    self.assertLess(time_, 10_000, "ten seconds are over")
                    time.sleep(0.05)
                    time_, losses, first, last, right = self.browser.run(seen)
                print(f"{way}: after {time_ / 1000:.1f} s {losses} losses, {right} of answers right")
                self.assertLess(last, first)
                self.assertRegex(right, r"^\d+ %$")
                self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))

    def test_fits_at_every_width(self) -> None:
        for width in WIDTHS:
            with self.subTest(width=width):
                self.open(width=width)
                self.train(3)
                for details in ("#inside details", "#backward details", "#losses"):
                    self.browser.run("for (const one of document.querySelectorAll(arguments[0])) one.open = true", details)
                self.browser.run(SETTLE)
                self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width)
                self.browser.run("scrollTo(0, 0)")
                self.browser.keep(f"lab-{width}")
                self.assertEqual(self.browser.messages(), [])

    def test_keyboard_alone(self) -> None:
        self.open()
        focused = (
            "const at = document.activeElement; return [at.name || at.id || at.textContent, getComputedStyle(at).outlineStyle]"
        )
        seen = []
        back = [{"type": "keyDown", "value": SHIFT}, {"type": "keyDown", "value": TAB}, {"type": "keyUp", "value": TAB}]
        while "task" not in seen and len(seen) < 20:
            name, outline = self.browser.run(focused)
            self.assertNotEqual(outline, "none", f"{name} has the focus, and nobody sees it")
            seen.append(name)
            self.browser.actions("key", [*back, {"type": "keyUp", "value": SHIFT}])
        self.assertEqual(seen[0], "train")
        self.assertEqual(
            [name for name in seen if name in ("task", "mixer", "layers", "heads", "channels")],
            ["channels", "heads", "layers", "mixer", "task"],
        )
        while self.browser.run(focused)[0] != "train" and len(seen) < 40:
            self.browser.press(TAB)
            seen.append("")
        self.browser.press(SPACE)
        self.until(f"{STEP} >= 2")
        self.browser.press(SPACE)
        self.until("return document.getElementById('train').ariaPressed === 'false'")
        self.browser.run("document.querySelector('.bigmap canvas').focus()")
        said = "return document.querySelector('.told .what').textContent"
        before = self.browser.run(said)
        self.browser.press(UP)
        self.assertNotEqual(self.browser.run(said), before)

    def test_every_control_has_a_name(self) -> None:
        self.open()
        self.browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        nameless = self.browser.run(
            "return [...document.querySelectorAll('#lab :is(button, input, select, textarea, canvas[tabindex])')]"
            ".filter((one) => !one.closest('[hidden]') && !(one.ariaLabel || one.labels?.length || one.textContent.trim()))"
            ".map((one) => one.outerHTML.slice(0, 80))"
        )
        self.assertEqual(nameless, [])

    def test_every_mixer_opens_and_takes_a_step(self) -> None:
        self.open()
        told = dict.fromkeys(("dot", "metric", "quadratic"), "attention") | dict.fromkeys(("additive", "leap", "average"), "pooling")
        told |= {"bahdanau": "bahdanau_attention", "transformer_xl": "relative_attention", "lsh": "lsh_attention"}
        names = self.browser.run("return [...document.querySelectorAll('[name=mixer] option')].map((option) => option.value)")
        for name in names[:-1]:
            with self.subTest(mixer=name):
                self.browser.open(PAGE, f"mixer={name}")
                self.until("return document.getElementById('how-right').textContent !== ''")
                self.assertEqual(self.browser.run("return [document.querySelector('[name=mixer]').value, scrollY]"), [name, 0])
                self.assertIn(
                    f"--mixer {name}" if name != "dot" else "--task sort",
                    self.browser.run("return document.getElementById('command').textContent"),
                )
                tags = self.browser.run("return [...document.querySelectorAll('.told .tag')].map((tag) => tag.textContent)")
                self.assertEqual({tag.strip("()").split(".")[0] for tag in tags}, {told[name]} if name in told else set())
                self.browser.run("document.getElementById('one').click()")
                self.until(f"{STEP} === 1")
                self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))
        self.assertGreater(len(names), 9)

    def test_a_mixer_a_layer(self) -> None:
        self.open()
        self.choose("mixer", "own")
        self.assertEqual(self.browser.run("return document.querySelectorAll('#mixers select').length"), 3)
        self.choose("mixer1", "additive")
        self.until("return document.getElementById('command').textContent.endsWith('--mixer dot,additive,dot')")
        self.until(READY)
        self.assertEqual(self.browser.run("return location.hash"), "#task=sort&mixer=dot,additive,dot")
        self.open("task=sort&mixer=dot,additive,dot&layers=3")
        self.assertTrue(
            self.browser.run("return document.getElementById('command').textContent.endsWith('--mixer dot,additive,dot')")
        )
        self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))

    def test_every_task_opens_and_takes_a_step(self) -> None:
        for task in ("text", "reviews", "digits"):
            with self.subTest(task=task):
                self.open(f"task={task}")
                self.browser.run("document.getElementById('one').click()")
                self.until(f"{STEP} === 1")
                self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))
                self.browser.keep(f"lab-{task}")

    def test_a_head_is_switched_off_and_on_again(self) -> None:
        self.open()
        self.train(20)
        before = self.browser.run(LOSS)
        self.browser.run("document.querySelectorAll('.modes input')[1].click()")
        self.until("return document.querySelector('#outputs .before')?.textContent === arguments[0]", before)
        self.assertNotEqual(self.browser.run(LOSS), before)
        self.browser.run("document.getElementById('untouch').click()")
        self.until("return !document.querySelector('#outputs .before')")
        self.assertEqual(self.browser.run(LOSS), before)
        self.assertEqual(self.browser.messages(), [])

    def test_a_logit_and_a_metric_are_moved(self) -> None:
        for mixer, slider in (("additive", ".sliders input"), ("metric", "input.entry")):
            with self.subTest(mixer=mixer):
                self.open(f"mixer={mixer}")
                before = self.browser.run(LOSS)
                self.browser.run(
                    "const slider = document.querySelector(arguments[0]); slider.value = slider.max;"
                    "slider.dispatchEvent(new Event('input', {bubbles: true}))",
                    slider,
                )
                self.until(f"const loss = (() => {{ {LOSS} }})(); return loss !== arguments[0]", before)
                self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))

    def test_memory_is_told_array_by_array(self) -> None:
        self.open()
        self.assertFalse(self.browser.run("return document.getElementById('memory').checkVisibility()"))
        self.browser.run(
            "const place = document.getElementById('memory').parentElement; place.open = true; place.scrollIntoView()"
        )
        rows = (
            "return [...document.querySelectorAll('#memory tr')]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent).join('; '))"
        )
        for mixer, array in (("dot", "key_bch"), ("additive", "q_bcd")):
            self.choose("mixer", mixer)
            self.until(f"return (() => {{ {rows} }})().includes(arguments[0])",
                       f"blocks.0.mixer.{array}; 64 × 11 × 48; float32; 132.0 kiB")  # fmt: skip
            self.assertIn("second moment of blocks.0.ffn.up_fd; 192 × 48; float32; 36.0 kiB", self.browser.run(rows))
            parts = self.browser.run("return [...document.querySelectorAll('#memory .part .name')].map((one) => one.textContent)")
            self.assertEqual(sorted(parts), ["activations", "gradients", "moments", "scratch", "weights"])
        self.assertRegex(
            self.browser.run("return document.querySelector('#memory .note').textContent"),
            r"^Total [\d.]+ MiB, counted as in a terminal: weights, gradients and moments [\d.]+ MiB, activations [\d.]+ MiB, scratch ",
        )
        self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))

    def test_a_fault_is_the_terminals_and_goes_away(self) -> None:
        self.open()
        self.choose("channels", "50")
        self.until(f"{FAULT} !== ''")
        self.assertIn("--heads", self.browser.run(FAULT))
        self.choose("channels", "24")
        self.until(f"{FAULT} === ''")
        self.assertIn("--channels 24", self.browser.run("return document.getElementById('command').textContent"))

    def test_a_digit_is_drawn_and_read(self) -> None:
        self.open("task=digits")
        shares = "return [...document.querySelectorAll('.classes .share')].map((one) => one.textContent)"
        before = self.browser.run(shares)
        self.assertEqual(len(before), 10)
        self.browser.run("document.querySelector('.pad').scrollIntoView({block: 'center'})")
        start = {"type": "pointerMove", "origin": self.browser.element(".pad"), "x": 0, "y": -50}
        stroke = [{"type": "pointerMove", "origin": "pointer", "x": 0, "y": 20, "duration": 30}] * 5
        self.browser.actions(
            "pointer", [start, {"type": "pointerDown", "button": 0}, *stroke, {"type": "pointerUp", "button": 0}]
        )
        self.until(
            f"return JSON.stringify((() => {{ {shares} }})()) !== arguments[0]", json.dumps(before, separators=(",", ":"))
        )
        self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))
        self.browser.keep("lab-drawn")

    def drop(self, name: str, content: str) -> None:
        """Drops a file onto the page. `content`: an expression of what is in it."""
        self.browser.run(
            "const data = new DataTransfer(); data.items.add(new File([" + content + "], arguments[0]));"
            "dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))",
            name,
        )

    def test_a_checkpoint_out_and_in(self) -> None:
        for task in ("sort", "text"):
            with self.subTest(task=task):
                self.open(f"task={task}")
                self.train(3)
                loss = self.browser.run(LOSS)
                self.browser.run(
                    "HTMLAnchorElement.prototype.click = function () { fetch(this.href).then((found) => found.blob()).then((blob) => { window.saved = blob; }); };"
                    "document.querySelector('#model .save').click()"
                )
                self.until("return window.saved instanceof Blob")
                self.drop("mine.safetensors", "saved")
                self.until("return document.getElementById('parameters').textContent.endsWith('mine.safetensors')")
                self.until(
                    "return document.querySelector('#outputs .loss b') !== null || document.querySelectorAll('#outputs li').length > 2"
                )
                self.assertEqual(
                    self.browser.run("return document.getElementById('command').textContent"),
                    "build/generate --checkpoint mine.safetensors",
                )
                self.assertTrue(self.browser.run("return document.getElementById('train').disabled"))
                if task == "sort":
                    self.assertEqual(self.browser.run(LOSS), loss, "the network that came back is not the one that went")
                self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))

    def test_a_broken_file_is_told_as_in_a_terminal(self) -> None:
        self.open()
        self.drop("broken.safetensors", "'no checkpoint'")
        self.until(f"{FAULT} !== ''")
        self.assertRegex(self.browser.run(FAULT), r"^\w+: broken\.safetensors: ")
        self.choose("task", "sort")
        self.until(f"{FAULT} === ''")

    def test_a_text_of_ones_own_is_learned_written_and_scored(self) -> None:
        self.open()
        self.drop("mine.txt", "'the cat sat on the mat and the dog sat on the log, '.repeat(40)")
        self.until(
            "return document.getElementById('lab').dataset.task === 'text' && document.getElementById('how-right').textContent !== ''"
        )
        self.train(3)
        self.browser.run(
            "const form = document.querySelector('#model .write'); form.elements.prompt.value = 'the '; form.elements.tokens.value = 20; form.requestSubmit()"
        )
        self.until("return document.querySelector('#model .write output').textContent.length >= 20")
        self.browser.run(
            "const form = document.querySelector('#model .score'); form.elements.text.value = 'the dog sat'; form.requestSubmit()"
        )
        self.until("return /nats per character/.test(document.querySelector('#model .score output').textContent)")
        self.assertEqual(
            len(self.browser.run("return [...document.querySelectorAll('.scored span')].map((one) => one.title)")), 10
        )
        self.assertEqual((self.browser.run(FAULT), self.browser.messages()), ("", []))

    def test_an_array_of_ones_own(self) -> None:
        self.open()
        self.browser.run(
            "const form = document.getElementById('own'); form.elements.input.value = '3 3 2 2 1 1'; form.requestSubmit()"
        )
        self.until("return document.querySelector('#arcs svg')?.ariaLabel.startsWith('3 3 2 2 1 1')")
        self.assertEqual(self.browser.run(FAULT), "")


class WithoutScript(unittest.TestCase):
    """Pictures, and the links."""

    def test_pictures_stay(self) -> None:
        browser = Browser(script=False)
        try:
            for width in WIDTHS:
                browser.resize(width)
                browser.open(PAGE)
                shown = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility()).length"
                self.assertEqual(browser.run(shown, ".live"), 0)
                self.assertGreaterEqual(browser.run(shown, ".still img"), 2)
                said = browser.run("return document.querySelector('.still').innerText")
                self.assertTrue(said.startswith("This page trains a network if JavaScript is on"), said)
                self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), width)
            browser.open("blocks/dot.html")
            browser.point(".rooms a", click=True)
            self.assertEqual(browser.run("return document.querySelector(':target').id"), "mixer=dot")
        finally:
            browser.close()


class Dark(unittest.TestCase):
    """Pictures to be looked at."""

    def test_dark(self) -> None:
        browser = Browser(dark=True)
        try:
            for width in WIDTHS:
                browser.resize(width)
                browser.open(PAGE)
                browser.run(SETTLE)
                ground = browser.run("return getComputedStyle(document.body).backgroundColor")
                self.assertLess(max(int(part) for part in ground[4:-1].split(",")), 80)
                browser.keep(f"lab-dark-{width}")
        finally:
            browser.close()
