"""Rounding to float in Python, whose numbers are doubles."""

import struct


def to_float(x: float) -> float:
    """x rounded to 24 bits. For a sum, product, quotient or root of floats, computed in double, this is the float
    result."""
    return struct.unpack("f", struct.pack("f", x))[0]
