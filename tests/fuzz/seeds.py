#!/usr/bin/env python3
"""Writes small safetensors files, right and wrong, for the fuzzer to start from: seeds.py FOLDER."""

import json
import pathlib
import struct
import sys
import zlib

DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
          "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}


def pack(header, data=b"", length=None):
    """A file of the header (a string) and the data; `length` is what it claims for the header, by default the truth."""
    text = header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin):
    size = DTYPES[dtype]
    for extent in shape:
        size *= extent
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}


def sequence(tensors, crc=False):
    """A well-formed file of (name, dtype, shape), one after another."""
    header, end = {}, 0
    for name, dtype, shape in tensors:
        header[name] = entry(dtype, shape, end)
        end = header[name]["data_offsets"][1]
    data = bytes(i * 7 % 256 for i in range(end))
    if crc:
        header = {"__metadata__": {"crc32": f"{zlib.crc32(data):08x}"}, **header}
    text = json.dumps(header)
    return pack(text + " " * (-len(text) % 8), data)


one = json.dumps(entry("F32", [1], 0))
SEEDS = {
    "empty": pack("{}"),
    "one": sequence([("w", "F32", [2, 3])]),
    "crc": sequence([("w", "F32", [2, 3]), ("b", "F32", [2])], crc=True),
    "every_dtype": sequence([(dtype, dtype, [2]) for dtype in DTYPES]),
    "scalar_and_nothing": sequence([("s", "F64", []), ("n", "F64", [0, 4]), ("t", "I64", [1, 1, 1])]),
    "misaligned": sequence([("a", "U8", [1]), ("b", "F64", [1]), ("c", "F32", [1])]),
    "order": pack('{"b":' + json.dumps(entry("U8", [2], 2)) + ',"a":' + json.dumps(entry("U8", [2], 0)) + "}", b"0123"),
    "metadata": pack('{"__metadata__":{"case":"linear","note":"a \\"b\\""}}'),
    "marks": pack('{"__metadata__":{"abh_crc32":"00000000","abh_version":"1"}}'),
    "one_mark": pack('{"__metadata__":{"abh_version":"1"}}'),
    "bad_crc": pack('{"__metadata__":{"crc32":"0123abcd"}}'),
    "malformed_crc": pack('{"__metadata__":{"crc32":"0123ABCD"}}'),
    "escapes": pack('{"__metadata__":{"\\"\\\\\\/\\b\\f\\n\\r\\t":"\\u0041\\u00e9\\u20AC\\ud83d\\ude00"}}'),
    "utf8": pack('{"__metadata__":{"\u00e9\u20ac":"\U0001f600\U0010ffff\ud7ff\ue000\U00010000"}}'),
    "surrogate": pack('{"__metadata__":{"\ud800":""}}'),
    "half_pair": pack('{"\\ud800x":{}}'),
    "spaces": pack('{ "w" :\t{ "dtype" : "U8",\n"shape" : [ 1 , 2 ],\r"data_offsets" : [ 0 , 2 ] } }  ', b"ab"),
    "twice": pack('{"w":' + one + ',"w":' + one + "}", b"0123"),
    "hole": pack('{"w":' + one + "}", b"01234567"),
    "overlap": pack('{"v":' + one + ',"w":' + one + "}", b"0123"),
    "reversed": pack('{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}', b"0"),
    "overflow": pack('{"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}', b"01234567"),
    "large_integer": pack('{"w":{"dtype":"F64","shape":[9223372036854775808],"data_offsets":[0,8]}}', b"01234567"),
    "unknown_member": pack('{"w":{"strides":[1]}}'),
    "missing_member": pack('{"w":{"dtype":"U8","shape":[0]}}'),
    "three_offsets": pack('{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}'),
    "unknown_dtype": pack('{"w":{"dtype":"F8","shape":[0],"data_offsets":[0,0]}}'),
    "trailing": pack("{}x"),
    "no_brace": pack("[]"),
    "length_zero": pack("{}", length=0),
    "length_beyond": pack("{}", length=3),
    "length_largest": pack("{}", length=2**64 - 1),
    "short": b"\x02\x00\x00",
}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, content in SEEDS.items():
    (folder / name).write_bytes(content)
