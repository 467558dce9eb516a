"""Appending events to a history, and their effect on what the code waits for.

Theory of operation
-------------------
A history is an append-only list; sequence numbers are dense, from 1 (`history-only-grows`). Every event of a run goes
through `record`: events that commands produced, and events from outside (results, timers, signals, updates). For each
one the recorder

1. drops it if the code no longer awaits it (the timer of a condition that was met, a cancelled member of a selection, a
   call that a cancellation interrupted): a step ends once;
2. appends it under the next sequence number;
3. updates `Run.waits` (see `core/waits.py`), and appends what follows directly from it, such as `SelectionResolved`;
   The result of a selection is held back while a cancellation may still take its place (`release_held`);
4. notes whether the code must run, so that the caller schedules a workflow task.

It is a pure fold, so the same events give the same history on every server and in every retry of a transaction. The
order is decided before: the engine buffers events from outside while a workflow task is leased and records them behind
the commands of its completion, because those were computed without them.

Close events are recorded by `record_last`, which changes no waits: nothing follows the end of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.external_payloads import recorded
from penstock.core.history import parallel_groups
from penstock.core.history.events import ENDED, SUCCEEDED, WAKES_ALWAYS, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT, SIGNAL_TIMEOUT, signal_applied
from penstock.core.model import NewEvent, RecordedEvent, Run
from penstock.core.waits import Selection, SelectionMember, Waits

_MESSAGES = (EventType.SIGNAL_RECEIVED, EventType.UPDATE_APPLIED)
_EXTERNAL_RESPONSES = (EventType.EXTERNAL_REQUEST_DELIVERED, EventType.EXTERNAL_REQUEST_FAILED)
_AWAITABLE = ENDED | WAKES_ALWAYS | {*_MESSAGES, EventType.COOPERATIVE_CANCELLATION_REQUESTED}
"""Types that code may wait for; all others are only appended."""


class RecordedEvents(Struct, frozen=True):
    """A run with events appended to its history."""

    run: Run
    lines: tuple[RecordedEvent, ...]
    wakes: bool
    """Whether a workflow task is needed."""


def record(run: Run, events: Sequence[NewEvent], now_ms: int, task_id: str | None = None) -> RecordedEvents:
    """Append events to the run's history, each followed by the events that it causes."""
    recorder = _Recorder(run, now_ms, task_id)
    for event in events:
        recorder.add(event)
    return recorder.done()


def record_last(run: Run, events: Sequence[NewEvent], now_ms: int) -> RecordedEvents:
    """Append the last events of a run, with no effect on what it waits for."""
    recorder = _Recorder(run, now_ms, None)
    for event in events:
        recorder.write(event)
    return recorder.done()


