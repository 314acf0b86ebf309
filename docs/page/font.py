"""The math font of the page: a font of a Debian package, reduced to the characters that the page contains.

Without a math font a browser sets MathML in a text font: brackets do not grow, and primes stand at the wrong height.
The page therefore contains its own font, which is cut when the page is built and not kept in the repository. TeX Gyre
Termes Math is one of five fonts in a package of 2 MB. It has all characters of the chapters, all sizes of brackets,
roots and sums, and a prime made for superscripts. Its letters fit a serif text, and the page needs less than 20 kB of
it. Debian 12 has three others: the STIX of fonts-stix (1.1.1) has no such prime, Asana Math has no non-breaking space,
and the package of Latin Modern Math is twice as large.
"""

import io
from pathlib import Path

from fontTools import subset as cutter
from fontTools.ttLib import TTFont

from fault import Fault

PACKAGE = "fonts-texgyre-math"
FILE = Path("/usr/share/texmf/fonts/opentype/public/tex-gyre-math/texgyretermes-math.otf")

# Glyphs that browsers do not choose by themselves: a prime made for superscripts, a bar that has a width and can grow,
# and an accent instead of the keyboard's sign.
GLYPHS = {"′": "minute.st", "‾": "overlinecmb.h1", "^": "circumflex"}
COPYRIGHT = 0  # entry of the name table that stays, with the licence


def find(file: Path = FILE) -> Path:
    if not file.is_file():
        raise Fault(str(file), f"is not there: install the Debian package {PACKAGE}")
    return file


def subset(characters: set[str], file: Path) -> bytes:
    """Returns WOFF2 with the glyphs of the characters and their larger sizes. Equal characters give equal bytes."""
    options = cutter.Options(
        flavor="woff2",
        layout_features=[],
        hinting=False,
        desubroutinize=True,  # larger, but smaller after compression
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
    # TeX sets all subscripts and superscripts at one height. Browsers move them with the extent of their base. With the
    # font's own values the indices of `logit` would be lower than those of `x`, and indices beside a prime even lower.
    constants = font["MATH"].table.MathConstants
    constants.SubscriptBaselineDropMin.Value = 0
    constants.SubscriptTopMax.Value = 500
    constants.SuperscriptBaselineDropMax.Value = 386
    # Only the bar grows sideways. The font's data for the combining bar, which has no width, are valid for this bar.
    variants = font["MATH"].table.MathVariants
    bar = variants.HorizGlyphConstruction[variants.HorizGlyphCoverage.glyphs.index("overlinecmb")]
    bar.MathGlyphVariantRecord = bar.MathGlyphVariantRecord[1:]
    variants.HorizGlyphCoverage.glyphs = [GLYPHS["‾"]]
    variants.HorizGlyphConstruction = [bar]
    variants.HorizGlyphCount = 1
