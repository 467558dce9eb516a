"""Structural limits of a run: open steps and messages, history length, sizes; with warnings in advance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from penstock.core.history.commands import (
    Command,
    External,
    OpenConditionWait,
    OpenSignalWait,
    ScheduleActivity,
    StartChild,
    StartTimer,
    Terminal,
)
from penstock.core.model import Run
from penstock.errors import InvalidInput, Reason

WARN_FROM_PERCENT = 80

ADVICE = {
    "pending_activity_count": "Await some of the activities before scheduling more.",
    "pending_timer_count": "Await or cancel some of the timers before starting more.",
    "pending_child_count": "Await some of the children before starting more.",
    "pending_update_count": "Wait for updates to be applied before sending more.",
    "pending_external_request_count": "Await some of the requests to other workflows before sending more.",
    "pending_signal_count": "Send signals more slowly, or let a worker process those that wait.",
    "history_event_count": "Continue as new: the next run starts with an empty history.",
    "memo_size": "Keep less in the memo; large values belong in a result or a store of your own.",
    "search_attribute_size": "Keep less in search attributes; they are for finding runs.",
}
MEMO_BYTES_MAX = 65_536
SEARCH_ATTRIBUTE_BYTES_MAX = 40_960
EXTERNAL_REQUESTS_MAX = 1_000


class StructuralLimits(Struct, frozen=True):
    """The configured limits of every run."""

    open_activities_max: int
    open_timers_max: int
    events_max: int
    open_children_max: int = 2_000
    open_updates_max: int = 500
    unseen_signals_max: int = 5_000


class LimitWarning(Struct, frozen=True):
    """How close a run is to one of its limits."""

    limit_kind: str
    current_value: int
    configured_limit: int

    @property
    def percent(self) -> int:
        return _percent(self.current_value, self.configured_limit)

    @property
    def advice(self) -> str:
        return ADVICE[self.limit_kind]


def limit_warnings(run: Run, bounds: StructuralLimits) -> list[LimitWarning]:
    """The limits that a run has almost reached."""
    if not run.is_open:
        return []
    values = (
        ("pending_activity_count", run.open_activities, bounds.open_activities_max),
        ("pending_timer_count", run.open_timers, bounds.open_timers_max),
        ("pending_child_count", run.open_children, bounds.open_children_max),
        ("pending_update_count", run.open_updates, bounds.open_updates_max),
        ("pending_signal_count", run.unseen_signals, bounds.unseen_signals_max),
        ("history_event_count", run.last_sequence + run.buffered, bounds.events_max),
    )
    return [LimitWarning(*value) for value in values if _is_near(*value[1:])]


def _is_near(value: int, most: int) -> bool:
    return bool(value) and _percent(value, most) >= WARN_FROM_PERCENT


def _percent(value: int, most: int) -> int:
    return 100 * value // max(1, most)


def check_commands(run: Run, commands: Sequence[Command], bounds: StructuralLimits) -> None:
    """Raise `structural_limit_exceeded` if the commands would take a run over a limit; it may still close."""
    activities = timers = children = external = 0
    ends = False
    for each in commands:
        activities += isinstance(each, ScheduleActivity)
        timers += _needs_timer(each)
        children += isinstance(each, StartChild)
        external += isinstance(each, External)
        ends = ends or isinstance(each, Terminal)
    asked = len(run.waits.external) if external else 0
    for kind, held, more, most in (
        ("pending_activity_count", run.open_activities, activities, bounds.open_activities_max),
        ("pending_timer_count", run.open_timers, timers, bounds.open_timers_max),
        ("pending_child_count", run.open_children, children, bounds.open_children_max),
        ("pending_external_request_count", asked, external, EXTERNAL_REQUESTS_MAX),
        ("history_event_count", run.last_sequence, 0 if ends else len(commands), bounds.events_max),
    ):
        if more and held + more > most:
            raise exceeded(kind, held + more, most, held)


def check_signal(run: Run, bounds: StructuralLimits) -> None:
    _check_room(run, bounds, "pending_signal_count", run.unseen_signals, bounds.unseen_signals_max)


def check_update(run: Run, bounds: StructuralLimits) -> None:
    _check_room(run, bounds, "pending_update_count", run.open_updates, bounds.open_updates_max)


def _check_room(run: Run, bounds: StructuralLimits, kind: str, held: int, most: int) -> None:
    for each, value, limit in _one_more(run, bounds, kind, held, most):
        if value > limit:
            raise exceeded(each, value, limit)


def _one_more(
    run: Run, bounds: StructuralLimits, kind: str, held: int, most: int
) -> Iterator[tuple[str, int, int]]:
    yield kind, held + 1, most
    yield "history_event_count", run.last_sequence + run.buffered + 1, bounds.events_max


def check_size(kind: str, text: str, most: int) -> None:
    """Raise `structural_limit_exceeded` if a value that is stored in the run's row is too large."""
    size = len(text.encode())
    if size > most:
        raise exceeded(kind, size, most)


