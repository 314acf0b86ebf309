"""The font cut for the page has all needed characters, is small and reproducible. A missing character is named."""

import importlib.util
import io
import unittest
from pathlib import Path

try:
    from fontTools.ttLib import TTFont

    import font
except ImportError as error:
    raise unittest.SkipTest(f"{error}: install python3-fonttools") from error
import tex
from fault import Fault
from test_tex import equations

HAS_FONT = font.FILE.is_file() and importlib.util.find_spec("brotli")


class Missing(unittest.TestCase):
    def test_a_font_that_is_not_there(self):
        with self.assertRaisesRegex(Fault, "no.otf: is not there: install the Debian package fonts-texgyre-math"):
            font.find(Path("no.otf"))


@unittest.skipUnless(HAS_FONT, f"install {font.PACKAGE} and python3-brotli")
class Subset(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        found = (tex.mathml(tex.split_tag(equation)[0], display) for _, equation, display in equations())
        cls.characters = set("{}‾").union(*map(tex.characters, found))
        cls.bytes = font.subset(cls.characters, font.find())
        cls.font = TTFont(io.BytesIO(cls.bytes))

    def test_size(self):
        self.assertLess(len(self.bytes), 25_000)

    def test_every_character_of_the_chapters(self):
        self.assertEqual(self.characters, set(map(chr, self.font.getBestCmap())))

    def test_brackets_roots_sums_and_bars_grow(self):
        variants = self.font["MATH"].table.MathVariants
        glyphs = self.font.getBestCmap()
        self.assertLessEqual({glyphs[ord(c)] for c in "()[]{}|√∑‖⌈⌉"}, set(variants.VertGlyphCoverage.glyphs))
        self.assertEqual([glyphs[ord("‾")]], variants.HorizGlyphCoverage.glyphs)
        (bar,) = variants.HorizGlyphConstruction
        self.assertEqual(len(bar.GlyphAssembly.PartRecords), 3)

    def test_the_licence_stays(self):
        self.assertIn("GUST Font License", self.font["name"].getDebugName(font.COPYRIGHT))

    def test_the_same_bytes(self):
        self.assertEqual(self.bytes, font.subset(self.characters, font.find()))

    def test_a_character_that_the_font_lacks(self):
        with self.assertRaisesRegex(Fault, r"^texgyretermes-math.otf: has no 字 \(U\+5B57\), 🙂 \(U\+1F642\)$"):
            font.subset({"a", "字", "🙂"}, font.find())


if __name__ == "__main__":
    unittest.main()