class _Recorder:
    """Appends events to the history of one run."""

    __slots__ = ("_before", "_lines", "_now_ms", "_run", "_task_id", "_waits", "_wakes")

    def __init__(self, run: Run, now_ms: int, task_id: str | None) -> None:
        self._run = run
        self._now_ms = now_ms
        self._task_id = task_id
        self._before = run.waits
        self._waits = self._before
        self._lines: list[RecordedEvent] = []
        self._wakes = False

    def add(self, event: NewEvent) -> None:
        if event.type not in _AWAITABLE:
            self.write(event)
        elif self._waits.concurrent and event.type in WAKES_ALWAYS:
            self._record_waking(event)
        elif event.type == EventType.COOPERATIVE_CANCELLATION_REQUESTED:
            self._record_cancellation(event)
        elif event.type in ENDED and self._waits.interrupts(event.payload.get("sequence")):
            return
        elif event.type in _MESSAGES:
            self._record_message(event)
        elif event.type == EventType.TIMER_FIRED and event.payload.get("timer_kind") == SIGNAL_TIMEOUT:
            self._record_signal_timeout(event)
        elif event.type == EventType.TIMER_FIRED and event.payload.get("timer_kind") == CONDITION_TIMEOUT:
            self._record_timeout(event)
        elif event.type in ENDED:
            self._end_step(event)
        else:
            self.write(event)

    def done(self) -> RecordedEvents:
        run = replace(
            self._run,
            last_sequence=self._run.last_sequence + len(self._lines),
            last_progress_at_ms=self._now_ms,
        )
        if self._waits is not self._before:
            run = replace(run, waits=self._waits)
        return RecordedEvents(run, tuple(self._lines), self._wakes)

    def write(self, event: NewEvent) -> RecordedEvent:
        place = self._run.last_sequence + len(self._lines) + 1
        line = RecordedEvent(
            self._run.run_id,
            place,
            event.type,
            json_text.written(recorded(event.payload)),
            self._now_ms,
            self._task_id,
        )
        self._lines.append(line)
        return line

    def _record_waking(self, event: NewEvent) -> None:
        """Record an event that always wakes concurrent code. The response of another run is recorded once."""
        if event.type in _EXTERNAL_RESPONSES:
            step = event.payload.get("sequence")
            if step not in self._waits.external:
                return
            left = tuple(each for each in self._waits.external if each != step)
            self._waits = replace(self._waits, external=left)
        self.write(event)
        self._wakes = True

    def _record_cancellation(self, event: NewEvent) -> None:
        """Record a cancellation request, and keep its place: results before it stand."""
        line = self.write(event)
        asked = self._waits.cancellation
        if asked is not None:
            self._waits = replace(self._waits, cancellation=replace(asked, event=line.sequence))
        self._wakes = True

    def _record_message(self, event: NewEvent) -> None:
        """Record a signal or an update, which may satisfy an open condition or the wait for that signal."""
        wait = self._waits.signal
        is_awaited = wait is not None and not wait.applied and event.payload.get("signal_name") == wait.name
        if wait is not None and is_awaited and event.type == EventType.SIGNAL_RECEIVED:
            self.write(NewEvent(event.type, {**event.payload, "signal_wait_id": wait.id}))
            self.write(signal_applied(wait, event.payload))
            left = replace(wait, applied=True) if wait.timer_id is not None else None
            self._waits = replace(self._waits, signal=left)
            self._wakes = True
        else:
            self.write(event)
        condition = self._waits.condition
        if condition is not None:
            self._waits = replace(self._waits, condition=replace(condition, heard=True))
            self._wakes = True

    def _record_timeout(self, event: NewEvent) -> None:
        """Record the timer of a condition, unless the wait is already over."""
        if parallel_groups.outermost(event.payload) is not None:
            if not self._is_cancelled(event):
                self.write(event)
                self._waits = replace(self._waits, signals_deferred=not self._waits.concurrent)
            return
        condition = self._waits.condition
        if condition is not None and condition.id == event.payload.get("condition_wait_id"):
            self.write(event)
            self._waits = replace(self._waits, condition=None, signals_deferred=not self._waits.concurrent)
            self._wakes = True

    def _record_signal_timeout(self, event: NewEvent) -> None:
        """Record the timer of a wait for one signal, unless the signal came first."""
        wait = self._waits.signal
        if wait is not None and not wait.applied and wait.id == event.payload.get("signal_wait_id"):
            self.write(event)
            self._waits = replace(self._waits, signal=None)
            self._wakes = True
        elif wait is not None and wait.id == event.payload.get("signal_wait_id"):
            self._waits = replace(self._waits, signal=replace(wait, fired=True))

    def _end_step(self, event: NewEvent) -> None:
        outer = parallel_groups.outermost(event.payload)
        if outer is None:
            self.write(event)
            self._wakes = True
        elif parallel_groups.is_selection(outer):
            self._end_selected(event, parallel_groups.group_id(outer), int(outer["selection_member_index"]))
        else:
            self.write(event)
            self._end_in_group(parallel_groups.group_id(outer))
        self._wakes |= self._waits.undelivered is not None

    def _end_in_group(self, group_id: str) -> None:
        """Wake the code when all members have ended; an unknown group counts as complete."""
        left = self._waits.groups.get(group_id, 1) - 1
        others = {each: count for each, count in self._waits.groups.items() if each != group_id}
        if left > 0:
            others[group_id] = left
        else:
            self._wakes = True
        self._waits = replace(self._waits, groups=others)

    def _is_cancelled(self, event: NewEvent) -> bool:
        outer = parallel_groups.outermost(event.payload)
        if outer is None or not parallel_groups.is_selection(outer):
            return False
        selection = self._waits.selection(parallel_groups.group_id(outer))
        member = None if selection is None else selection.member(int(outer["selection_member_index"]))
        return member is None or member.cancelled

    def _end_selected(self, event: NewEvent, group_id: str, index: int) -> None:
        selection = self._waits.selection(group_id)
        member = None if selection is None else selection.member(index)
        if selection is None or member is None or member.cancelled:
            return
        line = self.write(event)
        failed = event.type not in SUCCEEDED
        left = member.left - 1
        decided = not member.done and (failed or left == 0)
        member = replace(member, left=left, done=member.done or decided)
        self._wakes |= decided or left == 0
        selection = selection.with_member(member)
        if decided and not selection.resolved and selection.held is None:
            asked = self._waits.undelivered
            if asked is not None and asked.event:
                selection = replace(selection, held=(index, line.sequence, line.type))
            else:
                selection = replace(selection, resolved=True)
                self.write(_resolution(selection, member, line.id, line.type))
        self._waits = self._waits.with_selection(selection)


