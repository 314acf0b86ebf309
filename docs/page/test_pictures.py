"""The pictures of the page: complete, with a description, and in agreement with the source."""

import math
import posixpath
import re
import shutil
import tempfile
import unittest
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, product
from pathlib import Path
from unittest import mock

import svg
from fault import Fault
from pages import Site
from pictures import PICTURES, adamw, bahdanau_attention, chunks, constants_faults, cross_entropy, dropout, gelu, leap
from pictures import network, rescale, rotary
from sources import layout

ROOT = Path(__file__).resolve().parents[2]
SITE = Site(ROOT, [])
DOCUMENTS = {SITE.address_of_file(path): ROOT / path for path in layout.documents(ROOT)}
DRAWN = {picture.name: picture.draw() for picture in PICTURES}
TREES = [(picture, xml.fromstring(DRAWN[picture.name])) for picture in PICTURES]


def chapter(page: str) -> str:
    """Text of the document of a page."""
    return DOCUMENTS[f"{page}.html"].read_text(encoding="utf-8")


class EveryPicture(unittest.TestCase):
    def test_has_a_title_and_a_description(self):
        for picture, root in TREES:
            with self.subTest(picture.name):
                texts = {element.get("id"): element.text for element in root if element.tag in ("title", "desc")}
                names = root.get("aria-labelledby").split()
                self.assertEqual(names, [f"{picture.name}-title", f"{picture.name}-description"])
                self.assertEqual([texts[name] for name in names], [picture.title, picture.description])
                self.assertTrue(picture.caption)

    def test_is_an_image_unless_it_has_links(self):
        for picture, root in TREES:
            with self.subTest(picture.name):
                links = list(root.iter("a"))
                self.assertEqual(root.get("role"), "group" if links else "img")
                for link in links:
                    self.assertTrue(link.get("href"))
                    self.assertTrue(link.find("title").text)

    def test_stands_under_a_heading_of_its_chapter(self):
        for picture, _ in TREES:
            with self.subTest(picture.name):
                if picture.page == "index":
                    continue
                headings = re.findall(r"^#+ (.*)$", chapter(picture.page), re.MULTILINE)
                self.assertIn(picture.after, headings)

    def test_links_to_equations_that_there_are(self):
        for picture, root in TREES:
            with self.subTest(picture.name):
                for link in root.iter("a"):
                    address = link.get("href")
                    if address.startswith("#"):
                        tag = rf"\text{{({address[1:]})}}".replace("_", r"\_")
                        self.assertIn(tag, chapter(picture.page))
                    else:
                        self.assertIn(posixpath.normpath(posixpath.join(posixpath.dirname(picture.page), address)), DOCUMENTS)

    def test_keeps_its_texts_inside_and_apart(self):
        for picture, _ in TREES:
            with self.subTest(picture.name):
                boxes = svg.text_boxes(DRAWN[picture.name])
                for box in boxes:
                    across = 0 <= box.left and box.right <= picture.width
                    down = 0 <= box.top and box.bottom <= picture.height
                    self.assertTrue(across and down, f"{box} is outside {picture.width} x {picture.height}")
                for one, other in combinations(boxes, 2):
                    self.assertFalse(one.overlaps(other), f"{one} overlaps {other}")

    def test_uses_no_colour_but_the_page_s(self):
        for picture, root in TREES:
            with self.subTest(picture.name):
                for element in root.iter():
                    for attribute in ("fill", "stroke"):
                        value = element.get(attribute, "none")
                        if value != "none":
                            variable = re.fullmatch(r"var\(--(\w+)\)", value)
                            self.assertIn(variable and variable.group(1), svg.VARIABLES)
                self.assertNotRegex(DRAWN[picture.name], r"http|#[0-9a-f]{3,6}\b(?!\.)|<script|<style")

    def test_is_narrow_enough_for_a_telephone_and_easy_to_read(self):
        for picture, root in TREES:
            with self.subTest(picture.name):
                self.assertLessEqual(picture.width, 360)
                for element in root.iter():
                    self.assertGreaterEqual(float(element.get("font-size", svg.TEXT)), 11)

    def test_is_the_same_when_it_is_drawn_again(self):
        for picture, _ in TREES:
            with self.subTest(picture.name):
                self.assertEqual(picture.draw(), DRAWN[picture.name])


