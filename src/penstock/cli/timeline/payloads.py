"""Shows the payloads of an event: cut to a glance, whole, or not at all."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.cli.output.payload_text import opened

_FIELDS = ("arguments", "input", "input_envelope", "result", "output", "value", "entries", "attributes")
_ONE_LINE_MAX = 80
_STREAM_SIGNAL = "__durable_workflow_message_stream"


class PayloadDisplay(enum.Enum):
    """How much of a payload is shown."""

    SHORT = "short"
    FULL = "full"
    NONE = "none"


def payloads_of(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The decoded payloads of an event by field name; equal values are listed once."""
    seen: list[Any] = []
    for field in _FIELDS:
        if payload.get(field) is None:
            continue
        value = opened(payload[field])
        if value not in seen:
            seen.append(value)
            yield field.removesuffix("_envelope"), value


def message_of(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message of a stream that a signal carries, if it carries one."""
    if payload.get("signal_name") != _STREAM_SIGNAL:
        return None
    arguments = opened(payload.get("arguments") or payload.get("input"))
    carried = arguments[0] if isinstance(arguments, list) and arguments else None
    if not isinstance(carried, Mapping):
        return None
    return {**carried, "payload": opened(carried.get("payload_envelope"))}


def in_short(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def in_full(value: Any) -> list[str]:
    """A value on as many lines as it needs."""
    short = in_short(value)
    if len(short) <= _ONE_LINE_MAX:
        return [short]
    return json.dumps(value, ensure_ascii=False, indent=2, default=str).splitlines()
