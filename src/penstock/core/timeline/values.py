"""The values that a timeline consists of.

A long run has tens of thousands of them. They hold texts and numbers only and refer to none of their own kind, so they
are kept from the garbage collector (`gc=False`), which would visit them all again and again while they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.why.values import ConstraintKind


class WaitCause(StrEnum):
    """Why a part of a run waited. The values are API."""

    CAP = "cap"
    RATE = "rate"
    KEY = "key"
    """A cap, rate or pause of its fairness key."""
    PAUSED = "paused"
    COOLING = "cooling"
    TURN = "turn"
    NO_WORKER = "no_worker"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"
    """A task was ready and not dispatched, and no server saw why."""
    BACKOFF = "backoff"
    START_DELAY = "start_delay"
    TIMER = "timer"
    SIGNAL = "signal"
    """The code waited for a signal, an update or a condition, or had no open step."""


BY_DESIGN = frozenset({WaitCause.BACKOFF, WaitCause.START_DELAY, WaitCause.TIMER, WaitCause.SIGNAL})
"""Causes that no other limit, weight or fleet would have shortened."""

CAUSES: Mapping[ConstraintKind, WaitCause] = {
    ConstraintKind.LEASES: WaitCause.CAP,
    ConstraintKind.KEY_RUNNING: WaitCause.CAP,
    ConstraintKind.RATE: WaitCause.RATE,
    ConstraintKind.KEY_RATE: WaitCause.RATE,
    ConstraintKind.DISPATCHES: WaitCause.RATE,
    ConstraintKind.COST: WaitCause.RATE,
    ConstraintKind.PAUSED: WaitCause.PAUSED,
    ConstraintKind.COOLING: WaitCause.COOLING,
    ConstraintKind.PRIORITY: WaitCause.TURN,
    ConstraintKind.FAIRNESS_TURN: WaitCause.TURN,
    ConstraintKind.ARRIVAL_TURN: WaitCause.TURN,
    ConstraintKind.BEHIND_OWN_KEY: WaitCause.TURN,
    ConstraintKind.STICKY: WaitCause.TURN,
    ConstraintKind.NO_WORKER: WaitCause.NO_WORKER,
    ConstraintKind.NO_POLLER: WaitCause.NO_WORKER,
    ConstraintKind.DRAINING: WaitCause.NO_WORKER,
    ConstraintKind.NO_SLOTS: WaitCause.NO_WORKER,
    ConstraintKind.SATURATED: WaitCause.NO_WORKER,
    ConstraintKind.BLOCKED_RUN: WaitCause.BLOCKED,
    ConstraintKind.STRUCTURAL_LIMIT: WaitCause.BLOCKED,
    ConstraintKind.RETRY_BACKOFF: WaitCause.BACKOFF,
    ConstraintKind.RETRY_BUDGET: WaitCause.BACKOFF,
    ConstraintKind.START_DELAY: WaitCause.START_DELAY,
}
"""The cause for each constraint that `why` names; all others are `unknown` here."""

PAST_CAUSES: Mapping[str, WaitCause] = {
    HoldReason.PAUSED: WaitCause.PAUSED,
    HoldReason.SCOPE_PAUSED: WaitCause.PAUSED,
    HoldReason.COOLING: WaitCause.COOLING,
    HoldReason.QUEUE_LEASE_CAP: WaitCause.CAP,
    HoldReason.SCOPE_LEASE_CAP: WaitCause.CAP,
    HoldReason.QUEUE_RATE: WaitCause.RATE,
    HoldReason.QUEUE_DISPATCHES: WaitCause.RATE,
    HoldReason.SCOPE_DISPATCHES: WaitCause.RATE,
    HoldReason.SCOPE_COST: WaitCause.RATE,
    HoldReason.KEY_LIMITS: WaitCause.KEY,
    HoldReason.SLOTS: WaitCause.NO_WORKER,
}
"""The cause for each hold that is recorded with a task when it is leased."""


class SpanState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"


class LaneKind(StrEnum):
    WORKFLOW_TASK = "workflow_task"
    ACTIVITY = "activity"
    TIMER = "timer"
    CHILD = "child"
    CONDITION = "condition"
    UPDATE = "update"
    SIGNAL = "signal"


class TimelineEvent(Struct, frozen=True, gc=False):
    """What the timeline reads of an event. Instants in payloads are ISO 8601 text; fields that are absent are None."""

    sequence: int
    type: str
    at_ms: int
    task_id: str | None = None
    step: int | None = None
    activity_type: str | None = None
    child_type: str | None = None
    attempt: int | None = None
    started_at: str | None = None
    retry_at: str | None = None
    timer_kind: str | None = None
    timer_id: str | None = None
    wait_id: str | None = None
    condition_key: str | None = None
    update_id: str | None = None
    update_name: str | None = None
    signal_name: str | None = None
    child_id: str | None = None
    child_run_id: str | None = None
    activity_id: str | None = None
    held_by: str | None = None


class TaskTimes(Struct, frozen=True, gc=False):
    """The instants of a task that its row has: of an activity those of its last attempt."""

    task_id: str
    kind: str
    activity_id: str | None
    state: str
    available_at_ms: int
    enqueued_at_ms: int
    granted_at_ms: int | None
    held_by: str = ""
    """What held it back until its last lease, a `HoldReason`."""


class Span(Struct, frozen=True, gc=False):
    """A part of a lane, from an instant to a later or equal one, both in milliseconds since the epoch."""

    from_ms: int
    to_ms: int
    state: SpanState
    cause: WaitCause | None = None
    """Why it waited; None while it runs."""
    attempt: int | None = None
    outcome: str | None = None
    """How the attempt that ends with this span ended; None: it is open, waiting or merged of several."""
    events: tuple[int, ...] = ()
    """The sequence numbers of the events at its ends."""

    @property
    def is_held_back(self) -> bool:
        return self.state is SpanState.WAITING and self.cause not in BY_DESIGN


class Tick(Struct, frozen=True, gc=False):
    """An instant on a lane: a retry, or a signal."""

    at_ms: int
    label: str
    event: int


class TimelineLane(Struct, frozen=True):
    """One step of a run as a row of spans; or all steps of one type, folded."""

    kind: LaneKind
    label: str
    """The type of the step, or the name of what it waits for."""
    spans: tuple[Span, ...]
    step: int | None = None
    ticks: tuple[Tick, ...] = ()
    is_open: bool = False
    outcome: str | None = None
    child_id: str | None = None
    child_run_id: str | None = None
    folded: int = 0
    """How many steps were folded into it; 0: it is one step."""
    p50_ms: int | None = None
    """Of a folded lane: the median time from schedule to close of the steps that have ended."""
    failed: int = 0
    """Of a folded lane: how many of its steps failed or timed out."""

    @property
    def from_ms(self) -> int:
        if not self.ticks:
            return self.spans[0].from_ms
        tick_ms = self.ticks[0].at_ms
        return min(tick_ms, self.spans[0].from_ms) if self.spans else tick_ms

    @property
    def to_ms(self) -> int:
        if not self.ticks:
            return self.spans[-1].to_ms
        tick_ms = self.ticks[-1].at_ms
        return max(tick_ms, self.spans[-1].to_ms) if self.spans else tick_ms
