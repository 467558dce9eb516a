"""Lanes of a run from its events and the times of its tasks.

Theory of operation
-------------------
One pass over the history in order. A step is opened by one event (`ActivityScheduled`, `TimerScheduled`, ...) and
closed by another; both name the step's number, so that a dictionary of open steps suffices. What is known of the time
between them:

- *An activity.* Every event that ends an attempt records when the attempt started. So an attempt is a waiting span from
  the instant at which it was ready to its start, and a running span from there to its end. After a retry, the time
  until the attempt is due again is backoff. An attempt that is open is completed from the row of its task.
- *A workflow task.* The history has no event for its start; the row of the task has its grant, and the events that its
  completion appended name the task and end its running span. A completion that appended nothing has no recorded end,
  and is shown as an instant.
- *Timers, conditions* wait by design from their first event to their last; *children, updates* run.

For tasks that wait now the cause is passed in, as `why` computes it. What had held back a task that was leased is
recorded with the lease, and with the end of an attempt that is retried, as far as the server that leased it saw it;
other spans have the cause `unknown`. Nothing is guessed from durations.

Histories of earlier versions lack the start of attempts that were retried; such an attempt is shown as running for its
whole length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from penstock.core.history.events import EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT
from penstock.core.timeline.values import (
    PAST_CAUSES,
    LaneKind,
    Span,
    SpanState,
    TaskTimes,
    Tick,
    TimelineEvent,
    TimelineLane,
    WaitCause,
)
from penstock.core.timestamps import instant

LABEL_MAX = 80
WORKFLOW_TASKS = "workflow tasks"

_OPENS: Mapping[str, LaneKind] = {
    EventType.ACTIVITY_SCHEDULED: LaneKind.ACTIVITY,
    EventType.TIMER_SCHEDULED: LaneKind.TIMER,
    EventType.CHILD_WORKFLOW_SCHEDULED: LaneKind.CHILD,
    EventType.CONDITION_WAIT_OPENED: LaneKind.CONDITION,
    EventType.UPDATE_ACCEPTED: LaneKind.UPDATE,
}
_CLOSES: Mapping[str, tuple[LaneKind, str]] = {
    EventType.ACTIVITY_COMPLETED: (LaneKind.ACTIVITY, "completed"),
    EventType.ACTIVITY_FAILED: (LaneKind.ACTIVITY, "failed"),
    EventType.ACTIVITY_TIMED_OUT: (LaneKind.ACTIVITY, "timed_out"),
    EventType.ACTIVITY_CANCELLED: (LaneKind.ACTIVITY, "cancelled"),
    EventType.TIMER_FIRED: (LaneKind.TIMER, "completed"),
    EventType.TIMER_CANCELLED: (LaneKind.TIMER, "cancelled"),
    EventType.CHILD_RUN_COMPLETED: (LaneKind.CHILD, "completed"),
    EventType.CHILD_RUN_FAILED: (LaneKind.CHILD, "failed"),
    EventType.CHILD_RUN_CANCELLED: (LaneKind.CHILD, "cancelled"),
    EventType.CHILD_RUN_TERMINATED: (LaneKind.CHILD, "terminated"),
    EventType.CONDITION_WAIT_SATISFIED: (LaneKind.CONDITION, "completed"),
    EventType.CONDITION_WAIT_TIMED_OUT: (LaneKind.CONDITION, "timed_out"),
    EventType.UPDATE_COMPLETED: (LaneKind.UPDATE, "completed"),
}
_DESIGNED = {LaneKind.TIMER: WaitCause.TIMER, LaneKind.CONDITION: WaitCause.SIGNAL}


class RunTimes(Struct, frozen=True):
    """A run as far as its timeline needs it, and what else was read in the same snapshot."""

    started_at_ms: int
    closed_at_ms: int | None
    now_ms: int
    tasks: Sequence[TaskTimes] = ()
    causes: Mapping[str, WaitCause] = {}
    """Why tasks wait now, by task id; a waiting task that is missing has the cause `unknown`."""

    @property
    def end_ms(self) -> int:
        """When the run closed, or now; never before its start."""
        return max(self.started_at_ms, self.now_ms if self.closed_at_ms is None else self.closed_at_ms)


def lanes(events: Iterable[TimelineEvent], run: RunTimes) -> list[TimelineLane]:
    """The lanes of a run: its workflow tasks first, then its steps in the order in which they were scheduled."""
    builder = _LaneBuilder(run)
    for event in events:
        builder.add(event)
    return builder.done()


class _StepBuilder:
    """A step whose lane is being built."""

    __slots__ = (
        "cause",
        "child_id",
        "child_run_id",
        "kind",
        "label",
        "opened",
        "ready_ms",
        "spans",
        "step",
        "ticks",
    )

    def __init__(self, kind: LaneKind, event: TimelineEvent) -> None:
        self.kind = kind
        self.label = _label(kind, event)
        self.step = event.step
        self.opened = event
        self.ready_ms = event.at_ms
        self.spans: list[Span] = []
        self.ticks: list[Tick] = []
        self.cause = WaitCause.UNKNOWN
        self.child_id = event.child_id
        self.child_run_id = event.child_run_id

    @property
    def last_event(self) -> int:
        return self.ticks[-1].event if self.ticks else self.opened.sequence

    def wait(self, from_ms: int, to_ms: int, cause: WaitCause, attempt: int | None = None) -> None:
        self.cause = cause
        if to_ms > from_ms:
            events = (self.last_event,)
            self.spans.append(Span(from_ms, to_ms, SpanState.WAITING, cause, attempt, events=events))

    def run(
        self, from_ms: int, to_ms: int, attempt: int | None, outcome: str | None, events: tuple[int, ...]
    ) -> None:
        to_ms = max(from_ms, to_ms)
        self.spans.append(
            Span(from_ms, to_ms, SpanState.RUNNING, attempt=attempt, outcome=outcome, events=events)
        )

    def lane(self, *, outcome: str | None, is_open: bool) -> TimelineLane:
        if not self.spans:  # it began this very millisecond
            at_ms, marks = self.opened.at_ms, (self.opened.sequence,)
            self.spans.append(Span(at_ms, at_ms, SpanState.WAITING, self.cause, events=marks))
        return TimelineLane(
            self.kind,
            self.label,
            tuple(self.spans),
            self.step,
            tuple(self.ticks),
            is_open,
            outcome,
            self.child_id,
            self.child_run_id,
        )


class _LaneBuilder:
    """Builds the lanes of one run, event by event."""

    def __init__(self, run: RunTimes) -> None:
        self._run = run
        self._lanes: list[TimelineLane] = []
        self._open: dict[tuple[LaneKind, object], _StepBuilder] = {}
        self._activity_tasks = {each.activity_id: each for each in run.tasks if each.activity_id is not None}
        self._ends: dict[str, TimelineEvent] = {}
        """The last event that each workflow task appended."""
        self._others: Mapping[str, Callable[[TimelineEvent], None]] = {
            EventType.ACTIVITY_RETRY_SCHEDULED: self._retry,
            EventType.CHILD_RUN_STARTED: self._child_started,
            EventType.SIGNAL_RECEIVED: self._signal,
            EventType.COOPERATIVE_CANCELLATION_DELIVERED: self._interrupt,
        }

    def add(self, event: TimelineEvent) -> None:
        if event.task_id is not None:
            self._ends[event.task_id] = event
        if (kind := _OPENS.get(event.type)) is not None:
            if kind is not LaneKind.TIMER or event.timer_kind != CONDITION_TIMEOUT:
                self._open[_identity(kind, event)] = _StepBuilder(kind, event)
        elif (closing := _CLOSES.get(event.type)) is not None:
            self._close(event, *closing)
        elif (other := self._others.get(event.type)) is not None:
            other(event)

    def _child_started(self, event: TimelineEvent) -> None:
        known = self._open.get(_identity(LaneKind.CHILD, event))
        if known is not None and event.child_run_id is not None:
            known.child_run_id = event.child_run_id

    def _signal(self, event: TimelineEvent) -> None:
        tick = Tick(event.at_ms, event.signal_name or "signal", event.sequence)
        self._lanes.append(
            TimelineLane(LaneKind.SIGNAL, _cut(tick.label), (), event.step, (tick,), outcome="completed")
        )

    def done(self) -> list[TimelineLane]:
        for step in self._open.values():
            self._complete(step)
        ordered = sorted(
            (lane for lane in self._lanes if lane.spans or lane.ticks), key=lambda lane: lane.from_ms
        )
        workflow_tasks = self._workflow_tasks()
        return [workflow_tasks, *ordered] if workflow_tasks is not None else ordered

    def _retry(self, event: TimelineEvent) -> None:
        step = self._open.get(_identity(LaneKind.ACTIVITY, event))
        if step is None:
            return
        attempt = (event.attempt or 0) or len(step.ticks) + 1
        self._attempt(step, event, attempt, "failed")
        step.ticks.append(Tick(event.at_ms, f"attempt {attempt} failed", event.sequence))
        due_ms = _instant(event.retry_at)
        step.ready_ms = event.at_ms if due_ms is None else max(event.at_ms, due_ms)
        step.wait(event.at_ms, min(step.ready_ms, self._run.end_ms), WaitCause.BACKOFF, attempt + 1)

    def _close(self, event: TimelineEvent, kind: LaneKind, outcome: str) -> None:
        step = self._open.pop(_identity(kind, event), None)
        if step is None:
            return
        if kind is LaneKind.ACTIVITY:
            self._attempt(step, event, event.attempt, outcome)
        elif kind in _DESIGNED:
            step.wait(step.ready_ms, event.at_ms, _DESIGNED[kind])
        else:
            ends = (step.opened.sequence, event.sequence)
            step.run(step.ready_ms, event.at_ms, None, outcome, ends)
        self._lanes.append(step.lane(outcome=outcome, is_open=False))

    def _interrupt(self, event: TimelineEvent) -> None:
        """End the condition that a cancellation interrupted; other steps end by events of their own."""
        for identity, step in list(self._open.items()):
            if step.kind is LaneKind.CONDITION and step.step == event.step:
                del self._open[identity]
                step.wait(step.ready_ms, event.at_ms, _DESIGNED[step.kind])
                self._lanes.append(step.lane(outcome="cancelled", is_open=False))

    def _attempt(self, step: _StepBuilder, event: TimelineEvent, attempt: int | None, outcome: str) -> None:
        """Add the attempt that an event ends: the wait before it, and its run if it was started."""
        started_ms = _instant(event.started_at)
        if started_ms is None and event.type != EventType.ACTIVITY_RETRY_SCHEDULED:
            step.wait(step.ready_ms, event.at_ms, self._past_cause(step, event), attempt)
            return
        started_ms = min(max(step.ready_ms, started_ms or 0), event.at_ms)
        if started_ms > step.ready_ms:
            step.wait(step.ready_ms, started_ms, self._past_cause(step, event), attempt)
        step.run(started_ms, event.at_ms, attempt, outcome, (step.last_event, event.sequence))

    def _complete(self, step: _StepBuilder) -> None:
        """End the lane of an open step at the end of the run, or now."""
        end_ms = self._run.end_ms
        if step.kind is LaneKind.ACTIVITY:
            self._complete_activity(step, end_ms)
        elif step.kind in _DESIGNED:
            step.wait(step.ready_ms, end_ms, _DESIGNED[step.kind])
        else:
            step.run(step.ready_ms, end_ms, None, None, (step.opened.sequence,))
        self._lanes.append(step.lane(outcome=None, is_open=self._run.closed_at_ms is None))

    def _complete_activity(self, step: _StepBuilder, end_ms: int) -> None:
        task = self._activity_tasks.get(step.opened.activity_id or "")
        attempt = len(step.ticks) + 1
        if task is not None and task.state == "leased" and task.granted_at_ms is not None:
            granted_ms = min(max(step.ready_ms, task.granted_at_ms), end_ms)
            step.wait(step.ready_ms, granted_ms, _past_cause(task.held_by), attempt)
            step.run(granted_ms, end_ms, attempt, None, (step.last_event,))
            return
        ready_ms = step.ready_ms
        if task is not None and task.state == "delayed" and task.available_at_ms > ready_ms:
            cause = WaitCause.BACKOFF if step.ticks else WaitCause.START_DELAY
            step.wait(ready_ms, min(task.available_at_ms, end_ms), cause, attempt)
            ready_ms = min(task.available_at_ms, end_ms)
        cause = WaitCause.UNKNOWN if task is None else self._cause(task)
        step.wait(ready_ms, end_ms, cause, attempt)

    def _past_cause(self, step: _StepBuilder, event: TimelineEvent) -> WaitCause:
        """Why the attempt that an event ends had waited: a retry says it, else the task's last lease does."""
        if event.type == EventType.ACTIVITY_RETRY_SCHEDULED:
            return _past_cause(event.held_by)
        task = self._activity_tasks.get(step.opened.activity_id or "")
        return _past_cause(None if task is None else task.held_by)

    def _cause(self, task: TaskTimes) -> WaitCause:
        return self._run.causes.get(task.task_id, WaitCause.UNKNOWN)

    def _workflow_tasks(self) -> TimelineLane | None:
        """All workflow tasks in one lane: there is at most one at a time."""
        spans: list[Span] = []
        end_ms = self._run.end_ms
        tasks = sorted(
            (each for each in self._run.tasks if each.kind == "workflow"),
            key=lambda each: (each.enqueued_at_ms, _number(each.task_id)),
        )
        free_ms = self._run.started_at_ms
        for task in tasks:
            ready_ms = min(max(free_ms, min(task.enqueued_at_ms, task.available_at_ms)), end_ms)
            end = self._ends.get(task.task_id)
            marks = () if end is None else (end.sequence,)
            granted_ms = task.granted_at_ms if task.state in ("leased", "done", "cancelled") else None
            if granted_ms is None:
                free_ms = end_ms if task.state in ("ready", "delayed") else ready_ms
                if free_ms > ready_ms:
                    spans.append(Span(ready_ms, free_ms, SpanState.WAITING, self._cause(task)))
                continue
            granted_ms = min(max(ready_ms, granted_ms), end_ms)
            if granted_ms > ready_ms:
                spans.append(Span(ready_ms, granted_ms, SpanState.WAITING, _past_cause(task.held_by)))
            to_ms = end_ms if task.state == "leased" else granted_ms if end is None else end.at_ms
            free_ms = max(granted_ms, min(to_ms, end_ms))
            spans.append(Span(granted_ms, free_ms, SpanState.RUNNING, events=marks))
        if not spans:
            return None
        is_open = any(each.state in ("ready", "delayed", "leased") for each in tasks)
        return TimelineLane(LaneKind.WORKFLOW_TASK, WORKFLOW_TASKS, tuple(spans), is_open=is_open)


def _past_cause(held_by: str | None) -> WaitCause:
    return PAST_CAUSES.get(held_by or "", WaitCause.UNKNOWN)


def _identity(kind: LaneKind, event: TimelineEvent) -> tuple[LaneKind, object]:
    if kind is LaneKind.UPDATE:
        return kind, event.update_id
    if kind is LaneKind.CONDITION:
        return kind, event.wait_id if event.wait_id is not None else event.step
    return kind, event.step


def _label(kind: LaneKind, event: TimelineEvent) -> str:
    if kind is LaneKind.ACTIVITY:
        found = event.activity_type
    elif kind is LaneKind.CHILD:
        found = event.child_type
    elif kind is LaneKind.CONDITION:
        found = event.condition_key
    else:
        found = event.update_name if kind is LaneKind.UPDATE else None
    return _cut(found or kind.value)


def _cut(label: str) -> str:
    return label if len(label) <= LABEL_MAX else f"{label[: LABEL_MAX - 1]}…"


def _instant(text: str | None) -> int | None:
    return None if text is None else instant(text)


def _number(task_id: str) -> int:
    number = task_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
