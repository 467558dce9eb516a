"""Renders a failure in full: type, message, details, causes and stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.cli.output.payload_text import opened
from penstock.cli.timeline.payloads import in_short

_CAUSES_MAX = 20
_TYPE_FIELDS = ("exception_type", "type", "exception_class", "class", "timeout_kind")
_STACK_FIELDS = ("stack_trace", "traceback", "trace")
_CAUSE_FIELDS = ("cause", "previous")
_STEP = "  "


def failure_lines(payload: Mapping[str, Any]) -> list[str]:
    """The lines of a failure; none if there is no failure."""
    exception = payload.get("exception")
    inner = exception if isinstance(exception, Mapping) else {}
    headline = heading(payload) or heading(inner)
    if not headline:
        return []
    return [*_indented(headline, ""), *_rest({**inner, **_without(payload, inner)}, depth=1)]


def heading(failure: Mapping[str, Any]) -> str:
    """A failure as `Type: message`."""
    kind = next((failure[field] for field in _TYPE_FIELDS if failure.get(field)), None)
    message = failure.get("message") or failure.get("failure_message") or failure.get("reason")
    return ": ".join(str(part) for part in (kind, message) if part)


def reason_alone(payload: Mapping[str, Any]) -> str | None:
    """The reason that a person gave, where there is no error."""
    reason, message = payload.get("reason"), payload.get("message")
    if not reason or message not in (None, reason) or payload.get("exception"):
        return None
    return None if any(payload.get(field) for field in _TYPE_FIELDS) else f"because: {reason}"


def _without(payload: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """The payload's message if the nested exception has none."""
    return {key: value for key, value in payload.items() if value is not None and key not in inner}


def _rest(failure: Mapping[str, Any], depth: int) -> Iterator[str]:
    indent = _STEP * depth
    facts = list(_facts(failure))
    if facts:
        yield f"{indent}{', '.join(facts)}"
    stack = next((failure[field] for field in _STACK_FIELDS if failure.get(field)), None)
    lines = stack if isinstance(stack, list) else str(stack).strip("\n").splitlines() if stack else []
    for line in lines:
        yield f"{indent}{line}"
    cause = next((failure[field] for field in _CAUSE_FIELDS if failure.get(field)), None)
    if isinstance(cause, Mapping) and depth <= _CAUSES_MAX:
        yield from _indented(f"caused by {heading(cause) or in_short(cause)}", indent)
        yield from _rest(cause, depth + 1)
    elif isinstance(cause, str):
        yield from _indented(f"caused by {cause}", indent)


def _facts(failure: Mapping[str, Any]) -> Iterator[str]:
    if failure.get("code") not in (None, "", 0):
        yield f"code {failure['code']}"
    if failure.get("non_retryable") is True:
        yield "not to be retried"
    if (details := failure.get("details")) is not None:
        yield f"details {in_short(opened(details))}"


def _indented(text: str, indent: str) -> list[str]:
    return [f"{indent}{line}" for line in text.splitlines()] or [indent]