def _needs_timer(command: Command) -> bool:
    return isinstance(command, StartTimer) or (
        isinstance(command, OpenConditionWait | OpenSignalWait) and command.timeout_s is not None
    )


_EXCEEDED = re.compile(r"The run would hold (\d+) where at most \d+ are allowed \((\w+)(?:, now (\d+))?\)")
"""The message of `exceeded`, which workers report back as the failure of a workflow task."""

_FIELDS = {
    "pending_activity_count": ("open_activities_max", "DW_MAX_PENDING_ACTIVITIES"),
    "pending_timer_count": ("open_timers_max", "DW_MAX_PENDING_TIMERS"),
    "pending_child_count": ("open_children_max", "DW_MAX_PENDING_CHILDREN"),
    "history_event_count": ("events_max", "DW_MAX_HISTORY_EVENTS"),
}
_FIXED = {
    "pending_external_request_count": EXTERNAL_REQUESTS_MAX,
    "memo_size": MEMO_BYTES_MAX,
    "search_attribute_size": SEARCH_ATTRIBUTE_BYTES_MAX,
}


class LimitExcess(Struct, frozen=True):
    """A limit that keeps a run from progressing: its code exceeds it, or its history is full."""

    limit_kind: str
    value: int
    """The value with the rejected commands."""
    most: int
    held: int
    """The present value."""
    setting: str | None
    """The server setting that raises the limit; None: it is fixed."""
    was_refused: bool = True
    """Whether a workflow task was rejected; False: the next one would be."""

    @property
    def ends_needed(self) -> int | None:
        """How many open items must end before the run can progress; None: that does not help."""
        needed = self.value - self.most
        return needed if self.limit_kind.startswith("pending_") and 0 < needed <= self.held else None


def excess(run: Run, bounds: StructuralLimits) -> LimitExcess | None:
    """The structural limit that blocks a run, if there is one.

    Either its last workflow task was rejected for it and the limit is still too low, or its history is full, so that
    signals and updates are rejected, too. A run with a full history can only close or continue as new.
    """
    if not run.is_open:
        return None
    refused = _EXCEEDED.search(run.task_error or "") if run.task_failures else None
    if refused is not None:
        kind, held = refused[2], _held(run, refused[2])
        before = held if refused[3] is None else int(refused[3])
        most, value = _limit(kind, bounds), int(refused[1]) - before + held
        if most is not None and value > most:
            return _excess(run, kind, value, most, was_refused=True)
    events = run.last_sequence + run.buffered
    if events >= bounds.events_max:
        return _excess(run, "history_event_count", events + 1, bounds.events_max, was_refused=False)
    return None


def _limit(kind: str, bounds: StructuralLimits) -> int | None:
    if kind in _FIELDS:
        return int(getattr(bounds, _FIELDS[kind][0]))
    return _FIXED.get(kind)


def _excess(run: Run, kind: str, value: int, most: int, *, was_refused: bool) -> LimitExcess:
    setting = _FIELDS[kind][1] if kind in _FIELDS else None
    return LimitExcess(kind, value, most, _held(run, kind), setting, was_refused)


def _held(run: Run, kind: str) -> int:
    """The present value of a limited quantity."""
    held = {
        "pending_activity_count": run.open_activities,
        "pending_timer_count": run.open_timers,
        "pending_child_count": run.open_children,
        "pending_external_request_count": len(run.waits.external),
        "history_event_count": run.last_sequence + run.buffered,
    }
    return held.get(kind, 0)


def exceeded(kind: str, value: int, most: int, held: int | None = None) -> InvalidInput:
    """The error for exceeding a limit; `held` is the present value, where it can go down."""
    now = "" if held is None else f", now {held}"
    return InvalidInput(
        Reason.STRUCTURAL_LIMIT_EXCEEDED,
        f"The run would hold {value} where at most {most} are allowed ({kind}{now}). "
        + ADVICE.get(kind, "Do the work in smaller portions."),
        limit_kind=kind,
        current_value=value,
        configured_limit=most,
        outcome="rejected",
    )