def release_held(run: Run, waiting: Waits) -> tuple[Waits, list[NewEvent]]:
    """Record the results of selections that were held back for a delivery: the code has run, and did not deliver."""
    events: list[NewEvent] = []
    for selection in waiting.selections:
        if selection.held is None:
            continue
        index, sequence, kind = selection.held
        released = replace(selection, resolved=True, held=None)
        events.append(_resolution(released, selection.members[index], f"{run.run_id}-{sequence}", kind))
        waiting = waiting.with_selection(released)
    return waiting, events


def _resolution(selection: Selection, member: SelectionMember, identity: str, kind: str) -> NewEvent:
    payload: dict[str, Any] = {
        "selection_group_id": selection.id,
        "selection_group_base_sequence": selection.base,
        "selection_group_size": selection.size,
        "member_key": member.key,
        "member_index": member.index,
        "member_base_sequence": member.base,
        "member_size": member.size,
        "operation_kind": member.kind,
        "operation_identity": member.identity,
        "outcome": "completed" if kind in SUCCEEDED else "failed",
        "resolution_event_id": identity,
        "resolution_event_type": kind,
    }
    return NewEvent(EventType.SELECTION_RESOLVED, payload)


def with_opened(waiting: Waits, extra: dict[str, Any], identity: str) -> Waits:
    """Add the open step of a command to the group or selection that it belongs to."""
    outer = parallel_groups.outermost(extra)
    if outer is None:
        return waiting
    group_id = parallel_groups.group_id(outer)
    if not parallel_groups.is_selection(outer):
        if group_id in waiting.groups:
            return waiting
        return replace(waiting, groups={**waiting.groups, group_id: parallel_groups.size(outer)})
    selection = waiting.selection(group_id) or Selection(
        group_id, parallel_groups.base(outer), parallel_groups.size(outer)
    )
    index = int(outer["selection_member_index"])
    if selection.member(index) is None:
        size = int(outer["selection_member_size"])
        base = int(outer["selection_member_base_sequence"])
        kind = str(outer["selection_member_kind"])
        member = SelectionMember(
            key=outer["selection_member_key"],
            index=index,
            base=base,
            size=size,
            kind=kind,
            identity=f"group:{base}:{size}" if kind == "group" else identity,
            left=size,
        )
        selection = selection.with_member(member)
    return waiting.with_selection(selection)
