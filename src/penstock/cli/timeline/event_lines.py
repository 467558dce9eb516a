"""Renders one event as a line: its subject, outcome and payloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cli.output.times import setting
from penstock.cli.timeline.dispatch_facts import dispatch_facts, dispatch_lines
from penstock.cli.timeline.failures import failure_lines, reason_alone
from penstock.cli.timeline.payloads import PayloadDisplay, in_full, in_short, message_of, payloads_of

_SUBJECT_FIELDS = (
    "workflow_type", "activity_type", "child_workflow_type", "signal_name", "update_name", "query_name",
    "condition_key", "change_id", "stream_name", "limit_kind",
)  # fmt: skip
_SHARED_TOKEN = "shared"
_STYLES = {
    "Completed": "green",
    "Applied": "green",
    "Fired": "green",
    "Satisfied": "green",
    "Failed": "red",
    "TimedOut": "red",
    "Cancelled": "red",
    "Terminated": "red",
    "Rejected": "red",
    "Retry": "yellow",
    "Requested": "yellow",
    "Signal": "magenta",
    "Update": "magenta",
}


@dataclass(frozen=True, slots=True)
class EventLine:
    """A rendered event: its name and colour, one line of facts, and the lines below it."""

    kind: str
    style: str
    depth: int
    text: str
    failure: tuple[str, ...] = ()
    payload: tuple[str, ...] = ()


def kind_of(event: Mapping[str, Any]) -> str:
    """The name of what happened."""
    return str(event.get("event_type") or event.get("type") or "?")


def describe_event(event: Mapping[str, Any], took: str, payloads: PayloadDisplay) -> EventLine:
    """Render an event; `took` is the duration of the step that it ends."""
    kind = kind_of(event)
    payload = event.get("payload")
    if not isinstance(payload, Mapping):
        return EventLine(kind, _style(kind), 0, took)
    facts = [*_facts(payload, took), *_principal(event)]
    carried = list(_carried(payload))
    if payloads is PayloadDisplay.SHORT:
        facts.extend(f"{field} {in_short(value)}" for field, value in carried)
    below = [*dispatch_lines(payload), *(line for field, value in carried for line in _full(field, value))]
    because = reason_alone(payload)
    if because is not None:
        facts.insert(0, because)
    failure = () if because is not None else tuple(failure_lines(payload))
    return EventLine(
        kind,
        "red" if failure and _style(kind) == "green" else _style(kind),
        _depth(payload),
        "  ".join(facts),
        failure=failure,
        payload=tuple(below) if payloads is PayloadDisplay.FULL else (),
    )


def _principal(event: Mapping[str, Any]) -> Iterator[str]:
    """Who asked for it. A token that everybody shares says nothing."""
    principal = event.get("principal")
    if isinstance(principal, Mapping) and principal.get("id") not in (None, "", _SHARED_TOKEN):
        yield f"by {principal['id']}"


def _style(kind: str) -> str:
    return next((style for part, style in _STYLES.items() if part in kind), "cyan")


def _depth(payload: Mapping[str, Any]) -> int:
    path = payload.get("parallel_group_path")
    return len(path) if isinstance(path, list) else 1 if payload.get("parallel_group_id") else 0


def _facts(payload: Mapping[str, Any], took: str) -> Iterator[str]:
    message = message_of(payload)
    if message is not None:
        yield f"message stream {message.get('stream_name')}"
        if message.get("position") is not None:
            yield f"position {message['position']}"
    else:
        yield from dict.fromkeys(str(payload[field]) for field in _SUBJECT_FIELDS if payload.get(field))
    if isinstance(summary := payload.get("summary"), str) and summary:
        yield f"({summary})"
    yield from _child(payload)
    yield from _member(payload)
    yield from dispatch_facts(payload)
    if took:
        yield took
    elif isinstance(attempt := payload.get("attempt_number"), int):
        yield f"attempt {attempt}"
    yield from _times(payload, is_over=bool(took))
    yield from _links(payload)


def _child(payload: Mapping[str, Any]) -> Iterator[str]:
    if child := payload.get("child_workflow_instance_id"):
        yield str(child)
    policy = payload.get("parent_close_policy")
    if policy and policy != "abandon":
        yield f"on close of the parent: {policy}"


def _member(payload: Mapping[str, Any]) -> Iterator[str]:
    """Which member of a parallel group, or of a selection, this is."""
    index, size = payload.get("parallel_group_index"), payload.get("parallel_group_size")
    if isinstance(index, int) and isinstance(size, int):
        yield f"{index + 1} of {size}"
    if (member := payload.get("member_key")) is not None:
        outcome = payload.get("outcome")
        yield f"member {member}" + (f" {outcome}" if outcome else "")
    if payload.get("execution_mode") == "local":
        yield "local"


def _times(payload: Mapping[str, Any], *, is_over: bool) -> Iterator[str]:
    if payload.get("timer_kind") == "condition_timeout":
        yield "timeout of the wait"
    delay = payload.get("delay_seconds")
    if isinstance(delay, int | float) and not is_over:
        yield f"for {setting(delay)}"
    if isinstance(timeout := payload.get("timeout_seconds"), int | float):
        yield f"at most {setting(timeout)}"
    if isinstance(backoff := payload.get("retry_backoff_seconds"), int | float):
        yield f"again in {setting(backoff)}"
    if isinstance(version := payload.get("version"), int):
        yield f"version {version}"


def _links(payload: Mapping[str, Any]) -> Iterator[str]:
    if run := payload.get("continued_to_run_id"):
        yield f"continues as run {run}"
    if run := payload.get("continued_from_run_id"):
        yield f"continues from run {run}"
    if parent := payload.get("parent_workflow_instance_id"):
        yield f"child of {parent}"


def _carried(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    message = message_of(payload)
    if message is None:
        yield from payloads_of(payload)
    elif message.get("payload") is not None:
        yield "message", message["payload"]


def _full(field: str, value: Any) -> list[str]:
    first, *rest = in_full(value)
    return [f"{field} {first}", *rest]
