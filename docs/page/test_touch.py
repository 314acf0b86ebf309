"""The interactive pictures: the code that computes them, and the pictures without script."""

from __future__ import annotations

import base64
import ctypes
import math
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import svg
import touch
import touch_bell
import touch_pictures as pictures
import touch_row
from test_pictures import chapter

ROOT = Path(__file__).resolve().parents[2]
MOST_C, MOST_K = 16, 2


def sections(wasm: bytes) -> set[int]:
    """The numbers of the sections of a WebAssembly module; section 2 holds the imports."""
    found, at = set(), 8
    while at < len(wasm):
        found.add(wasm[at])
        size = shift = 0
        while True:
            at += 1
            size |= (wasm[at] & 127) << shift
            shift += 7
            if wasm[at] < 128:
                break
        at += 1 + size
    return found


class Layers(unittest.TestCase):
    """The interface of a page with the layers of plain/, compiled for this machine and called in the same way."""

    @classmethod
    def setUpClass(cls) -> None:
        compiler = shutil.which("g++") or shutil.which("c++")
        if not compiler:
            raise unittest.SkipTest("no C++ compiler (g++)")
        cls.folder = tempfile.TemporaryDirectory()
        library = Path(cls.folder.name) / "layers.so"
        sources = sorted({path for layer in touch.LAYERS for path in touch.sources(layer)})
        warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
        command = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", "-DABH_EXTRAS=1", *warnings, "-Isrc", "-I.", *sources]
        subprocess.run([*command, "-o", str(library)], cwd=ROOT, check=True)
        cls.plain = ctypes.CDLL(str(library))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def array(self, name: str, count: int = MOST_C):
        return (ctypes.c_double * count).in_dll(self.plain, name)

    def give(self, **arrays: list[float]) -> None:
        for name, values in arrays.items():
            self.array(name, len(values))[:] = values

    def assertClose(self, found, expected) -> None:
        self.assertEqual(len(list(found)), len(list(expected)))
        for one, other in zip(found, expected):
            self.assertTrue(one == other or math.isclose(one, other, abs_tol=1e-12), (list(found), list(expected)))

    def test_worked_example(self) -> None:
        self.give(logit_c=[0, math.log(3), math.log(4)], x_ck=[4, 0, 0, 4, 2, 2], d_out_ck=[1, 0, 0, 4, 4, 0])
        self.plain.forward(3, 2, 0)
        self.plain.backward(3, 2, 0)
        self.assertClose(self.array("out_ck", 6), [4, 0, 1, 3, 1.5, 2.5])
        self.assertClose(self.array("d_logit_c", 3), [-1.75, 0.75, 1])
        self.plain.weights(3, 2, 0)
        self.assertClose(self.array("weight_cc", 9), [1, 0, 0, 1 / 4, 3 / 4, 0, 1 / 8, 3 / 8, 1 / 2])

    def test_picture_of_logits_as_it_stands(self) -> None:
        logit, x, d_out = (pictures.LOGIT[name] for name in ("logit", "x", "d_out"))
        self.give(logit_c=logit, x_ck=x, d_out_ck=d_out)
        self.plain.forward(8, 1, 0)
        self.plain.backward(8, 1, 0)
        expected = [pictures.weights(logit, 0, c) for c in range(8)]
        self.assertClose(self.array("out_ck", 8), [pictures.average(weight, x) for weight in expected])
        self.assertClose(self.array("d_logit_c", 8), pictures.gradients(logit, x, d_out))
        self.plain.weights(8, 1, 0)
        self.assertClose(self.array("weight_cc", 64), sum(expected, []))

    def test_worked_example_of_attention(self) -> None:
        # Its last row. Both channels of the values have the same weights, so their gradients add up.
        d_score = [0.0] * 3
        for value, out in (([3, 0, 1], 1), ([0, 3, 4], 3)):
            self.give(score_s=[0, math.log(2), math.log(3)], value_s=value, d_out_row=[6])
            self.plain.row(3)
            self.assertClose(self.array("weight_s", 3), [1 / 6, 1 / 3, 1 / 2])
            self.assertClose(self.array("out_row", 1), [out])
            d_score = [sum(pair) for pair in zip(d_score, self.array("d_score_s", 3))]
        self.assertClose(d_score, [-1, -2, 3])

    def test_picture_of_a_row_as_it_stands(self) -> None:
        score, value, d_out = (touch_row.ROW[name] for name in ("score", "value", "d_out"))
        self.give(score_s=score, value_s=value, d_out_row=[d_out])
        self.plain.row(8)
        weight = pictures.weights(score, 0, 7)
        self.assertClose(self.array("weight_s", 8), weight)
        self.assertClose(self.array("out_row", 1), [pictures.average(weight, value)])
        self.assertClose(self.array("d_score_s", 8), touch_row.gradients(weight, value, d_out))

    def test_picture_of_a_regression_as_it_stands(self) -> None:
        x, y, query, width = touch_bell.BELL["x"], touch_bell.BELL["y"], 3.0, 1 / touch_bell.BELL["deviation"]
        self.give(key_s=x, answer_s=y, query_c=[query, 0.0, 5.0], width=[width])
        self.plain.regress(3, len(x))
        self.plain.learn(len(x))
        shares = touch_bell.shares(query, x, width)
        self.assertClose(self.array("counts_s", len(x)), shares)
        answers = [pictures.average(touch_bell.shares(at, x, width), y) for at in (query, 0, 5)]
        self.assertClose(self.array("answer_c", 3), answers)
        self.assertClose(self.array("loss", 1), [touch_bell.loss(x, y, width)])
        self.assertAlmostEqual(self.array("d_width", 1)[0], touch_bell.d_width(x, y, width), delta=1e-9)

    def test_every_window(self) -> None:
        logit, x = pictures.WINDOW["logit"], pictures.WINDOW["x"]
        self.give(logit_c=logit, x_ck=x)
        for window in range(1, 17):
            self.plain.forward(16, 1, window)
            self.plain.weights(16, 1, window)
            weight = list(self.array("weight_cc", 256))
            for last in range(window - 1, 16):
                with self.subTest(window=window, last=last):
                    self.plain.states(1, window, last)
                    first, block = last - window + 1, last // window * window
                    ends = ((first, block - 1), (block, last), (first, last))
                    expected = [number for end in ends for number in vars(pictures.state(logit, x, *end)).values()]
                    self.assertClose(self.array("states_of", 9), expected)
                    self.assertClose(weight[16 * last : 16 * last + 16], pictures.weights(logit, first, last))

    def test_beginning_of_a_sequence(self) -> None:
        self.give(logit_c=[0.0, 1.0, 2.0, 0.0], x_ck=[1.0, 2.0, 3.0, 4.0])
        self.plain.forward(4, 1, 3)
        self.plain.states(1, 3, 1)
        nothing, seen = pictures.state([], [], 0, -1), pictures.state([0, 1], [1, 2], 0, 1)
        expected = [number for part in (nothing, seen, seen) for number in vars(part).values()]
        self.assertClose(self.array("states_of", 9), expected)


