"""Fractions on the wire as the whole numbers that are kept, to the digit that was sent.

A JSON number is read as a float, whose shortest text is the number that was written. Counting from that text, not
from the float, 33.3 is 33,300,000 millionths and nothing else. Finer digits than are kept are rounded.
"""

from __future__ import annotations

import math
from decimal import Decimal

MILLI = 1_000
MICRO = 1_000_000


def to_milli(value: float) -> int:
    """Of weights, and of seconds as milliseconds."""
    return _parts(value, MILLI)


def to_micro(value: float) -> int:
    """Of rates per second."""
    return _parts(value, MICRO)


def _parts(value: float, of_one: int) -> int:
    return round(Decimal(repr(value)) * of_one)


def whole_ms(seconds: float) -> int:
    """A measured span as milliseconds, rounded down."""
    return math.floor(seconds * MILLI)
