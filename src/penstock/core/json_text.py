"""JSON text as histories and rows keep it: in few characters, and readable."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def written(value: object) -> str:
    """The text of a value that is known to be JSON."""
    return _encode(value).decode()


def read(text: str) -> Any:
    """What a text says that was written here."""
    return _decode(text)
