"""Sort keys: one text per value whose byte order is the order of its kind (text, number, boolean, timestamp).

Every store compares these texts byte by byte, so all of them find the same runs in the same order.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from enum import StrEnum

TEXT_KEPT = 255
"""The characters of a text that are kept for ordering; a longer text is equal only to itself."""
PRESENT = ""
"""The sort key that every present value has."""
_EXPONENT_ZERO = 5000
_DIGITS_TURNED = str.maketrans("0123456789", "9876543210")
_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")


class ValueKind(StrEnum):
    """The first letter of a sort key; keys of different kinds are never compared."""

    TRUTH = "b"
    NUMBER = "n"
    TEXT = "s"
    INSTANT = "t"

    @property
    def end(self) -> str:
        """The first text after all sort keys of the kind."""
        return chr(ord(self.value) + 1)


def boolean_key(value: bool) -> str:
    return f"{ValueKind.TRUTH}{value:d}"


def text_key(value: str) -> str:
    kept = clean(value)
    if len(kept) > TEXT_KEPT:
        kept = kept[:TEXT_KEPT] + hashlib.sha256(kept.encode()).hexdigest()[:32]
    return ValueKind.TEXT + kept


def number_key(value: float) -> str:
    return ValueKind.NUMBER + _sortable(value)


def instant_key(at_ms: int) -> str:
    return ValueKind.INSTANT + _sortable(at_ms)


def clean(text: str) -> str:
    """The text without characters that a database cannot store."""
    return _UNKEEPABLE.sub("\ufffd", text)


def _sortable(value: float) -> str:
    """Sign, exponent and digits, so that the texts sort like the numbers."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), "numbers are finite"
    text = "".join(map(str, digits)).lstrip("0")
    exponent = _EXPONENT_ZERO + len(text) + exponent
    text = text.rstrip("0")
    if not text:
        return "1"
    if not sign:
        return f"2{exponent:04d}{text}"
    return f"0{9999 - exponent:04d}{text.translate(_DIGITS_TURNED)}~"
