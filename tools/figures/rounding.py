"""Floats in Python, whose numbers are doubles."""

import struct


def to_float(x: float) -> float:
    """x rounded to 24 bits: a sum, product, quotient or root of floats, formed in double, then is that of floats."""
    return struct.unpack("f", struct.pack("f", x))[0]
