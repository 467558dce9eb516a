"""Compact JSON text for histories and rows."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def written(value: object) -> str:
    """Encode a value that is known to be JSON."""
    return _encode(value).decode()


def read(text: str) -> Any:
    """Decode text that `written` encoded."""
    return _decode(text)