class AllPictures(unittest.TestCase):
    def test_have_ids_and_names_of_their_own(self):
        ids = [id_ for source in DRAWN.values() for id_ in re.findall(r' id="([^"]*)"', source)]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(DRAWN), len(PICTURES))


class Constants(unittest.TestCase):
    def test_agree_with_the_source(self):
        self.assertEqual([str(fault) for fault in constants_faults(ROOT)], [])

    def planted(self, file: str, old: str, new: str) -> list[str]:
        """The faults in a copy of the source with a change in `file`."""
        with changed_copy(file, old, new) as copy:
            return [str(fault) for fault in constants_faults(copy)]

    def test_that_differ_are_found_by_name(self):
        faults = self.planted("cuda/attention_tiles.hpp", "constexpr int tile = 64;", "constexpr int tile = 128;")
        self.assertEqual(len(faults), 1)
        self.assertRegex(faults[0], r"cuda/attention_tiles.hpp:\d+: the picture attention-tiles shows '64'.*'128'")

    def test_that_are_gone_are_found(self):
        faults = self.planted("src/layers/muon.hpp", "muon_cubic", "cubic")
        self.assertEqual(len(faults), 1)
        self.assertIn("src/layers/muon.hpp: for the picture muon-rounds nothing matches", faults[0])

    def test_a_worked_example_that_differs_is_found(self):
        for file, old, new in (
            ("docs/layers/cross_entropy.md", "0, 1/16, -1/16, 0 |", "0, 1/8, -1/8, 0 |"),
            ("extras/positions/rescale.md", "| **d_in** | 0.25 | -0.5", "| **d_in** | 0.5 | -0.5"),
            ("extras/positions/rotary.md", "| in | 5 |", "| in | 6 |"),
            ("extras/bahdanau/bahdanau_attention.md", "| -13 log 2 | 15 log 2 |", "| -13 log 2 | 14 log 2 |"),
        ):
            with self.subTest(file):
                faults = self.planted(file, old, new)
                self.assertEqual(len(faults), 1)
                self.assertIn(new.strip("| ").split("| ")[-1], faults[0])

    def test_an_equation_that_makes_another_array_is_found(self):
        faults = self.planted("extras/seq2seq/cross.hpp", "//   t_bch = attention(", "//   u_bch = attention(")
        self.assertEqual(len(faults), 1)
        self.assertIn("makes t, the picture cross-flow says (cross.4)", faults[0])


class Map(unittest.TestCase):
    """The map of the network, compared with the sources."""

    def test_links_to_every_page_of_a_layer_or_block(self):
        links = {link.get("href") for link in xml.fromstring(DRAWN["map"]).iter("a")}
        self.assertEqual(links, {f"{room.page}.html" for room in SITE.rooms.values()})

    def test_has_the_layers_that_a_block_calls(self):
        self.assertEqual(network.Network(ROOT).layers_of["ffn"], ["layernorm", "linear", "gelu", "relu", "dropout"])
        with changed_copy("src/blocks/ffn.hpp", " gelu_", " something_") as copy:
            self.assertEqual(network.Network(copy).layers_of["ffn"], ["layernorm", "linear", "relu", "dropout"])

    def test_has_the_mixers_of_the_registry(self):
        self.assertIn(("metric", "quadratic"), network.Network(ROOT).mixers())
        with changed_copy("src/network/mixers.hpp", "QuadraticMixer, DotMixer,", "DotMixer,") as copy:
            self.assertIn(("metric",), network.Network(copy).mixers())
        with (
            changed_copy("src/network/mixers.hpp", "LeapMixer", "OtherMixer") as copy,
            self.assertRaisesRegex(Fault, "src/network/mixers.hpp: lists OtherMixer"),
        ):
            network.Network(copy)

    def test_says_what_the_index_says(self):
        with changed_copy("docs/index.md", "GELU, applied to each element.", "Another sentence.") as copy:
            self.assertIn("<title>gelu: Another sentence.</title>", network.picture(copy).draw())


