"""The footer of a timeline: the status of the run, its duration and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, plain, status
from penstock.cli.output.times import length, parsed
from penstock.cli.timeline.event_lines import kind_of
from penstock.cli.timeline.progress import draw_open_activities
from penstock.cli.timeline.steps import instant

_CLOSINGS = {
    "WorkflowCompleted": "completed",
    "WorkflowFailed": "failed",
    "WorkflowCancelled": "cancelled",
    "WorkflowTerminated": "terminated",
    "WorkflowTimedOut": "timed_out",
    "WorkflowContinuedAsNew": "continued",
}


_INDENT = 2
_SINGULARS = {
    "activities": "activity",
    "timers": "timer",
    "children": "child",
    "updates": "update",
    "signals": "signal",
}


def closing_of(event: Mapping[str, Any]) -> str | None:
    """How a run ended with this event; None if it did not."""
    return _CLOSINGS.get(kind_of(event))


def draw_footer(
    screen: Screen, described: Mapping[str, Any], events: Sequence[Mapping[str, Any]], count: int | None
) -> None:
    """Draw the status of the run, from its description and the events read after it.

    `count` is how many events the history has; None if not all of it was read.
    """
    ended = next(
        ((closing, event) for event in reversed(events) if (closing := closing_of(event)) is not None), None
    )
    whole = bool(events) and events[0].get("sequence") == 1
    started_at = instant(events[0]) if whole else parsed(described.get("started_at"))
    screen.heading("Where it stands")
    if ended is not None:
        closing, last = ended
        _draw_closed(screen, described, closing, last, _between(started_at, instant(last)), count)
    else:
        until = parsed(described.get("closed_at")) or screen.now
        _draw_open(screen, described, _between(started_at, until), count)


def _draw_closed(
    screen: Screen,
    described: Mapping[str, Any],
    closing: str,
    event: Mapping[str, Any],
    took: ScreenCell,
    count: int | None,
) -> None:
    successor = (event.get("payload") or {}).get("continued_to_run_id")
    screen.facts(
        [
            ("Status", status(closing)),
            ("Took", took),
            ("Events", plain(count or described.get("history_length"))),
            ("Goes on as", plain(successor)),
        ]
    )
    if successor:
        workflow_id = str(described.get("workflow_id"))
        echo_err(f"Read on with {command_hint('workflow', 'history', workflow_id, '--run', str(successor))}.")


def _draw_open(screen: Screen, described: Mapping[str, Any], open_for: ScreenCell, count: int | None) -> None:
    over = bool(described.get("is_terminal"))
    screen.facts(
        [
            ("Status", status(described.get("closed_reason") or described.get("status"))),
            ("Took" if over else "For", open_for),
            ("Events", plain(count or described.get("history_length"))),
            *([] if over else run_status(described)),
        ]
    )
    if not over:
        draw_open_activities(screen, described)
        draw_task_stack(screen, described)


def draw_task_stack(screen: Screen, described: Mapping[str, Any]) -> None:
    """Draw where in the workflow's code its task failed; nothing if it did not."""
    stack = described.get("last_workflow_task_stack_trace")
    if not stack:
        return
    screen.heading("Where the workflow task failed")
    for line in str(stack).splitlines():
        screen.below(ScreenCell(line, "red"), _INDENT)


def run_status(described: Mapping[str, Any]) -> list[tuple[str, ScreenCell]]:
    """Facts about the waits of a run, and what blocks it."""
    pending = described.get("pending")
    work = ("Pending", plain(_pending(pending) if isinstance(pending, Mapping) else None))
    blocked = described.get("blocked")
    if isinstance(blocked, Mapping):
        return [*_blocked(blocked), work]
    waits = ("Waits for", plain(described.get("wait_reason") or described.get("wait_kind")))
    return [_paused(described), waits, work, ("Workflow task", _task_problem(described))]


def _paused(described: Mapping[str, Any]) -> tuple[str, ScreenCell]:
    """Since when, by whom and why the run is paused."""
    pause = described.get("pause")
    if not isinstance(pause, Mapping):
        return "Paused", plain(None)
    by, reason = (pause.get("principal") or {}).get("id"), pause.get("reason")
    said = f"since {pause.get('paused_at')}" + (f" by {by}" if by else "") + (f": {reason}" if reason else "")
    return "Paused", ScreenCell(said, "yellow")


def _pending(pending: Mapping[str, Any]) -> str:
    counts = [(what, count) for what, count in pending.items() if isinstance(count, int) and count > 0]
    return ", ".join(
        f"{count} {_SINGULARS.get(what, what) if count == 1 else what}" for what, count in counts
    )


def _blocked(blocked: Mapping[str, Any]) -> list[tuple[str, ScreenCell]]:
    """Where code and history diverge, with both versions."""
    step = blocked.get("sequence")
    where = "the code does not fit the history" + (f" at step {step}" if step is not None else "")
    if blocked.get("event_sequence") is not None:
        where = f"{where}, event {blocked['event_sequence']}"
    recorded, yielded = blocked.get("recorded"), blocked.get("yielded")
    message = blocked.get("message") if recorded is None and yielded is None else None
    return [
        ("Blocked", ScreenCell(where, "red")),
        ("History has", plain(recorded)),
        ("Code asks for", plain(yielded)),
        ("Said", plain(message)),
        ("Build", plain(blocked.get("build_id"))),
        ("Since", plain(blocked.get("since"))),
        ("To do", ScreenCell("start workers whose code fits; it then continues by itself")),
    ]


def _task_problem(described: Mapping[str, Any]) -> ScreenCell:
    failures = described.get("workflow_task_failures")
    if not failures:
        return plain(None)
    times = "once" if failures == 1 else f"{failures} times in a row"
    return ScreenCell(f"failed {times}: {described.get('last_workflow_task_error')}", "red")


def _between(first: datetime | None, last: datetime | None) -> ScreenCell:
    if first is None or last is None:
        return plain(None)
    return ScreenCell(length(max(0.0, (last - first).total_seconds())))
