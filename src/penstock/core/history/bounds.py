"""How much one run may have open, and how long its history may grow; with a warning before it is too late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from penstock.core.history.commands import (
    Command,
    External,
    OpenConditionWait,
    ScheduleActivity,
    StartChild,
    StartTimer,
    Terminal,
)
from penstock.core.history.waits import parse
from penstock.core.model import Run
from penstock.errors import InvalidInput, Reason

WARN_FROM_PERCENT = 80

ADVICE = {
    "pending_activity_count": "Await some of the activities before scheduling more.",
    "pending_timer_count": "Await or cancel some of the timers before starting more.",
    "pending_child_count": "Await some of the children before starting more.",
    "pending_update_count": "Wait for updates to be applied before sending more.",
    "pending_external_request_count": "Await some of the requests to other workflows before sending more.",
    "pending_signal_count": "Send signals more slowly, or let a worker take in those that wait.",
    "history_event_count": "Continue as new: the next run starts with an empty history.",
    "memo_size": "Keep less in the memo; large values belong into a result or a store of your own.",
    "search_attribute_size": "Keep less in search attributes; they are for finding runs.",
}
MEMO_BYTES_MAX = 65_536
SEARCH_ATTRIBUTE_BYTES_MAX = 40_960
EXTERNAL_REQUESTS_MAX = 1_000


class Bounds(Struct, frozen=True):
    open_activities_max: int
    open_timers_max: int
    events_max: int
    open_children_max: int = 2_000
    open_updates_max: int = 500
    unseen_signals_max: int = 5_000


class Pressure(Struct, frozen=True):
    """How near a run is to one of its bounds."""

    limit_kind: str
    current_value: int
    configured_limit: int

    @property
    def percent(self) -> int:
        return _percent(self.current_value, self.configured_limit)

    @property
    def advice(self) -> str:
        return ADVICE[self.limit_kind]


def pressures(run: Run, bounds: Bounds) -> list[Pressure]:
    """The bounds of which a run has used most, so that somebody can act before it must stop."""
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
    return [Pressure(*value) for value in values if _is_near(*value[1:])]


def _is_near(value: int, most: int) -> bool:
    return bool(value) and _percent(value, most) >= WARN_FROM_PERCENT


def _percent(value: int, most: int) -> int:
    return 100 * value // max(1, most)


def check_commands(run: Run, commands: Sequence[Command], bounds: Bounds) -> None:
    """A run that has grown to its limit may do nothing more, except end.

    Raises `structural_limit_exceeded` before anything is decided.
    """
    activities = timers = children = external = 0
    ends = False
    for each in commands:
        activities += isinstance(each, ScheduleActivity)
        timers += _needs_timer(each)
        children += isinstance(each, StartChild)
        external += isinstance(each, External)
        ends = ends or isinstance(each, Terminal)
    asked = len(parse(run.waits).external) if external else 0
    for kind, held, more, most in (
        ("pending_activity_count", run.open_activities, activities, bounds.open_activities_max),
        ("pending_timer_count", run.open_timers, timers, bounds.open_timers_max),
        ("pending_child_count", run.open_children, children, bounds.open_children_max),
        ("pending_external_request_count", asked, external, EXTERNAL_REQUESTS_MAX),
        ("history_event_count", run.last_sequence, 0 if ends else len(commands), bounds.events_max),
    ):
        if more and held + more > most:
            raise exceeded(kind, held + more, most)


def check_signal(run: Run, bounds: Bounds) -> None:
    _check_room(run, bounds, "pending_signal_count", run.unseen_signals, bounds.unseen_signals_max)


def check_update(run: Run, bounds: Bounds) -> None:
    _check_room(run, bounds, "pending_update_count", run.open_updates, bounds.open_updates_max)


def _check_room(run: Run, bounds: Bounds, kind: str, held: int, most: int) -> None:
    for each, value, limit in _one_more(run, bounds, kind, held, most):
        if value > limit:
            raise exceeded(each, value, limit)


def _one_more(run: Run, bounds: Bounds, kind: str, held: int, most: int) -> Iterator[tuple[str, int, int]]:
    yield kind, held + 1, most
    yield "history_event_count", run.last_sequence + run.buffered + 1, bounds.events_max


def check_size(kind: str, text: str, most: int) -> None:
    """Refuse what would be kept with a run, and read with it each time, if it is too large for that."""
    size = len(text.encode())
    if size > most:
        raise exceeded(kind, size, most)


def _needs_timer(command: Command) -> bool:
    return isinstance(command, StartTimer) or (
        isinstance(command, OpenConditionWait) and command.timeout_s is not None
    )


def exceeded(kind: str, value: int, most: int) -> InvalidInput:
    return InvalidInput(
        Reason.STRUCTURAL_LIMIT_EXCEEDED,
        f"The run would hold {value} where at most {most} are allowed ({kind}). "
        + ADVICE.get(kind, "Do the work in smaller portions."),
        limit_kind=kind,
        current_value=value,
        configured_limit=most,
        outcome="rejected",
    )
