"""The values that an explanation consists of."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class ConstraintKind(StrEnum):
    """Kinds of constraints. The values are API."""

    NOT_WAITING = "not_waiting"
    QUARANTINED = "quarantined"
    LEASED = "leased"
    PREFETCHED = "prefetched"
    START_DELAY = "start_delay"
    RETRY_BACKOFF = "retry_backoff"
    RETRY_BUDGET = "retry_budget"
    BLOCKED_RUN = "blocked_run"
    STRUCTURAL_LIMIT = "structural_limit"
    NO_WORKER = "no_worker_for_type"
    NO_POLLER = "no_poller"
    DRAINING = "workers_draining"
    COORDINATION = "coordination_unavailable"
    PAUSED = "paused"
    RUN_PAUSED = "run_paused"
    ACTIVITY_PAUSED = "activity_paused"
    COOLING = "cooling"
    LEASES = "active_leases"
    RATE = "rate"
    DISPATCHES = "dispatches_per_minute"
    COST = "cost_per_minute"
    KEY_RATE = "key_rate"
    KEY_RUNNING = "key_running"
    NO_SLOTS = "no_slots"
    SATURATED = "saturated"
    STICKY = "reserved"
    PRIORITY = "priority"
    FAIRNESS_TURN = "fairness_turn"
    ARRIVAL_TURN = "arrival_turn"
    BEHIND_OWN_KEY = "behind_own_key"
    TIMER = "timer"
    ACTIVITY = "waiting_for_activity"
    CHILD = "waiting_for_child"
    CONDITION = "waiting_for_condition"
    SIGNAL = "waiting_for_signal"
    STRANDED = "stranded"
    RUN_CAP = "run_cap"
    DEBOUNCED = "debounced"


class RemedyKind(StrEnum):
    """Kinds of remedies. The values are API."""

    WAIT = "wait_until"
    RESUME = "resume"
    RAISE = "raise"
    END_LEASES = "end_leases"
    REGISTER = "register_worker"
    RESUME_BUILD = "resume_build"
    POLL = "poll"
    RESTORE = "restore_coordination"
    TAKE_TURN = "wait_for_turn"
    REPORT = "report"
    FIX = "fix_workflow"
    MEND = "mend_activity"
    SIGNAL = "signal"
    END_STEPS = "end_open_steps"
    RAISE_SETTING = "raise_setting"
    UNSET = "unset"
    REPAIR = "repair"
    RESUME_RUN = "resume_run"
    RESUME_ACTIVITY = "resume_activity"
    END_RUN = "end_run"
    CLOSE_RUNS = "close_runs"
    RAISE_RUN_CAP = "raise_run_cap"


MANUAL = frozenset({RemedyKind.RESTORE, RemedyKind.FIX, RemedyKind.MEND, RemedyKind.RAISE_SETTING})
"""Remedies that need a person: code must be changed, or servers reconfigured."""


class Remedy(Struct, frozen=True):
    """One way to remove a constraint; each of several is sufficient."""

    act: RemedyKind
    scope: str | None = None
    to: int | None = None
    """The smallest sufficient value of a limit to raise."""
    is_rate: bool = False
    """Whether `to` is in millionths per second."""
    at_ms: int | None = None
    count: int | None = None
    """How many leases or runs must end, or tasks be dispatched."""
    task_type: str | None = None
    build_id: str | None = None
    worker: str | None = None
    """The worker whose leases must end, where it matters."""
    setting: str | None = None
    """The server setting to raise."""

    @property
    def is_manual(self) -> bool:
        """Whether it needs a person. Any other remedy removes the constraint when applied."""
        return self.act in MANUAL


class LeaseHolder(Struct, frozen=True):
    """A lease that a limit counts, and its worker; or a run that a cap on runs counts: without task, worker and end."""

    task_id: str | None
    workflow_id: str | None
    task_queue: str
    worker: str | None
    since_ms: int
    until_ms: int | None


class Constraint(Struct, frozen=True):
    """One reason why something waits."""

    kind: ConstraintKind
    message: str
    """The reason, as the end of a sentence that begins with its subject."""
    scope: str | None = None
    most: int | None = None
    used: int | None = None
    opens_at_ms: int | None = None
    """When time alone removes it; None: only a change does."""
    frees: tuple[Remedy, ...] = ()
    is_closed: bool = True
    """Whether it binds already; False: it will before the task's turn."""
    holders: tuple[LeaseHolder, ...] = ()


class Position(Struct, frozen=True):
    """The tasks ahead of a ready task."""

    level: int
    key: str
    ahead_by_level: tuple[tuple[int, int], ...] = ()
    """Tasks of levels that go first, by level."""
    ahead_by_key: tuple[tuple[str, int], ...] = ()
    """Tasks of other keys of its level, for the keys with the most."""
    ahead_of_others: int = 0
    """Tasks of all other keys of its level."""
    ahead_of_own: int = 0
    """Tasks of its own key."""
    key_turn: int = 0
    """Tasks of other keys that go before the next task of its own key."""
    is_exact: bool = True

    @property
    def ahead_of_levels(self) -> int:
        return sum(count for _, count in self.ahead_by_level)

    @property
    def ahead(self) -> int:
        return self.ahead_of_levels + self.ahead_of_others + self.ahead_of_own


class StartEstimate(Struct, frozen=True):
    """When it starts, as a range; or why that is unknown."""

    from_ms: int | None = None
    to_ms: int | None = None
    unknown_because: str | None = None


NO_ESTIMATE = StartEstimate(unknown_because="It does not wait.")


class WaitExplanation(Struct, frozen=True):
    """A complete explanation. Without a binding constraint, the next poll of a matching worker takes the task."""

    sentence: str
    binding: Constraint | None
    next: tuple[Constraint, ...] = ()
    position: Position | None = None
    expected: StartEstimate = NO_ESTIMATE
