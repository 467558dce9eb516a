"""The history of a run, one row a step: the events of an activity, a timer, a child or a wait become one row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.server.dashboard.formats import moment_ms
from penstock.server.dashboard.pages.runs.payload_text import short
from penstock.server.operation import Body

_IDENTITIES: Final = (
    "activity_execution_id",
    "timer_id",
    "child_workflow_run_id",
    "condition_wait_id",
    "update_id",
)
_NAMES: Final = (
    "activity_type", "child_workflow_type", "signal_name", "update_name", "condition_key", "change_id",
    "stream_name", "workflow_type",
)  # fmt: skip
_INPUTS: Final = ("arguments", "input")
_RESULTS: Final = ("result", "output", "value")
_ENDINGS: Final = {
    "Completed": "completed",
    "Fired": "completed",
    "Satisfied": "completed",
    "Failed": "failed",
    "TimedOut": "timed_out",
    "Cancelled": "cancelled",
    "Terminated": "terminated",
    "RetryScheduled": "pending",
    "Started": "running",
    "Scheduled": "pending",
    "Opened": "waiting",
    "Accepted": "running",
    "Received": "completed",
}
_TRACE_MAX: Final = 20_000
_QUIET: Final = "WorkflowTaskCompleted"
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)\n?', re.MULTILINE)
_MARKS = re.compile(r"^\s*[~^]+\s*$")
"""A line of a traceback that underlines a part of the one before."""
_SOURCE = re.compile(r"^\s*(?P<at>>?)\s*(?P<number>\d+) \|(?P<text>.*)$")
"""A source line around the one that raised, as workers send it where they are asked to."""
_ENDED: Final = frozenset({"completed", "failed", "timed_out", "cancelled", "terminated"})
FRAMES_SHOWN: Final = 30


class HistoryStep(Struct, frozen=True):
    """One row of the compact history."""

    first: int
    last: int
    name: str
    status: str
    started_at: str
    seconds: float | None
    attempts: int
    input: str
    result: str
    error: str


class FailureFrame(Struct, frozen=True):
    """A frame of a failure: where it is, and the lines of its source that came along."""

    file: str
    line: int
    name: str
    lines: Sequence[tuple[str, str, bool]]
    """Number, text, and whether it is the line that was being carried out."""


class RunFailure(Struct, frozen=True):
    """A failure: its type and message, where it was raised, and the whole trace."""

    kind: str
    message: str
    where: str
    trace: str
    at: str
    of: str
    attempt: int | None
    frames: Sequence[FailureFrame]
    """The innermost first, because that is where it was raised."""

    def with_trace(self, trace: str) -> RunFailure:
        """The same failure with a trace that was found elsewhere."""
        frames = frames_of(trace)
        return replace(self, trace=trace[-_TRACE_MAX:], frames=frames, where=_place(frames))


def steps(events: Sequence[Body]) -> list[HistoryStep]:
    """The steps of some events, newest first; without workflow tasks and what is derived from others."""
    groups: dict[object, list[Body]] = {}
    for event in events:
        if event["type"] != _QUIET and not event.get("derived"):
            groups.setdefault(_identity(event), []).append(event)
    return sorted((_step(group) for group in groups.values()), key=lambda step: -step.last)


def last_failure(events: Sequence[Body]) -> RunFailure | None:
    """The newest failure among events in their order."""
    for event in reversed(events):
        payload = _payload(event)
        inner = payload.get("exception")
        failure = inner if isinstance(inner, Mapping) else payload
        kind = failure.get("type") or payload.get("exception_type")
        if kind and ("Failed" in event["type"] or "Retry" in event["type"]):
            return _failure(event, payload, failure, str(kind))
    return None


def _failure(event: Body, payload: Mapping[str, Any], failure: Mapping[str, Any], kind: str) -> RunFailure:
    trace = str(failure.get("stack_trace") or "")
    frames = frames_of(trace)
    attempt = payload.get("attempt_number")
    return RunFailure(
        kind=kind,
        message=str(failure.get("message") or payload.get("message") or ""),
        where=_place(frames),
        trace=trace[-_TRACE_MAX:],
        at=event["timestamp"],
        of=_name(event, payload),
        attempt=attempt if isinstance(attempt, int) else None,
        frames=frames,
    )


def _place(frames: Sequence[FailureFrame]) -> str:
    return f"{frames[0].file}, line {frames[0].line}, in {frames[0].name}" if frames else ""


def frames_of(trace: str) -> list[FailureFrame]:
    """The frames of a traceback, the innermost first; none of a text that is no traceback of Python."""
    text = trace[-_TRACE_MAX:]
    end, frames = len(text), []
    for each in reversed(list(_FRAME.finditer(text))):
        lines = _source(text[each.end() : end], each["line"])
        frames.append(FailureFrame(each["file"], int(each["line"][:9]), each["name"], lines))
        end = each.start()
    return frames[:FRAMES_SHOWN]


def _source(text: str, line: str) -> list[tuple[str, str, bool]]:
    """The lines below a frame: several with their numbers, or the one that Python prints."""
    given = [each for each in text.splitlines() if each.strip() and not _MARKS.match(each)]
    numbered = [_SOURCE.match(each) for each in given]
    found = [(each["number"], each["text"], bool(each["at"])) for each in numbered if each]
    if found:
        return found
    return [(line, each.strip(), True) for each in given[:1]]


def _identity(event: Body) -> object:
    if event["type"].startswith("Workflow") and "Task" not in event["type"]:
        return "run"  # its start and its end
    payload = _payload(event)
    return next(((name, payload[name]) for name in _IDENTITIES if payload.get(name)), event["sequence"])


def _step(events: Sequence[Body]) -> HistoryStep:
    first, last = events[0], events[-1]
    payloads = [_payload(event) for event in events]
    from_ms, to_ms = moment_ms(first["timestamp"]), moment_ms(last["timestamp"])
    status = _status(last["type"])
    took = None
    if len(events) > 1 and from_ms is not None and to_ms is not None and status in _ENDED:
        took = (to_ms - from_ms) / 1000
    failure = last_failure(events)
    tries = [each.get("attempt_number") for each in payloads]
    return HistoryStep(
        first=first["sequence"],
        last=last["sequence"],
        name=_name(first, payloads[0]),
        status=status,
        started_at=first["timestamp"],
        seconds=took,
        attempts=max((each for each in tries if isinstance(each, int)), default=0),
        input=_carried(payloads, _INPUTS),
        result=_carried(payloads[-1:], _RESULTS),
        error="" if failure is None else f"{failure.kind}: {failure.message}",
    )


def _carried(payloads: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    found = (payload[name] for payload in payloads for name in names if payload.get(name) is not None)
    return next((short(each) for each in found), "")


def _name(event: Body, payload: Mapping[str, Any]) -> str:
    if payload.get("timer_id") and "Timer" in event["type"]:
        return "timer"
    name = next((str(payload[each]) for each in _NAMES if payload.get(each)), "")
    return name or _words(event["type"])


def _words(type_: str) -> str:
    """`SideEffectRecorded` as `side effect recorded`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type_).lower()


def _status(type_: str) -> str:
    return next((status for ending, status in _ENDINGS.items() if type_.endswith(ending)), "completed")


def _payload(event: Body) -> Mapping[str, Any]:
    payload = event.get("payload")
    return payload if isinstance(payload, Mapping) else {}