class Script(unittest.TestCase):
    """Files that a page loads."""

    @classmethod
    def setUpClass(cls) -> None:
        if not touch.has_tools():
            raise unittest.SkipTest("no tools for WebAssembly (Debian: clang lld wasi-libc libc++-dev-wasm32)")
        cls.wasm = {layer: touch.compiled(ROOT, layer) for layer in touch.LAYERS}

    def test_needs_nothing_of_the_browser(self) -> None:
        for wasm in self.wasm.values():
            self.assertTrue(wasm.startswith(b"\0asm"))
            self.assertNotIn(2, sections(wasm), "the module has imports")

    def test_holds_the_module_and_is_the_same_each_time(self) -> None:
        for layer, wasm in self.wasm.items():
            script = touch.script(ROOT, layer)
            self.assertEqual(base64.b64decode(re.search(r'atob\("([^"]*)"\)', script).group(1)), wasm)
            self.assertNotIn("@", script)
            self.assertNotIn(str(ROOT).encode(), wasm)

    def test_exports_are_those_of_the_source(self) -> None:
        names = {}
        for layer, wasm in self.wasm.items():
            names[layer] = touch.exported((ROOT / touch.interface(layer)).read_text(encoding="utf-8"))
            for name in names[layer]:
                self.assertIn(name.encode(), wasm)
        known = sum(names.values(), [])
        self.assertEqual(len(known), len(set(known)))
        script = (touch.HERE / "touch.js").read_text(encoding="utf-8")
        for name in re.findall(r"(?<=plain\.)\w+(?=\()|(?<=array\(\")\w+", script):
            self.assertIn(name, known)


class Figures(unittest.TestCase):
    """The drawings without script."""

    def drawings(self):
        for figure in touch.figures(True):
            yield figure, re.search(r"<svg.*</svg>", figure.draw(), re.DOTALL).group()

    def test_stand_under_headings_of_their_chapter(self) -> None:
        for figure, _ in self.drawings():
            self.assertRegex(chapter(figure.page), rf"(?m)^#+ {re.escape(figure.after)}$")

    def test_have_a_name_and_fit_a_telephone(self) -> None:
        for _, drawing in self.drawings():
            root = xml.fromstring(drawing)
            self.assertEqual([child.tag for child in root][:2], ["title", "desc"])
            self.assertLessEqual(float(root.get("width")), 360)

    def test_text_can_be_read(self) -> None:
        for _, drawing in self.drawings():
            self.assertGreaterEqual(min(map(float, re.findall(r'font-size="([^"]*)"', drawing))), svg.SMALL)
            boxes = svg.text_boxes(drawing)
            for number, box in enumerate(boxes):
                self.assertTrue(box.left >= 0 and box.right <= 360, box)
                for other in boxes[number + 1 :]:
                    self.assertFalse(box.overlaps(other), (box, other))

    def test_colours_are_those_of_the_page(self) -> None:
        for _, drawing in self.drawings():
            for colour in re.findall(r'(?:fill|stroke)="([^"]*)"', drawing):
                self.assertIn(colour, {"none", *(f"var(--{name})" for name in svg.VARIABLES)})

    def test_numbers_are_printed_as_the_script_does(self) -> None:
        for value, text in ((-0.004, "0.00"), (-1.25, "−1.25"), (-math.inf, "−∞"), (2, "2.00")):
            self.assertEqual(pictures.decimal(value), text)


if __name__ == "__main__":
    unittest.main()
