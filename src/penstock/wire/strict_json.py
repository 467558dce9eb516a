"""The JSON parser of the server: every value that it returns can be stored and sent on.

Stricter than RFC 8259 where that is ambiguous: keys are unique in an object, integers fit in 64 bits, and numbers are
finite. Keys and containers are bounded before anything is built, depth before the value is returned.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from penstock.errors import InvalidInput, Reason

DEPTH_MAX: Final = 100
KEYS_MAX: Final = 100_000
CONTAINERS_MAX: Final = 100_000
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string to its closing quote, or to the end of the text if it has none: linear in any input."""

_DEPTH_STEP: Final = tuple(1 if byte in b"[{" else -1 if byte in b"]}" else 0 for byte in range(256))
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if not _DEPTH_STEP[byte])

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def loads(
    raw: bytes,
    *,
    depth_max: int = DEPTH_MAX,
    keys_max: int = KEYS_MAX,
    containers_max: int = CONTAINERS_MAX,
) -> object:
    """Parse one JSON text in UTF-8. Raises `InvalidInput` (`malformed_json`) with `json_error`.

    `keys_max` and `containers_max` apply to the whole text, so that memory is bounded by a multiple of the input. A
    text that exceeds a bound is rejected for that, whatever else is wrong with it.
    """
    colons = raw.count(b":")
    if colons > keys_max or raw.count(b"{") + raw.count(b"[") > containers_max:
        # counting inside strings as well gives an upper bound at almost no cost
        _check_size(raw, depth_max, keys_max, containers_max)
    try:
        value: object = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _check_size(raw, depth_max, keys_max, containers_max)
        _fail(_message(error, depth_max))
    found = _measure(value)
    # a text with more keys than its value repeats one in an object; colons inside strings are no keys
    repeats_key = found.keys != colons and found.keys != _STRING.sub(b"", raw).count(b":")
    if found.depth > depth_max or found.is_wide or repeats_key:
        _check_size(raw, depth_max, keys_max, containers_max)
        if found.is_wide:
            _fail("an integer is outside the signed 64-bit range")
        _refuse_duplicate(raw)
    return value


def dumps(value: object) -> bytes:
    """Render compact JSON. A number that is not finite raises `ValueError` instead of becoming null."""
    text = _encode(value)
    if b"null" in text:
        _check_finite(msgspec.to_builtins(value, str_keys=True))
    return text


def _check_size(raw: bytes, depth_max: int, keys_max: int, containers_max: int) -> None:
    """Raise if the text exceeds a bound, whether it is JSON or not."""
    bare = _STRING.sub(b"", raw)
    if bare.count(b":") > keys_max:
        _fail(f"more than {keys_max} object keys")
    brackets = bare.translate(None, _NOT_BRACKETS)
    if brackets.count(b"{") + brackets.count(b"[") > containers_max:
        _fail(f"more than {containers_max} objects and lists")
    if max(accumulate(map(_DEPTH_STEP.__getitem__, brackets)), default=0) > depth_max:
        _fail(f"nested deeper than {depth_max} levels")


class _Found(NamedTuple):
    keys: int
    """Of all objects together; a repeated key counts once."""
    depth: int
    is_wide: bool
    """Whether there is an integer that does not fit in 64 bits."""


def _measure(root: object) -> _Found:
    keys, depth, is_wide = 0, -1, False
    level: list[Any] = [[root]]
    while level:
        depth += 1
        below: list[Any] = []
        for container in level:
            children = container
            if type(container) is dict:
                keys += len(container)
                children = container.values()
            for child in children:
                kind = type(child)
                if kind is str:
                    continue
                if kind is dict or kind is list:
                    below.append(child)
                elif kind is int and not INTEGER_MIN <= child <= INTEGER_MAX:
                    is_wide = True
        level = below
    return _Found(keys, depth, is_wide)


def _refuse_duplicate(raw: bytes) -> NoReturn:
    """Parse the text again, slowly, to name the key that is repeated."""
    json.loads(raw.decode("utf-8"), object_pairs_hook=_distinct)
    _fail("a key is repeated in one object")


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            _fail(f"the key {json.dumps(key[:64])} is repeated in one object")
        seen.add(key)


def _check_finite(root: object) -> None:
    pending: list[Any] = [[root]]
    for container in pending:
        for child in container.values() if type(container) is dict else container:
            kind = type(child)
            if kind is float:
                if not isfinite(child):
                    raise ValueError("JSON cannot represent a number that is not finite")
            elif kind is dict or kind is list or kind is tuple:
                pending.append(child)


def _message(error: Exception, depth_max: int) -> str:
    if isinstance(error, RecursionError):
        return f"nested deeper than {depth_max} levels"
    if isinstance(error, UnicodeDecodeError):
        return "text that is not UTF-8"
    return str(error).removeprefix("JSON is malformed: ")


def _fail(json_error: str) -> NoReturn:
    message = f"The body is not acceptable JSON: {json_error}."
    raise InvalidInput(Reason.MALFORMED_JSON, message, json_error=json_error)
