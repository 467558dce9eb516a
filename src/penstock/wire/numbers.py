"""Converts decimal fractions to the integers that are stored, exactly as they were written.

A JSON number is parsed as a float, whose shortest text is the number that was written. Converting that text, not the
float, makes 33.3 exactly 33,300,000 millionths. Finer digits are rounded.
"""

from __future__ import annotations

from decimal import Decimal

MILLI = 1_000
MICRO = 1_000_000


def to_milli(value: float) -> int:
    """For weights, and for seconds as milliseconds."""
    return _parts(value, MILLI)


def to_micro(value: float) -> int:
    """For rates per second."""
    return _parts(value, MICRO)


def _parts(value: float, of_one: int) -> int:
    return round(Decimal(repr(value)) * of_one)
