#!/usr/bin/env python3
"""tools/unicode_runs.py: prints src/base/unicode_runs.inc, from the Unicode data of this Python."""
import unicodedata

# In the order of src/base/unicode.hpp.
kinds = ["hidden", "format", "mark", "narrow", "wide"]
parts = ["none", "letter", "mark"]


def is_selector(code):
    return code in range(0xFE00, 0xFE10) or code in range(0xE0100, 0xE01F0) or code in (0x180B, 0x180C, 0x180D, 0x180F)


def is_jamo_of_a_syllable(code):
    """Vowels and final consonants, which are drawn into the square of the preceding consonant."""
    return code in range(0x1160, 0x1200) or code in range(0xD7B0, 0xD800)


def kind_of(code):
    category = unicodedata.category(chr(code))
    if category in ("Cc", "Cs", "Co", "Cn", "Zl", "Zp"):
        return "hidden"
    if category == "Cf" or is_selector(code):
        return "format"
    if category in ("Mn", "Me") or is_jamo_of_a_syllable(code):
        return "mark"
    return "wide" if unicodedata.east_asian_width(chr(code)) in ("W", "F") else "narrow"


def part_of(code):
    """The part of a word that a character belongs to."""
    return {"L": "letter", "N": "letter", "M": "mark"}.get(unicodedata.category(chr(code))[0], "none")


def runs():
    """The first code point of each run with the same kind and part, and the number of kind and part."""
    before = None
    for code in range(0x110000):
        number = len(kinds) * parts.index(part_of(code)) + kinds.index(kind_of(code))
        if number != before:
            yield code, number
        before = number


def listed(names, step):
    return ", ".join(f"{step * i} {name}" for i, name in enumerate(names))


def main():
    print(f"// Made by tools/unicode_runs.py from Unicode {unicodedata.unidata_version}: the first code point of each run of")
    print(f"// one kind and one part in words. The last digit is the kind ({listed(kinds, 1)})")
    print(f"// plus the part ({listed(parts, len(kinds))}).")
    numbers = [f"0x{16 * code + number:X}," for code, number in runs()]
    line = ""
    for number in numbers:
        if len(line) + 1 + len(number) > 120:
            print(line)
            line = ""
        line += (" " if line else "") + number
    print(line)


main()
