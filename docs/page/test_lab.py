"""The lab: output of the generator with and without a module."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import lab  # noqa: E402
import lab_module  # noqa: E402
from sources import mixers, rooms  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


class Equations(unittest.TestCase):
    """The equations of the page agree with the headers and chapters."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.rooms = rooms(ROOT)
        script = lab.script_of_equations(ROOT, cls.rooms, lambda room, tag: f"<pre>{tag}</pre>")
        cls.told = json.loads(script.removeprefix("const labEquations = ").rstrip(";\n"))

    def test_names_on_the_left_lead_to_their_equation(self) -> None:
        made = self.told["makes"]
        for block, name, number in (
            ("dot", "t_bch", 5),
            ("dot", "d_t_bch", 10),
            ("dot", "d_key_bch", 11),
            ("dot", "d_query_hd", 14),
            ("dot", "d_x_bcd", 16),
            ("metric", "key_bcnk", 3),
            ("additive", "d_u_bcd", 13),
            ("additive", "d_v_bcd", 13),
            ("ffn", "d_up_fd", 10),
            ("cross_entropy", "d_logits_bcv", 5),
        ):
            self.assertEqual(made[block].get(name), f"{block}.{number}", name)

    def test_a_name_without_its_shape_stands_for_the_others(self) -> None:
        self.assertEqual(self.told["makes"]["additive"]["d_q"], "additive.21")

    def test_every_tag_has_an_equation_and_a_place_to_go(self) -> None:
        for names in self.told["makes"].values():
            for tag in names.values():
                self.assertIn(tag, self.told["equations"])
        for tag, equation in self.told["equations"].items():
            name = tag.split(".")[0]
            self.assertEqual(equation["href"], f"{self.rooms[name].page}.html#{tag}")
            self.assertTrue(equation["math"].startswith("<math"))

    def test_loops_stand_with_the_equations_of_weights(self) -> None:
        for tag in lab.LOOPS:
            self.assertEqual(self.told["equations"][tag]["loop"], f"<pre>{tag}</pre>")


class Mixers(unittest.TestCase):
    """The page offers all of them, and nothing else."""

    def test_are_those_of_the_network(self) -> None:
        listed = re.search(
            r"using Mixers =\s*MixerList<(.*?)>;", (ROOT / "src/network/mixers.hpp").read_text("utf-8"), re.DOTALL
        )
        names = [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in re.findall(r"(\w+)Mixer\b", listed.group(1))]
        self.assertEqual(list(mixers(ROOT)), names)
        self.assertEqual(mixers(ROOT)["quadratic"], "metric")


class Scripts(unittest.TestCase):
    """Files that the page loads."""

    def test_the_style_alone_where_nothing_trains(self) -> None:
        self.assertEqual(list(lab.scripts(ROOT, False)), [lab.STYLE])

    def test_nothing_where_there_is_no_lab(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(lab.scripts(Path(folder), True), {})

    def test_all_parts_are_there_and_nothing_else(self) -> None:
        files = {path.stem for path in (ROOT / lab.FOLDER).glob("*.js")}
        self.assertEqual(files, {*lab.PARTS, "engine", "worker"})  # these are lab_module.py's
        script = lab.scripts(ROOT, True)[lab.SCRIPT]
        for name in ("Lab", "Head", "Curve"):
            self.assertEqual(script.count(f"class {name} {{"), 1)

    def test_the_chapter_names_the_limit_of_the_module(self) -> None:
        chapter = (ROOT / "docs/same_bits.md").read_text(encoding="utf-8")
        self.assertIn(f"The module has at most {lab_module.LARGEST_MODULE // 1000} kB", chapter)

    def test_the_script_of_the_page_is_small(self) -> None:
        self.assertLessEqual(len(lab.scripts(ROOT, True)[lab.SCRIPT].encode()), 120_000)

    def test_the_chapter_names_the_experiments(self) -> None:
        chapter = (ROOT / "docs/same_bits.md").read_text(encoding="utf-8")
        script = (ROOT / lab.FOLDER / "experiments.js").read_text(encoding="utf-8")
        names = re.findall(r"^  (\w+): \{\n    title: ", script, re.MULTILINE)
        self.assertGreaterEqual(len(names), 5)
        listed = chapter[chapter.index("| experiment |") :]
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE), names)

    def test_places_that_the_scripts_look_for_are_in_the_page(self) -> None:
        page = (ROOT / lab.TEMPLATE).read_text(encoding="utf-8")
        for part in lab.PARTS:
            for name in re.findall(r'\bfind\("([\w-]+)"\)', (ROOT / lab.FOLDER / f"{part}.js").read_text(encoding="utf-8")):
                self.assertIn(f'id="{name}"', page, f"{part}.js")


class Page(unittest.TestCase):
    """The main part of the page."""

    def body(self) -> str:
        chapters = {name: f"docs/blocks/{name}.md" for name in set(mixers(ROOT).values())}
        return lab.body(
            ROOT,
            address=lambda file: file,
            sentences=dict.fromkeys(chapters.values(), "It mixes."),
            chapters=chapters,
            bell="<p>bell</p>",
        )

    def test_has_a_place_for_every_mixer(self) -> None:
        body = self.body()
        for name in mixers(ROOT):
            self.assertIn(f'id="mixer={name}"', body)
            self.assertRegex(body, rf'<option value="{name}"')

    def test_what_needs_the_script_is_hidden_without_it(self) -> None:
        body = self.body()
        for live in re.findall(r'<[^>]*class="[^"]*\blive\b[^>]*>', body):
            self.assertRegex(live, r"\bhidden\b")
        for still in re.findall(r'<[^>]*class="[^"]*\bstill\b[^>]*>', body):
            self.assertNotIn("hidden", still)


if __name__ == "__main__":
    unittest.main()
