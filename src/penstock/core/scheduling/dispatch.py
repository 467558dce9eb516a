"""All scheduling rules as one question: a snapshot of the queue and the polls that wait, to grants or a hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.core.model import Queue, Worker
from penstock.core.scheduling import fairness
from penstock.core.scheduling.fairness import Clockwork, Lane


class HoldReason(StrEnum):
    """Why a poll gets nothing now."""

    EMPTY = "empty"
    PAUSED = "paused"


class PollStatus(StrEnum):
    """The outcome of a poll, in the contract's words."""

    LEASED = "leased"
    EMPTY = "empty"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Hold:
    """No task now: why, and when it is worth looking again (None: on the next wakeup)."""

    reason: HoldReason
    look_again_at_ms: int | None = None

    @property
    def poll_status(self) -> PollStatus:
        return PollStatus.EMPTY if self.reason is HoldReason.EMPTY else PollStatus.THROTTLED


@dataclass(frozen=True, slots=True)
class Fit:
    """Which tasks a worker can take: its types (none named: all) and its build."""

    types: tuple[str, ...]
    build_id: str | None


def fit(worker: Worker, types: tuple[str, ...]) -> Fit:
    return Fit(tuple(sorted(set(types))), worker.build_id)


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """What a claim may decide on, read under the queue's lock."""

    queue: Queue
    lanes: Sequence[Lane]
    """At least the `room` least lanes of each busy level that hold a task the asker fits."""
    clocks: Sequence[Clockwork]


@dataclass(frozen=True, slots=True)
class Grants:
    """How many tasks to take from which lane, in order."""

    order: tuple[tuple[int, str], ...]

    def counts(self) -> dict[tuple[int, str], int]:
        return fairness.Plan(self.order, (), ()).counts()


def decide(snapshot: QueueSnapshot, room: int) -> Grants | Hold:
    """Say who runs next: at most `room` tasks, or why none."""
    if snapshot.queue.paused:
        return Hold(HoldReason.PAUSED)
    lanes, clocks = _placed(snapshot)
    planned = fairness.plan([lane for lane in lanes if lane.fits], clocks, room)
    return Grants(planned.order) if planned.order else Hold(HoldReason.EMPTY)


@dataclass(frozen=True, slots=True)
class Settled:
    """The lanes and clocks to record once the tasks were really taken."""

    order: tuple[tuple[int, str], ...]
    lanes: tuple[Lane, ...]
    clocks: tuple[Clockwork, ...]


def settle(snapshot: QueueSnapshot, taken: dict[tuple[int, str], int]) -> Settled:
    """Bill each lane for what it really gave, no more: `budget-never-overspent`.

    A lane may give less than planned, when its tasks do not fit the worker. What it did not give is not billed.
    """
    lanes, clocks = _placed(snapshot)
    giving = [_limited(lane, taken.get((lane.level, lane.key), 0)) for lane in lanes]
    planned = fairness.plan(giving, clocks, sum(taken.values()))
    billed = {(lane.level, lane.key): lane for lane in planned.lanes}
    final: list[Lane] = []
    for lane in lanes:
        slot = (lane.level, lane.key)
        if slot in billed:
            left = lane.count - taken[slot]
            final.append(
                Lane(lane.level, lane.key, billed[slot].tag, lane.weight_milli, lane.wanted_milli, left)
            )
    fresh = {(lane.level, lane.key) for lane in snapshot.lanes if lane.place}
    final += [
        lane for lane in lanes if (lane.level, lane.key) in fresh and (lane.level, lane.key) not in billed
    ]
    merged = {clock.level: clock for clock in clocks} | {clock.level: clock for clock in planned.clocks}
    return Settled(planned.order, tuple(final), tuple(merged[level] for level in sorted(merged)))


def _limited(lane: Lane, count: int) -> Lane:
    return Lane(lane.level, lane.key, lane.tag, lane.weight_milli, lane.wanted_milli, min(lane.count, count))


def _placed(snapshot: QueueSnapshot) -> tuple[list[Lane], list[Clockwork]]:
    """Compute the tags of lanes that became busy or changed weight since the last claim."""
    clocks = {clock.level: clock for clock in snapshot.clocks}
    lanes = [lane for lane in snapshot.lanes if not lane.place]
    for level in sorted({lane.level for lane in snapshot.lanes if lane.place}):
        fresh = [lane for lane in snapshot.lanes if lane.place and lane.level == level]
        placed, clocks[level] = fairness.place(fresh, clocks.get(level, Clockwork(level)))
        lanes += placed
    return lanes, [clocks[level] for level in sorted(clocks)]
