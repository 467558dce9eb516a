"""Tells a history as a timeline: one line per event, with the one detail that a reader looks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.contents import opened
from penstock.cli.moments import parsed, span
from penstock.cli.screen import Cell, Screen

_DETAIL_CHARACTERS_MAX = 160

_PAYLOAD_FIELDS = ("output", "result", "arguments", "input", "value", "entries")
_SUBJECT_FIELDS = (
    "workflow_type", "activity_type", "child_workflow_type", "signal_name", "update_name", "query_name",
    "condition_key", "change_id",
)  # fmt: skip
_CLOSING_STYLES = {
    "Completed": "green",
    "Applied": "green",
    "Fired": "green",
    "Satisfied": "green",
    "Failed": "red",
    "TimedOut": "red",
    "Cancelled": "red",
    "Terminated": "red",
    "Retry": "yellow",
}


def draw_timeline(screen: Screen, events: Sequence[Mapping[str, Any]]) -> None:
    """Draw the events in order, each with the time since the first."""
    first = next((at for event in events if (at := _instant(event))), None)
    rows = []
    for event in events:
        at = _instant(event)
        after = (
            Cell("-", "dim") if at is None or first is None else Cell(_offset((at - first).total_seconds()))
        )
        kind = str(event.get("event_type") or event.get("type") or "?")
        rows.append(
            [Cell(str(event.get("sequence", "-")), "dim"), after, Cell(kind, _style(kind)), _detail(event)]
        )
    screen.table(["#", "after", "event", "detail"], rows)


def _instant(event: Mapping[str, Any]) -> datetime | None:
    return parsed(event.get("timestamp") or event.get("recorded_at"))


def _offset(seconds: float) -> str:
    if seconds < 60:
        return f"+{seconds:.3f} s"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"+{hours} h {minutes:02} m" if hours else f"+{minutes} m {rest:02.0f} s"


def _style(kind: str) -> str:
    return next((style for part, style in _CLOSING_STYLES.items() if part in kind), "cyan")


def _detail(event: Mapping[str, Any]) -> Cell:
    payload = event.get("payload")
    if not isinstance(payload, Mapping):
        return Cell("")
    text = "  ".join(_facts(payload))
    if len(text) > _DETAIL_CHARACTERS_MAX:
        text = f"{text[: _DETAIL_CHARACTERS_MAX - 1]}…"
    return Cell(text)


def _facts(payload: Mapping[str, Any]) -> Iterator[str]:
    for field in _SUBJECT_FIELDS:
        if payload.get(field):
            yield str(payload[field])
    if isinstance(attempt := payload.get("attempt_number"), int):
        yield f"attempt {attempt}"
    if isinstance(delay := payload.get("delay_seconds"), int | float):
        yield f"for {span(delay)}"
    if isinstance(backoff := payload.get("retry_backoff_seconds"), int | float):
        yield f"again in {span(backoff)}"
    yield from _failure(payload)
    for field in _PAYLOAD_FIELDS:
        if payload.get(field) is not None:
            yield f"{field} {json.dumps(opened(payload[field]), ensure_ascii=False)}"


def _failure(payload: Mapping[str, Any]) -> Iterator[str]:
    kind = payload.get("exception_type") or payload.get("exception_class") or payload.get("timeout_kind")
    said = payload.get("message") or payload.get("reason")
    if kind and said:
        yield f"{kind}: {said}"
    elif kind or said:
        yield str(kind or said)