@contextmanager
def changed_copy(file: str, old: str, new: str) -> Iterator[Path]:
    """A copy of the source with a change in `file`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src/blocks", "src/layers", "docs/layers", "docs/blocks", "plain", "cpu", "cuda", "extras"):
            shutil.copytree(ROOT / name, copy / name)
        constants = {constant.file for picture in PICTURES for constant in picture.constants}
        for name in constants | {"docs/index.md", "src/network/mixers.hpp"}:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        source = (copy / file).read_text(encoding="utf-8")
        if old not in source:
            raise AssertionError(f"{file} does not contain {old!r}")
        (copy / file).write_text(source.replace(old, new), encoding="utf-8")
        yield copy


class Numbers(unittest.TestCase):
    """Numbers that pictures compute, compared with their texts."""

    def test_of_cross_entropy_are_the_derivatives(self):
        for row, smoothing in product(range(cross_entropy.COUNT), cross_entropy.SMOOTHINGS):
            logits = [math.log(power) for power in cross_entropy.POWERS[row]]
            wanted = cross_entropy.wanted(row, smoothing)

            def loss(logits: list[float]) -> float:
                lse = math.log(sum(map(math.exp, logits)))
                return (lse - sum(q * logit for q, logit in zip(wanted, logits))) / cross_entropy.COUNT

            found = cross_entropy.gradients(row, smoothing)
            self.assertEqual(sum(found), 0)
            for gradient, difference in zip(found, differences(loss, logits), strict=True):
                self.assertAlmostEqual(float(gradient), difference, places=8)

    def test_of_rescaling_are_the_derivatives(self):
        for head in (rescale.HEAD, rescale.TWICE):

            def loss(head: list[float]) -> float:
                return sum(d * out for d, out in zip(rescale.D_OUT, rescale.forward(head)))

            found = rescale.backward(head, rescale.D_OUT)
            for gradient, difference in zip(found, differences(loss, head), strict=True):
                self.assertAlmostEqual(gradient, difference, places=5)  # except epsilon
            self.assertAlmostEqual(math.hypot(*rescale.forward(head)), math.sqrt(rescale.K - 1), places=4)

    def test_of_gelu_are_the_derivatives(self):
        for x in (-2.5, -gelu.EXTREME, -0.3, 0.0, 0.7, 3.0):
            (difference,) = differences(lambda one: gelu.out(one[0]), [x])
            self.assertAlmostEqual(gelu.slope(x), difference, places=8)
            self.assertAlmostEqual(gelu.slope(x) + gelu.slope(-x), 1)
        self.assertAlmostEqual(gelu.slope(gelu.lowest()), 0)
        for x in (gelu.EXTREME, -gelu.EXTREME):
            self.assertGreater(gelu.slope(x) * x, gelu.slope(x + 0.01) * x)
            self.assertGreater(gelu.slope(x) * x, gelu.slope(x - 0.01) * x)

    def test_of_adamw_are_those_of_the_worked_example(self):
        with mock.patch.multiple(adamw, BETA1="0.6", BETA2="0.75", EPSILON="0"):
            self.assertEqual(adamw.steps([2, -5]), [1, -0.59375])

    def test_of_dropout_are_drawn_by_the_generator(self):
        """The first words of Philox4x32-10 for a counter and a key of zeros, as published by its authors."""
        words = dropout.philox_block(0, (0, 0, 0, 0))
        self.assertEqual(words, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))
        ones = 0xFFFFFFFF
        words = dropout.philox_block(ones << 32 | ones, (ones,) * 4)
        self.assertEqual(words, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))

    def test_of_additive_attention_are_the_derivatives(self):
        module, score = bahdanau_attention, bahdanau_attention.SCORE * math.log(2)
        inputs = [math.atanh(x) for x in (*module.QUERY, *module.KEY)] + [float(x) for x in module.VALUE]

        def loss(inputs: list[float]) -> float:
            query, key, value = inputs[:2], inputs[2:4], inputs[4:]
            total = 0.0
            for c in range(2):
                powers = [math.exp(score * math.tanh(query[c] + key[s])) for s in range(2)]
                total += module.D_OUT[c] * sum(power * v for power, v in zip(powers, value)) / sum(powers)
            return total

        found = [float(module.d_query(c)) * math.log(2) for c in range(2)]
        found += [float(module.d_key(s)) * math.log(2) for s in range(2)] + [float(module.d_value(s)) for s in range(2)]
        for gradient, difference in zip(found, differences(loss, inputs), strict=True):
            self.assertAlmostEqual(gradient, difference, places=7)

    def test_of_turned_pairs_know_the_distance_alone(self):
        (query, key), (later_query, later_key) = rotary.PLACES
        self.assertEqual(query - key, later_query - later_key)
        self.assertAlmostEqual(rotary.product(query, key), rotary.product(later_query, later_key), places=9)
        self.assertNotAlmostEqual(rotary.product(query, key), rotary.product(query + 1, key), places=2)

    def test_of_leap_have_one_row_of_weights(self):
        for c in range(leap.C):
            self.assertAlmostEqual(sum(leap.attention(c)), 1)
            self.assertAlmostEqual(sum(leap.pooled(c)), 1, places=4)  # except epsilon
            self.assertTrue(0 < leap.gate(c) < 1)
            for share, last in zip(leap.pooled(c), leap.pooled(leap.C - 1)):
                self.assertAlmostEqual(share / leap.pooled(c)[0], last / leap.pooled(leap.C - 1)[0])

    def test_of_chunks_come_after_what_they_need(self):
        done = []
        for j, direction, _ in chunks.rows():
            if direction == "forward":
                self.assertTrue(j == 0 or (j - 1, "forward") in done, "the chunk has no input state")
            else:
                self.assertEqual(done[-1], (j, "forward"), "the activations of the chunk are gone")
                self.assertTrue(j == chunks.CHUNKS - 1 or (j + 1, "backward") in done, "the next chunk has passed no gradient back")
            done.append((j, direction))
        self.assertEqual(sorted(j for j, direction in done if direction == "backward"), list(range(chunks.CHUNKS)))


def differences(loss, x) -> list[float]:
    """Central differences of a function of several variables."""
    step = 1e-6
    moved = [[[value + (i == j) * by for j, value in enumerate(x)] for by in (step, -step)] for i in range(len(x))]
    return [(loss(up) - loss(down)) / (2 * step) for up, down in moved]


class Text(unittest.TestCase):
    def test_that_does_not_fit_its_box_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "'a label' does not fit"):
            svg.Drawing("test", 100, 100).box(0, 0, 20, 20, "a label")

    def test_is_escaped(self):
        drawing = svg.Drawing("test", 100, 100)
        drawing.text(50, 50, "*a* < b & _{*c*<1}")
        source = drawing.render("<title>", "a & b", False)
        self.assertEqual("".join(xml.fromstring(source).find("text").itertext()), "a < b & c<1")
        self.assertEqual(xml.fromstring(source).find("title").text, "<title>")

    def test_boxes_see_an_overlap(self):
        drawing = svg.Drawing("test", 100, 100)
        drawing.text(50, 50, "one")
        drawing.text(55, 55, "two")
        one, two = svg.text_boxes(drawing.render("", "", False))
        self.assertTrue(one.overlaps(two))

    def test_numbers_are_short(self):
        self.assertEqual([svg.number(x) for x in (1, 0.125, -0.001, 2.999, 10)], ["1", "0.12", "0", "3", "10"])


if __name__ == "__main__":
    unittest.main()
