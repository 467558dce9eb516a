"""How events take their place in a history, and what each of them changes in what the code waits for.

Places are dense, from 1: `history-only-grows`. An event that tells of something which the code has given up (the timer
of a condition that was met, a member of a selection that was cancelled) is left out: a step ends once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.history import parallel_groups
from penstock.core.history.events import ENDED, SUCCEEDED, WAKES_ALWAYS, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT
from penstock.core.model import NewEvent, RecordedEvent, Run
from penstock.core.waits import Selection, SelectionMember, Waits

_HEARD = (EventType.SIGNAL_RECEIVED, EventType.UPDATE_APPLIED)
_ANSWERS = (EventType.EXTERNAL_REQUEST_DELIVERED, EventType.EXTERNAL_REQUEST_FAILED)
_HEEDED = ENDED | WAKES_ALWAYS | {*_HEARD}
"""What code may wait for; of all others it knows when they are written."""


class RecordedEvents(Struct, frozen=True):
    run: Run
    lines: tuple[RecordedEvent, ...]
    wakes: bool
    """Whether the workflow code must look."""


def record(run: Run, events: Sequence[NewEvent], now_ms: int, task_id: str | None = None) -> RecordedEvents:
    """Give events the next places of the run's history, and what follows from them right behind them."""
    scribe = _Scribe(run, now_ms, task_id)
    for event in events:
        scribe.take(event)
    return scribe.done()


def record_last(run: Run, events: Sequence[NewEvent], now_ms: int) -> RecordedEvents:
    """The same for the last events of a run: nothing follows from them, for nobody waits any more."""
    scribe = _Scribe(run, now_ms, None)
    for event in events:
        scribe.write(event)
    return scribe.done()


class _Scribe:
    """Writes events down one after the other, for one run."""

    __slots__ = ("_before", "_lines", "_now_ms", "_run", "_task_id", "_waits", "_wakes")

    def __init__(self, run: Run, now_ms: int, task_id: str | None) -> None:
        self._run = run
        self._now_ms = now_ms
        self._task_id = task_id
        self._before = run.waits
        self._waits = self._before
        self._lines: list[RecordedEvent] = []
        self._wakes = False

    def take(self, event: NewEvent) -> None:
        if event.type not in _HEEDED:
            self.write(event)
        elif self._waits.concurrent and event.type in WAKES_ALWAYS:
            self._wake(event)
        elif event.type in _HEARD:
            self._hear(event)
        elif event.type == EventType.TIMER_FIRED and event.payload.get("timer_kind") == CONDITION_TIMEOUT:
            self._time_out(event)
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
            self._run.run_id, place, event.type, json_text.written(event.payload), self._now_ms, self._task_id
        )
        self._lines.append(line)
        return line

    def _wake(self, event: NewEvent) -> None:
        """What the code of a concurrent run hears whatever it waits for. An answer from another run comes once."""
        if event.type in _ANSWERS:
            step = event.payload.get("sequence")
            if step not in self._waits.external:
                return
            left = tuple(each for each in self._waits.external if each != step)
            self._waits = replace(self._waits, external=left)
        self.write(event)
        self._wakes = True

    def _hear(self, event: NewEvent) -> None:
        """A signal or an update: it may be what an open condition waits for."""
        self.write(event)
        condition = self._waits.condition
        if condition is not None:
            self._waits = replace(self._waits, condition=replace(condition, heard=True))
            self._wakes = True

    def _time_out(self, event: NewEvent) -> None:
        """The timer of a condition: it ends the wait, unless that is over already."""
        if parallel_groups.outermost(event.payload) is not None:
            if not self._is_given_up(event):
                self.write(event)
                self._waits = replace(self._waits, signals_deferred=not self._waits.concurrent)
            return
        condition = self._waits.condition
        if condition is not None and condition.id == event.payload.get("condition_wait_id"):
            self.write(event)
            self._waits = replace(self._waits, condition=None, signals_deferred=not self._waits.concurrent)
            self._wakes = True

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

    def _end_in_group(self, group_id: str) -> None:
        """The code goes on when the whole group has ended; a group that is not known may have."""
        left = self._waits.groups.get(group_id, 1) - 1
        others = {each: count for each, count in self._waits.groups.items() if each != group_id}
        if left > 0:
            others[group_id] = left
        else:
            self._wakes = True
        self._waits = replace(self._waits, groups=others)

    def _is_given_up(self, event: NewEvent) -> bool:
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
        selection = selection.with_member(member)
        if decided and not selection.resolved:
            selection = replace(selection, resolved=True)
            self.write(_resolved(selection, member, "failed" if failed else "completed", line))
        self._wakes |= decided or left == 0
        self._waits = self._waits.with_selection(selection)


def _resolved(selection: Selection, member: SelectionMember, outcome: str, line: RecordedEvent) -> NewEvent:
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
        "outcome": outcome,
        "resolution_event_id": line.id,
        "resolution_event_type": line.type,
    }
    return NewEvent(EventType.SELECTION_RESOLVED, payload)


def with_opened(waiting: Waits, extra: dict[str, Any], identity: str) -> Waits:
    """Remember that a member of a group or of a selection is open."""
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
