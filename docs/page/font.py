"""The math font of the page: found in a Debian package, and cut down to the characters that the page has.

Without a math font a browser sets MathML in one of its text fonts, where brackets do not grow and primes stand in the
wrong place. So the page brings its own, cut when the page is built and not kept in the repository. TeX Gyre Termes Math
is one of five fonts in a package of 2 MB. It has all characters of the chapters with all sizes of brackets, roots and
sums, and a prime made for superscripts; its letters go with a serif text; and less than 20 kB of it are needed. Of the
others that Debian 12 has, the STIX of fonts-stix (1.1.1) has no such prime, Asana Math no space that does not break, and
Latin Modern Math comes in a package twice as large.
"""

import io
from pathlib import Path

from fontTools import subset as cutter
from fontTools.ttLib import TTFont

from fault import Fault

PACKAGE = "fonts-texgyre-math"
FILE = Path("/usr/share/texmf/fonts/opentype/public/tex-gyre-math/texgyretermes-math.otf")

# Glyphs that browsers would not choose by themselves: a prime made for superscripts, a bar that has a width of its own
# and grows, and an accent in the place of the sign on a keyboard.
GLYPHS = {"′": "minute.st", "‾": "overlinecmb.h1", "^": "circumflex"}
COPYRIGHT = 0  # with the licence: the entry in the table of names that stays


def find(file: Path = FILE) -> Path:
    if not file.is_file():
        raise Fault(str(file), f"is not there: install the Debian package {PACKAGE}")
    return file


def subset(characters: set[str], file: Path) -> bytes:
    """WOFF2 with the glyphs of these characters and their larger sizes. The same characters give the same bytes."""
    options = cutter.Options(
        flavor="woff2",
        layout_features=[],
        hinting=False,
        desubroutinize=True,  # is larger, but smaller when packed
        recalc_timestamp=False,
        notdef_outline=True,
        name_IDs=[COPYRIGHT],
    )
    options.drop_tables += ["FFTM", "GDEF", "GPOS", "GSUB"]
    written = io.BytesIO()
    with cutter.load_font(str(file), options) as font:
        _adapt(font)
        if lacking := sorted(characters - set(map(chr, font.getBestCmap()))):
            raise Fault(file.name, "has no " + ", ".join(f"{lack} (U+{ord(lack):04X})" for lack in lacking))
        cut = cutter.Subsetter(options)
        cut.populate(text="".join(sorted(characters)))
        cut.subset(font)
        cutter.save_font(font, written, options)
    return written.getvalue()


def _adapt(font: TTFont) -> None:
    for table in font["cmap"].tables:
        table.cmap |= {ord(character): glyph for character, glyph in GLYPHS.items()}
    # TeX sets the scripts of a letter at one height. Browsers heed how far it reaches up and down: with the values of
    # the font the indices of `logit` would be lower than those of `x`, and those with a prime lower than the others.
    constants = font["MATH"].table.MathConstants
    constants.SubscriptBaselineDropMin.Value = 0
    constants.SubscriptTopMax.Value = 500
    constants.SuperscriptBaselineDropMax.Value = 386
    # The bar is all that grows sideways. What the font says of the combining bar, which has no width, holds for it.
    variants = font["MATH"].table.MathVariants
    bar = variants.HorizGlyphConstruction[variants.HorizGlyphCoverage.glyphs.index("overlinecmb")]
    bar.MathGlyphVariantRecord = bar.MathGlyphVariantRecord[1:]
    variants.HorizGlyphCoverage.glyphs = [GLYPHS["‾"]]
    variants.HorizGlyphConstruction = [bar]
    variants.HorizGlyphCount = 1
