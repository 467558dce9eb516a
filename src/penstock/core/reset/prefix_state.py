"""The state of a run at a decision point, computed from its history up to there.

Theory of operation
-------------------
A run that is reset, or forked, begins with a copy of another run's history up to a decision point. Its row must be as
that of the other run was there: what its code waits for, its steps, its memo. That state is a function of the history,
and this module computes it by the same rules that recorded it.

A history alternates between two kinds of events. Those of a workflow task are *commands* that were carried out: each
opens or leaves something (`_OPENERS`), as `command_effects.py` does. All others came from outside, and are given to the
same recorder that recorded them (`history/recorder.py`), which decides anew what they change. If the recorder derives
other events than the history has, the history is refused rather than guessed at.

What a row has and no event says is not part of it, because the first workflow task of the new run sets it: whether
signals are deferred, which worker has the run cached, how often its tasks failed.

Some things cannot be copied, because they belong to one run: a child that is still open, the answer to a request to
another run, messages of streams, a cancellation that has begun, the alternatives of a selection. A history with such a
thing open at the point is not copied (`PrefixState.problem`).

Invariant: the state is that of the row at the point (a property test compares them over random histories).

Rejected: storing a snapshot of the row with each completion, which every run would pay for; and sending the events
through `decide.advance` as commands, because events do not keep everything that a command says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text, payload_codec
from penstock.core.history import parallel_groups, recorder
from penstock.core.history.events import ENDED, MESSAGE_STREAM_SIGNAL, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT, SIGNAL_TIMEOUT
from penstock.core.history.recorder import with_opened
from penstock.core.history.routing_keys import with_key
from penstock.core.model import NewEvent, RecordedEvent, Run
from penstock.core.timestamps import instant
from penstock.core.waits import ConditionWait, SignalWait

Payload = Mapping[str, Any]


class PrefixState(Struct, frozen=True):
    """What a new run takes over besides the events themselves."""

    run: Run
    """The new run with the last event and step, the waits, the memo and search attributes, and unseen signals."""
    activities: tuple[int, ...] = ()
    """The steps of open activities."""
    timers: tuple[int, ...] = ()
    """The steps of open timers."""
    updates: tuple[str, ...] = ()
    """Accepted updates that were not completed."""
    problem: str | None = None
    """Why the history cannot be continued by another run."""


def state_at(run: Run, history: Iterable[RecordedEvent]) -> PrefixState:
    """The state behind the last of some events.

    Args:
        run: the new run as it starts, with the memo and search attributes of the start.
        history: the events of the copy, with the new run's ids, from the first one to the one before the decision
            point.
    """
    fold = PrefixFold(run)
    for event in history:
        fold.add(event)
    return fold.state()


class PrefixFold:
    """Computes the state while events are added in order."""

    def __init__(self, run: Run) -> None:
        """`run` is the new run as it starts, with the memo and search attributes of the start."""
        self.run = replace(run, last_sequence=0)
        self.problem: str | None = None
        self.activities: dict[int, None] = {}
        self.timers: dict[int, None] = {}
        self.children: dict[int, str] = {}
        self.updates: dict[str, None] = {}
        self._task_id: str | None = None
        self._of_task: list[NewEvent] = []
        """The events of the workflow task that is not complete yet."""
        self._derived: list[str] = []
        """Types of the events that the recorder derived, and that come next."""

    def add(self, event: RecordedEvent) -> None:
        """Add the next event of the history."""
        if self._of_task and event.task_id != self._task_id:
            self._add_task()
        if self.problem is not None:
            return
        new = NewEvent(event.type, json_text.read(event.payload))
        if event.task_id is None:
            self._add_from_outside(new)
        else:
            self._task_id = event.task_id
            self._of_task.append(new)

    def state(self) -> PrefixState:
        """The state behind the last event that was added, which was the last of its workflow task, if of any."""
        if self._of_task:
            self._add_task()
        waits = self.run.waits
        problem = "its events are not in order" if self._derived else self.problem
        if problem is None and self.children:
            problem = f"the child {next(iter(self.children.values()))!r} is open there"
        if problem is None and waits.external:
            problem = "a request to another workflow is unanswered there"
        if problem is None and waits.ending:
            problem = "an activity is being cancelled there"
        run = replace(
            self.run,
            open_activities=len(self.activities),
            open_timers=len(self.timers),
            open_updates=len(self.updates),
        )
        return PrefixState(run, (*self.activities,), (*self.timers,), (*self.updates,), problem)

    def _add_from_outside(self, event: NewEvent) -> None:
        """Add an event that no workflow task recorded; the recorder derives some from those before them."""
        self._note(event)
        self._end(event)
        if self._derived:
            if self._derived.pop(0) != event.type:
                self._refuse()
            return
        recorded = recorder.record(self.run, [event], 0)
        types = [line.type for line in recorded.lines]
        if types[:1] != [event.type]:
            self._refuse()
            return
        self.run, self._derived = recorded.run, types[1:]

    def _refuse(self) -> None:
        self.problem = f"its event {self.run.last_sequence + 1} is not one that would be recorded today"

    def _add_task(self) -> None:
        """Add the events of one workflow task: first what its commands changed, then what the recorder did."""
        events, self._of_task = self._of_task, []
        if self._derived:
            self._refuse()
            return
        applies_update = events[0].type in (EventType.UPDATE_APPLIED, EventType.UPDATE_COMPLETED)
        waits = replace(self.run.waits, delivers_cancel=False)
        if not applies_update and not waits.concurrent:
            waits = replace(waits, signal=None)
        self.run = replace(self.run, waits=waits)
        if not applies_update:
            self.run = replace(self.run, unseen_signals=0)
        for event in events:
            self._note(event)
            opener = _OPENERS.get(event.type)
            if opener is not None:
                opener(self, event.payload)
            step = event.payload.get("sequence")
            if isinstance(step, int) and step > self.run.last_step:
                self.run = replace(self.run, last_step=step)
        for event in events:
            self._end(event)
        before = self.run.last_sequence
        self.run = recorder.record(self.run, events, 0).run
        if self.run.last_sequence != before + len(events):
            self._refuse()

    def _note(self, event: NewEvent) -> None:
        """Count messages, and notice what cannot be copied."""
        payload = event.payload
        if event.type in _OF_ONE_RUN:
            self.problem = _OF_ONE_RUN[event.type]
        elif payload.get("signal_name") == MESSAGE_STREAM_SIGNAL or "workflow_stream" in payload:
            self.problem = "it has messages or items of streams"
        elif _is_selected(payload):
            self.problem = _SELECTION
        elif event.type == EventType.SIGNAL_RECEIVED:
            self.run = replace(self.run, unseen_signals=self.run.unseen_signals + 1)
        elif event.type == EventType.CANCEL_REQUESTED:
            self.run = replace(self.run, waits=replace(self.run.waits, cancelling=True))
        elif event.type == EventType.UPDATE_ACCEPTED:
            self.updates[payload["update_id"]] = None
        elif event.type == EventType.UPDATE_COMPLETED:
            self.updates.pop(payload["update_id"], None)

    def _end(self, event: NewEvent) -> None:
        """Note that a step has ended."""
        step = event.payload.get("sequence")
        if not isinstance(step, int):
            return
        if event.type in ENDED:
            self.activities.pop(step, None)
            self.children.pop(step, None)
            waits = self.run.waits
            if step in waits.ending:
                self.run = replace(self.run, waits=waits.with_ended(step))
        if event.type in (EventType.TIMER_FIRED, EventType.TIMER_CANCELLED):
            self.timers.pop(step, None)

    # ── What commands open and leave ────────────────────────────────────────────────────────────────────

    def decide_concurrently(self, payload: Payload) -> None:
        self.run = replace(self.run, waits=replace(self.run.waits, concurrent=True, cached=None))

    def open_activity(self, payload: Payload) -> None:
        if payload.get("local_activity"):
            return
        self.activities[payload["sequence"]] = None
        self._open(payload, payload["activity_execution_id"])
        key = payload.get("routing_key")
        if key is not None:
            attributes = with_key(self.run.search_attributes, key)
            self.run = replace(self.run, search_attributes=attributes)

    def open_timer(self, payload: Payload) -> None:
        self.timers[payload["sequence"]] = None
        kind = payload.get("timer_kind")
        fields = {
            "timer_id": payload["timer_id"],
            "delay_s": payload["delay_seconds"],
            "fire_at_ms": instant(payload["fire_at"]),
        }
        waits = self.run.waits
        if kind == SIGNAL_TIMEOUT and waits.signal is not None:
            self.run = replace(self.run, waits=replace(waits, signal=replace(waits.signal, **fields)))
        elif kind == CONDITION_TIMEOUT:
            condition = waits.condition
            if condition is not None and condition.id == payload.get("condition_wait_id"):
                self.run = replace(self.run, waits=replace(waits, condition=replace(condition, **fields)))
        elif kind is None:
            self._open(payload, payload["timer_id"])

    def open_child(self, payload: Payload) -> None:
        self.children[payload["sequence"]] = payload["child_workflow_instance_id"]
        self._open(payload, payload["child_workflow_run_id"])

    def open_condition(self, payload: Payload) -> None:
        wait = ConditionWait(
            payload["condition_wait_id"],
            payload["sequence"],
            payload["condition_key"],
            payload["condition_definition_fingerprint"],
        )
        if payload.get(parallel_groups.PATH):
            self._open(payload, wait.id)
        else:
            self.run = replace(self.run, waits=replace(self.run.waits, condition=wait))

    def leave_condition(self, payload: Payload) -> None:
        condition = self.run.waits.condition
        if condition is not None and condition.id == payload.get("condition_wait_id"):
            self.run = replace(self.run, waits=replace(self.run.waits, condition=None))

    def open_signal_wait(self, payload: Payload) -> None:
        wait = SignalWait(payload["signal_wait_id"], payload["sequence"], payload["signal_name"])
        self.run = replace(self.run, waits=replace(self.run.waits, signal=wait))

    def apply_signal(self, payload: Payload) -> None:
        self.run = replace(self.run, waits=replace(self.run.waits, signal=None))

    def ask_another_run(self, payload: Payload) -> None:
        waits = self.run.waits
        self.run = replace(self.run, waits=replace(waits, external=(*waits.external, payload["sequence"])))

    def cancel_step(self, payload: Payload) -> None:
        step, waits = payload["sequence"], self.run.waits
        if payload.get("wait"):
            if step in self.activities:
                self.run = replace(self.run, waits=replace(waits, ending=(*waits.ending, step)))
            return
        for opened in (self.activities, self.timers, self.children):
            opened.pop(step, None)
        external = tuple(each for each in waits.external if each != step)
        self.run = replace(self.run, waits=replace(waits, external=external))

    def upsert_attributes(self, payload: Payload) -> None:
        self.run = replace(self.run, search_attributes=json_text.written(payload["merged"]))

    def upsert_memo(self, payload: Payload) -> None:
        merged = payload_codec.decode(payload["merged"]["blob"])
        self.run = replace(self.run, memo=json_text.written(merged))

    def _open(self, payload: Payload, identity: str) -> None:
        self.run = replace(self.run, waits=with_opened(self.run.waits, dict(payload), identity))


def _is_selected(payload: Payload) -> bool:
    outer = parallel_groups.outermost(payload)
    return outer is not None and parallel_groups.is_selection(outer)


_SELECTION: Final = "it has a selection, whose alternatives name their run"
_CANCELLATION: Final = "its cancellation had begun"
_OF_ONE_RUN: Final[Mapping[str, str]] = {
    EventType.SELECTION_RESOLVED: _SELECTION,
    EventType.SELECTION_OPERATION_CANCELLED: _SELECTION,
    EventType.COOPERATIVE_CANCELLATION_REQUESTED: _CANCELLATION,
    EventType.COOPERATIVE_CANCELLATION_DELIVERED: _CANCELLATION,
}
_OPENERS: Final[Mapping[str, Callable[[PrefixFold, Payload], None]]] = {
    EventType.WORKFLOW_TASK_COMPLETED: PrefixFold.decide_concurrently,
    EventType.ACTIVITY_SCHEDULED: PrefixFold.open_activity,
    EventType.TIMER_SCHEDULED: PrefixFold.open_timer,
    EventType.CHILD_WORKFLOW_SCHEDULED: PrefixFold.open_child,
    EventType.CONDITION_WAIT_OPENED: PrefixFold.open_condition,
    EventType.CONDITION_WAIT_SATISFIED: PrefixFold.leave_condition,
    EventType.SIGNAL_WAIT_OPENED: PrefixFold.open_signal_wait,
    EventType.SIGNAL_APPLIED: PrefixFold.apply_signal,
    EventType.EXTERNAL_REQUEST_INITIATED: PrefixFold.ask_another_run,
    EventType.STEP_CANCEL_REQUESTED: PrefixFold.cancel_step,
    EventType.SEARCH_ATTRIBUTES_UPSERTED: PrefixFold.upsert_attributes,
    EventType.MEMO_UPSERTED: PrefixFold.upsert_memo,
}
