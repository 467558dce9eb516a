"""Redrive: the part of a failed run's history from which a new run continues.

Theory of operation
-------------------
A redriven run begins with a copy of the beginning of the failed run's history, so that its code replays the results of
completed steps instead of carrying them out again. Which part may be copied?

- It ends where a workflow task of the failed run began: the code has seen exactly these events before, and decides
  anew what follows.
- Every step that it opens has ended in it. Then nothing has to be reopened: no activity, timer or child of the new run
  refers to rows of the old one.
- It lacks the steps whose failure ended the run. They are the ones that had failed when the last workflow task began,
  and the one that the failure names, by its step or by its message.

The longest such part is taken. The first event alone always fits, and means to begin from the start. Sequence numbers
stay the same, because the new run's first event takes the place of the old one's.

Rejected: copying everything and reopening what had failed. It keeps more results of steps that ran beside the failed
one, but needs the rows of open steps, groups and waits rebuilt from events, for every kind of step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.core import json_text
from penstock.core.history.events import CLOSING, ENDED, MESSAGE_STREAM_SIGNAL, SUCCEEDED, EventType
from penstock.core.model import NewEvent, RecordedEvent

_OPENED: Final = frozenset(
    {
        EventType.ACTIVITY_SCHEDULED,
        EventType.TIMER_SCHEDULED,
        EventType.CHILD_WORKFLOW_SCHEDULED,
        EventType.CONDITION_WAIT_OPENED,
        EventType.EXTERNAL_REQUEST_INITIATED,
    }
)
_CLOSED: Final = ENDED | {
    EventType.TIMER_CANCELLED,
    EventType.EXTERNAL_REQUEST_DELIVERED,
    EventType.EXTERNAL_REQUEST_FAILED,
}
_WITH_THE_RUN: Final = frozenset(
    {
        EventType.ACTIVITY_CANCELLED,
        EventType.TIMER_CANCELLED,
        EventType.CHILD_RUN_CANCELLED,
        EventType.CHILD_RUN_TERMINATED,
    }
)
"""Events of steps that the end of the run ended."""
_BOUND_TO_RUN: Final = frozenset(
    {
        EventType.SELECTION_RESOLVED,
        EventType.SELECTION_OPERATION_CANCELLED,
        EventType.COOPERATIVE_CANCELLATION_REQUESTED,
        EventType.COOPERATIVE_CANCELLATION_DELIVERED,
    }
)
"""Events that name their run, or other events by id, which a copy does not have."""


class RedriveStart(Struct, frozen=True):
    """What a redriven run takes over from the failed one."""

    events: Sequence[RecordedEvent]
    """The events after the start, up to where the code continues."""
    signals: Sequence[NewEvent]
    """Signals that came later."""
    last_step: int
    concurrent: bool


def restart(history: Sequence[RecordedEvent]) -> RedriveStart | None:
    """Where a redrive of a failed run continues; None if its history cannot be continued by another run.

    Args:
        history: The whole history of a closed run, from its first event.
    """
    events = [_HistoryLine(each.type, json_text.read(each.payload), each.task_id) for each in history]
    if any(event.payload.get("signal_name") == MESSAGE_STREAM_SIGNAL for event in events):
        return None
    end = _end_of_work(events)
    failed = _failed_steps(events, end)
    cut = next(each for each in _cuts(events, end) if _is_whole(events[:each], failed))
    kept = events[:cut]
    later = [event for event in events[cut:] if event.type == EventType.SIGNAL_RECEIVED]
    return RedriveStart(
        events=history[1:cut],
        signals=[NewEvent(EventType.SIGNAL_RECEIVED, event.payload) for event in later],
        last_step=max((event.step or 0 for event in kept), default=0),
        concurrent=any(event.type == EventType.WORKFLOW_TASK_COMPLETED for event in kept),
    )


class _HistoryLine(Struct, frozen=True):
    type: str
    payload: Mapping[str, Any]
    task_id: str | None

    @property
    def step(self) -> int | None:
        step = self.payload.get("sequence")
        return step if isinstance(step, int) else None


def _end_of_work(events: Sequence[_HistoryLine]) -> int:
    """The number of events before those that closed the run."""
    end = len(events)
    while end > 1 and (events[end - 1].type in CLOSING or events[end - 1].type in _WITH_THE_RUN):
        end -= 1
    return end


def _cuts(events: Sequence[_HistoryLine], end: int) -> Iterator[int]:
    """The places where workflow tasks began, the last first; and the one behind the first event."""
    yield end
    for index in range(end - 1, 1, -1):
        task_id = events[index].task_id
        if task_id is not None and task_id != events[index - 1].task_id:
            yield index
    yield 1


def _failed_steps(events: Sequence[_HistoryLine], end: int) -> Collection[int | None]:
    """The steps whose failure ended the run."""
    failure = next((each.payload for each in reversed(events) if each.type in CLOSING), {})
    message = str(failure.get("message") or "")
    failed: set[int | None] = {failure.get("failed_step_sequence")}
    index = end - 1
    while index > 0 and events[index].task_id is not None:
        index -= 1
    while index > 0 and events[index].task_id is None:
        if _has_failed(events[index]):
            failed.add(events[index].step)
        index -= 1
    for event in reversed(events[: index + 1]):
        if _has_failed(event) and (said := str(event.payload.get("message") or "")) and said in message:
            failed.add(event.step)
            break
    return failed - {None}


def _has_failed(event: _HistoryLine) -> bool:
    return event.type in ENDED and event.type not in SUCCEEDED


def _is_whole(kept: Sequence[_HistoryLine], failed: Collection[int | None]) -> bool:
    """Whether all that was begun in a part of a history has ended in it, and no failed step is in it."""
    open_steps: set[int | None] = set()
    updates: set[object] = set()
    for event in kept:
        if event.type in _BOUND_TO_RUN or (event.step is not None and event.step in failed):
            return False
        if event.type in _OPENED:
            open_steps.add(event.step)
        elif event.type in _CLOSED:
            open_steps.discard(event.step)
        elif event.type == EventType.UPDATE_ACCEPTED:
            updates.add(event.payload.get("update_id"))
        elif event.type == EventType.UPDATE_COMPLETED:
            updates.discard(event.payload.get("update_id"))
    return not open_steps and not updates
