"""Payloads as people read them: opened, indented, and cut where they would be too much for a page."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.wire.payloads import decode

SHOWN_MAX: Final = 16_000
SHORT_MAX: Final = 120
_BLOB_START: Final = "wwHioz3/VYAiN"


class PayloadText(Struct, frozen=True):
    """A payload as text: what is shown, and how many characters it has in all."""

    text: str
    length: int

    @property
    def is_cut(self) -> bool:
        return self.length > len(self.text)


def opened(value: Any) -> Any:
    """The value inside an encoded payload; what cannot be opened, such as one that is encrypted, stays as it is."""
    if isinstance(value, str) and value.startswith(_BLOB_START):
        try:
            return _plain(decode(value))
        except PenstockError:
            return value
    if isinstance(value, dict):
        return {name: opened(each) for name, each in value.items()}
    return [opened(each) for each in value] if isinstance(value, list) else value


def pretty(value: Any, most: int = SHOWN_MAX) -> PayloadText:
    """A payload on many lines, the first `most` characters of it."""
    text = json.dumps(opened(value), ensure_ascii=False, indent=2, default=str)
    return PayloadText(text[:most], len(text))


def short(value: Any) -> str:
    """A payload on one line."""
    text = json.dumps(opened(value), ensure_ascii=False, default=str)
    return text if len(text) <= SHORT_MAX else f"{text[: SHORT_MAX - 1]}…"


def _plain(value: Any) -> Any:
    """JSON has no bytes: they are shown as base64."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {str(name): _plain(each) for name, each in value.items()} if isinstance(value, dict) else value
