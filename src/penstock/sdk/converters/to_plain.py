"""Converts Python values to plain data: null, booleans, numbers, text, bytes, lists, and maps with text keys."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.core import payload_codec
from penstock.core.payload_codec import DEPTH_MAX

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
PATH_CHARS_MAX: Final = 100
_TEXT_FORM: Final = (date, time, timedelta, UUID, Decimal)


class NotSerializable(Exception):
    """A value has no plain form: the position and the problem."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path

    def below(self, step: str) -> NotSerializable:
        """Return the error with its position prefixed by one more step."""
        path = f"{step}{self.path}"
        return NotSerializable(
            self.problem, path if len(path) <= PATH_CHARS_MAX else f"{path[:PATH_CHARS_MAX]}…"
        )


def to_plain(value: object, depth_left: int = DEPTH_MAX) -> Any:
    """Return the plain form of a value. Raises `NotSerializable` with the position."""
    if value is None or isinstance(value, bool | bytes):
        return value
    if isinstance(value, Enum):
        return to_plain(value.value, depth_left)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _number(value)
    if not depth_left:
        raise NotSerializable(f"is nested deeper than {DEPTH_MAX} levels, or contains itself")
    return _composed(value, depth_left - 1)


def _composed(value: object, depth_left: int) -> Any:
    if isinstance(value, list | tuple | deque):
        return _list(value, depth_left)
    if isinstance(value, Mapping):
        return _map(value, depth_left)
    kind: Any = type(value)
    members = _members(kind)
    if members is not None:
        return members(value, depth_left)
    if isinstance(value, set | frozenset):
        return _ordered(_list(value, depth_left))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, _TEXT_FORM):
        return _as_text(value)
    raise NotSerializable(_no_form(value))


# Scalars


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotSerializable("is text with half of a surrogate pair") from None
    return str(value)


def _number(value: float) -> int | float:
    if isinstance(value, int):
        if not LONG_MIN <= value <= LONG_MAX:
            raise NotSerializable("is a whole number beyond 64 bits: send it as text")
        return int(value)
    if not isfinite(value):
        named = "NaN" if value != value else "infinity" if value > 0 else "-infinity"
        raise NotSerializable(f"is {named}, which is not a number that can be sent: None can be")
    return float(value)


def _as_text(value: object) -> Any:
    if isinstance(value, datetime):
        offset = value.utcoffset()
        if offset is not None and offset % timedelta(minutes=1):
            value = value.astimezone(UTC)
    return msgspec.to_builtins(value)


# Containers


def _list(items: Iterable[object], depth_left: int) -> list[Any]:
    sent: list[Any] = []
    try:
        for item in items:
            sent.append(to_plain(item, depth_left))  # noqa: PERF401 - how many there are tells which one failed
    except NotSerializable as error:
        raise error.below(f"[{len(sent)}]") from None
    return sent


def _ordered(items: list[Any]) -> list[Any]:
    """Sort the items of a set in an order that every process shares, so that a replay encodes the same bytes."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=payload_codec.encode)


def _map(entries: Mapping[Any, object], depth_left: int) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for key, value in entries.items():
        text = _key(key)
        if text in sent:
            raise NotSerializable(f"has two keys that are both sent as {text!r}")
        try:
            sent[text] = to_plain(value, depth_left)
        except NotSerializable as error:
            raise error.below(f".{text}" if text.isidentifier() else f"[{text!r}]") from None
    return sent


def _key(key: object) -> str:
    named = key.value if isinstance(key, Enum) else key
    if isinstance(named, str):
        return _text(named)
    if isinstance(named, int | UUID) and not isinstance(named, bool):
        return str(int(named)) if isinstance(named, int) else str(named)
    raise NotSerializable(
        f"has the key {key!r}, a {type(key).__name__}: keys are text, whole numbers, UUIDs or enums"
    )


# Objects with fields

_Members = Callable[[Any, int], Any]


@lru_cache(maxsize=4096)
def _members(kind: type) -> _Members | None:
    """Return how the fields of a class are encoded; None for a class that does not declare fields."""
    if is_pydantic(kind):
        return _dumped
    if issubclass(kind, msgspec.Struct):
        return _struct_members(kind)
    if dataclasses.is_dataclass(kind):
        return _named_members([field.name for field in dataclasses.fields(kind)])
    declared = getattr(kind, "__attrs_attrs__", None)
    return None if declared is None else _named_members([field.name for field in declared])


def _named_members(names: Iterable[str]) -> _Members:
    known = tuple(names)

    def members(value: object, depth_left: int) -> dict[str, Any]:
        sent: dict[str, Any] = {}
        for name in known:
            if hasattr(value, name):
                sent[name] = _member(value, name, depth_left)
        return sent

    return members


def _member(value: object, name: str, depth_left: int) -> Any:
    try:
        return to_plain(getattr(value, name), depth_left)
    except NotSerializable as error:
        raise error.below(f".{name}") from None


def _struct_members(kind: type[msgspec.Struct]) -> _Members:
    config = kind.__struct_config__
    known = tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))

    def as_map(value: object, depth_left: int) -> dict[str, Any]:
        sent = {} if config.tag is None else {str(config.tag_field): config.tag}
        for name, encoded in known:
            if getattr(value, name) is not msgspec.UNSET:
                sent[encoded] = _member(value, name, depth_left)
        return sent

    def as_list(value: object, depth_left: int) -> list[Any]:
        sent = [_member(value, name, depth_left) for name, _ in known]
        return sent if config.tag is None else [config.tag, *sent]

    return as_list if config.array_like else as_map


# Pydantic, if the user has it


def is_pydantic(kind: object) -> bool:
    """Whether a class is a pydantic model or dataclass, without importing pydantic."""
    return "pydantic" in sys.modules and isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


@lru_cache(maxsize=1024)
def pydantic_adapter(kind: type) -> Any:
    return sys.modules["pydantic"].TypeAdapter(kind)


def _dumped(value: object, depth_left: int) -> Any:
    kind: Any = type(value)
    try:
        dumped = pydantic_adapter(kind).dump_python(value, mode="json", by_alias=True)
    except Exception as error:
        raise NotSerializable(f"cannot be written by pydantic: {error}") from error
    return to_plain(dumped, depth_left)


def _no_form(value: object) -> str:
    if isinstance(value, type):
        return f"is the class {value.__name__} itself, not a value of it"
    name = type(value).__name__
    if isinstance(value, Iterable):
        return f"is of the type {name}, which cannot be sent: make a list of it"
    return (
        f"is of the type {name}, which cannot be sent: make {name} a dataclass, a msgspec Struct or a pydantic "
        "model, or send what it is made of"
    )
