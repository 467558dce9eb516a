"""Shows text from elsewhere without letting it drive the terminal."""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Zero-width (non-)joiners: several scripts cannot be written without them, and they move nothing."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(text: str) -> str:
    r"""Return the text with control and direction characters spelled out, such as `\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(char) if _is_unsafe(char) else char for char in text)


def shown_json(text: str) -> str:
    r"""Return an equivalent JSON document without raw control characters other than line breaks.

    JSON spells the ASCII controls itself; the rest (DEL, C1, direction overrides) can only stand inside
    strings, where `\uXXXX` is another spelling of the same character.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(_json_spelled(char) if _is_unsafe(char) and char not in _SHORT else char for char in text)


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE and char not in _JOINERS


def _spelled(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_spelled(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
