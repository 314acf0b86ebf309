#!/usr/bin/env python3
"""Whether tools/checkpoint.py reads and refuses the same files as the C++ reader and safetensors 0.8.0, and what it knows
of features.

    tests/base/test_model_file.py            all checks; those with safetensors only where 0.8.0 is installed
    tests/base/test_model_file.py --mutate   prints 200 changed headers for the list, with the verdict of safetensors

The list is tests/base/safetensors_headers.txt, which tests/base/test_safetensors.cpp reads as well. Prints
`N passed, N failed`; status 1 if one failed.
"""

import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import zlib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
from checkpoint import MARKS, VERSION, FileError, read, write

LIST = pathlib.Path(__file__).with_name("safetensors_headers.txt")
REFERENCE = "0.8.0"
try:
    import safetensors
except ImportError:
    safetensors = None

passed = failed = 0


def check(what, good, found=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAILED: {what}: {found}")


def file_of(header, size=0):
    return struct.pack("<Q", len(header)) + header + bytes(size)


def fault(folder, content):
    """Why tools/checkpoint.py refuses these bytes, or nothing."""
    path = folder / "x.safetensors"
    path.write_bytes(content)
    try:
        read(path)
    except FileError as error:
        check(f"one line that begins with the path: {error}", str(error).startswith(f"{path}: ") and "\n" not in str(error))
        return str(error)
    return ""


def reference_reads(content):
    try:
        safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return False
    return True


def check_headers(folder):
    reference = getattr(safetensors, "__version__", None) == REFERENCE
    if not reference:
        print(f"skipped: the same headers in safetensors {REFERENCE}, which is not installed")
    lines = [line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    for verdict, size, header in lines:
        content = file_of(urllib.parse.unquote_to_bytes(header), int(size))
        line = fault(folder, content)
        check(f"{verdict} {header}", (line == "") == (verdict == "read"), line)
        if reference:
            check(f"{verdict} {header}, in safetensors", reference_reads(content) == (verdict != "refused"))
    check("the list has 200 changed headers and more", len(lines) > 250, len(lines))


def check_marks(folder):
    def marked(data=b"data", version=VERSION, digits=None):
        header = b'{"__metadata__":{"abh_crc32":"%s","abh_version":"%d"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        actual = zlib.crc32(b"data", zlib.crc32(header % (b"0" * 8, version)))
        return file_of(header % (digits or b"%08x" % actual, version)) + data

    check("a file with marks", fault(folder, marked()) == "", fault(folder, marked()))
    line = fault(folder, marked(data=b"Data"))
    check("a flipped bit", "damaged or was saved again: CRC-32" in line and "drop abh_crc32 and abh_version" in line, line)
    line = fault(folder, marked() + b"more")
    check("four bytes more", "belong to no tensor" in line, line)
    line = fault(folder, marked(digits=b"0000000G"))
    check("digits that are none", "8 lower-case hexadecimal digits" in line, line)
    line = fault(folder, marked(version=VERSION + 1))
    check("a newer version", f"expected at most {VERSION}" in line, line)
    for key in MARKS[:2]:
        line = fault(folder, file_of(b'{"__metadata__":{"%s":"00000000"}}' % key.encode()))
        check(f"{key} alone", "has one of abh_version and abh_crc32" in line, line)
    line = fault(folder, file_of(b'{"__metadata__":{"crc32":"00000001"}}'))
    check("the mark of older files", "damaged or was saved again: CRC-32 00000000" in line and "drop crc32" in line, line)
    tensors = {"w": ("F32", (1,), b"data")}
    write(folder / "copy", tensors, {"abh_crc32": "00000000", "abh_version": "1", "crc32": "1", "format": "pt"})
    check("a copy has no marks", read(folder / "copy") == (tensors, {"format": "pt"}), read(folder / "copy"))
    line = fault(folder, b"1234567")
    check("a file of seven bytes", "not a safetensors file" in line, line)
    line = fault(folder, file_of(b"{}")[:-1])
    check("a header that is cut", "of which 1 are there" in line, line)
    line = fault(folder, file_of(b'{"a":' + b"[" * 100_000))
    check("a header of many brackets", "not a safetensors file" in line, line)


NETWORK = {"layers": "1", "heads": "2", "channels": "4", "head_channels": "2", "hidden_channels": "8", "context": "3",
           "vocabulary_size": "5", "positions": "none", "attention_bias": "0"}  # fmt: skip
TRIAL = """
from features import Feature, Mixer, Whole
FEATURE = Feature(mixers=(Mixer("trial", lambda s: {"map_dd": (s.channels, s.trial_width)}),),
                  settings={"trial_width": (Whole(1), "3")},
                  check=lambda s, fail: s.trial_width == 9 and fail("trial_width", "expected another one"))
"""
READ = """
import sys
from checkpoint import FileError, network_shapes, settings_of
for metadata in eval(sys.argv[1]):
    try:
        print(network_shapes(settings_of(metadata, {}, "x"))["blocks.0.mixer.map_dd"])
    except FileError as error:
        print(error)
    except KeyError:
        print("read")
"""


def check_features(folder):
    """A checkpoint is refused where it needs a feature without a file, and a file in extras/ adds its feature."""
    (folder / "tools").mkdir()
    for name in ("checkpoint.py", "features.py"):
        (folder / "tools" / name).write_bytes((SOURCE / "tools" / name).read_bytes())
    (folder / "tools/read.py").write_text(READ)

    def read_lines(*metadata):
        command = [sys.executable, folder / "tools/read.py", repr([NETWORK | each for each in metadata])]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    lines = read_lines({"mixer": "dot"}, {"mixer": "lsh"}, {"mixer": "dot", "segment": "3"})
    check("without extras/, dot", lines[0] == "read", lines)
    check("without extras/, lsh", lines[1].endswith("found 'lsh'") and "dot" in lines[1], lines)
    check("without extras/, a key", lines[2].startswith("x: metadata segment: not known"), lines)
    (folder / "extras/trial").mkdir(parents=True)
    (folder / "extras/trial/trial_reference.py").write_text(TRIAL)
    lines = read_lines({"mixer": "trial"}, {"mixer": "trial", "trial_width": "7"}, {"mixer": "dot", "trial_width": "9"},
                       {"mixer": "dot", "trial_width": "0"})  # fmt: skip
    expected = ["(4, 3)", "(4, 7)", "x: metadata trial_width: expected another one",
                "x: metadata trial_width: expected a whole number from 1 on, found '0'"]  # fmt: skip
    check("a feature of its own", lines == expected, lines)


BASES = (
    ('{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8),
    ('{"b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}  ', 12),
    ('{"__metadata__":null,"\\u00e9":{"shape":[0,3],"dtype":"F64","data_offsets":[0,0]}}', 0),
)


def changed(draw, header, size):
    """A header with one or two changes of a character, a token or the size of its data."""
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(len(header) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            header = header[:at] + header[at + 1 :]
        elif kind == 1:
            header = header[:at] + draw.choice('{}[]",:0123456789-.eE \t\n\rntf\\/ax\x00\x1f\x7f') + header[at:]
        elif kind == 2:
            header = header[:at] + draw.choice('{}[]",:019 n\\') + header[at + 1 :]
        elif kind == 3:
            blanks = [i for i, character in enumerate(header) if character in "{}[]:,"] + [0, len(header)]
            at = draw.choice(blanks)
            header = header[:at] + draw.choice((" ", "\t", "\n", "\r", "  ")) + header[at:]
        elif kind == 4:
            old, new = draw.choice((("F32", "I32"), ("F32", "F64"), ("F32", "F16"), ("[2]", "[1,2]"), ("[2]", "[02]"), ("null", "{}"), (":null", ":false"), ('"pt"', "null"), ("[1,2]", "[2,1,1]"), ("0,3", "0,9"), ("\\u00e9", "é"), ("\\u00e9", "\\udc00"), ("8]", "8.0]"), ("4,12", "12,4"), ("[]", "[1]"), ("[]", "{}")))  # fmt: skip
            header = header.replace(old, new, 1)
        else:
            size += draw.choice((-4, -1, 1, 4))
    return header, max(size, 0)


def mutate(count):
    """Lines of the list. A header that safetensors reads and this project refuses is one of the classes in the list."""
    draw, seen = random.Random(58), {header for header, _ in BASES}
    with tempfile.TemporaryDirectory() as name:
        while count > 0:
            header, size = changed(draw, *draw.choice(BASES))
            if header in seen:
                continue
            seen.add(header)
            content = file_of(header.encode(), size)
            reads = reference_reads(content)
            if reads == (fault(pathlib.Path(name), content) == ""):
                print("read" if reads else "refused", size, urllib.parse.quote(header, safe='{}[]",:\\/'))
                count -= 1
            else:
                print(f"differs: {header!r}", file=sys.stderr)


def main():
    if sys.argv[1:] == ["--mutate"]:
        return mutate(200)
    with tempfile.TemporaryDirectory() as name:
        check_headers(pathlib.Path(name))
        check_marks(pathlib.Path(name))
        check_features(pathlib.Path(name))
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
