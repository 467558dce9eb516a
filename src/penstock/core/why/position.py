"""The position of a task: how many tasks of other levels, other keys and its own key go first.

It follows from tags, without reading tasks: a lane at `tag` dispatches at `tag`, `tag + stride` and so on, and smaller
tags go first. A task with k tasks of its own key ahead is dispatched at `tag + k * stride`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Task
from penstock.core.scheduling import fairness
from penstock.core.scheduling.fairness import Lane, VirtualClock, stride
from penstock.core.why.sentences import count_text
from penstock.core.why.values import Constraint, ConstraintKind, Position, Remedy, RemedyKind

KEYS_SHOWN = 10


class LevelCounts(Struct, frozen=True):
    """Waiting and recently dispatched tasks of one level."""

    level: int
    keys: int
    tasks: int
    dispatched: int = 0
    """In this calendar minute."""
    dispatched_before: int = 0
    """In the calendar minute before."""
    is_exact: bool = True


class LaneContext(Struct, frozen=True):
    """The lanes around a task of a queue with fairness."""

    own: Lane
    own_ahead: int
    others: Sequence[Lane]
    """Lanes of its level with a tag up to its turn, smallest first; and new lanes."""
    keys_before: int
    """Their number, where not all were read."""
    clock: VirtualClock
    levels: Sequence[LevelCounts]
    is_exact: bool = True


def with_tags(fresh: Sequence[Lane], overrides: Mapping[str, int], clock: VirtualClock) -> list[Lane]:
    """New lanes of a level with the tags that the next claim will assign."""
    known = [replace(each, override_milli=overrides.get(each.key, each.override_milli)) for each in fresh]
    return fairness.assign_tags(known, [clock])[0]


def turn(lane: Lane, ahead: int, virtual: int) -> int:
    """The virtual time at which the lane dispatches the task with `ahead` others before it."""
    return max(lane.tag, virtual) + ahead * stride(lane.weight_milli)


def given_before(lane: Lane, tag: int, key: str, virtual: int) -> int:
    """How many tasks a lane dispatches before the task of `key` at `tag`; ties go by key."""
    step = stride(lane.weight_milli)
    until = tag if lane.key < key else tag - 1
    start = max(lane.tag, virtual)
    return 0 if until < start else min(lane.count, (until - start) // step + 1)


def position(task: Task, around: LaneContext) -> Position:
    """The position of a ready task in a queue with fairness."""
    virtual, own = around.clock.virtual, around.own
    at, next_at = turn(own, around.own_ahead, virtual), turn(own, 0, virtual)
    others = [lane for lane in around.others if lane.key != own.key]
    ahead = {lane.key: given_before(lane, at, own.key, virtual) for lane in others}
    before_turn = sum(given_before(lane, next_at, own.key, virtual) for lane in others)
    total = sum(ahead.values())
    if around.keys_before > len(others) and others:
        total = round(total * around.keys_before / len(others))
    return Position(
        level=task.level,
        key=task.key,
        ahead_by_level=_levels(task, around.levels),
        ahead_by_key=_largest(ahead),
        ahead_of_others=total,
        ahead_of_own=around.own_ahead,
        key_turn=before_turn,
        is_exact=around.is_exact and around.keys_before <= len(others) and _exact(around.levels),
    )


def _largest(ahead: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The keys with the most tasks ahead."""
    counts = sorted((each for each in ahead.items() if each[1]), key=lambda each: (-each[1], each[0]))
    return tuple(counts[:KEYS_SHOWN])


def arrival_position(task: Task, before: int, own: int, levels: Sequence[LevelCounts]) -> Position:
    """The position in order of arrival: `before` tasks of the level came earlier, `own` of them of its key."""
    return Position(
        level=task.level,
        key=task.key,
        ahead_by_level=_levels(task, levels),
        ahead_of_others=max(0, before - own),
        ahead_of_own=own,
        key_turn=max(0, before - own),
        is_exact=_exact(levels),
    )


def _levels(task: Task, levels: Sequence[LevelCounts]) -> tuple[tuple[int, int], ...]:
    return tuple((each.level, each.tasks) for each in levels if each.level < task.level and each.tasks)


def _exact(levels: Sequence[LevelCounts]) -> bool:
    return all(each.is_exact for each in levels)


def turns(place: Position, *, fair: bool) -> list[Constraint]:
    """The turns a task waits for when no limit is closed."""
    waits = [
        (ConstraintKind.PRIORITY, place.ahead_of_levels, "of levels that go first"),
        (
            ConstraintKind.FAIRNESS_TURN if fair else ConstraintKind.ARRIVAL_TURN,
            place.ahead_of_others,
            "of other keys of its level" if fair else "of its level that came earlier",
        ),
        (ConstraintKind.BEHIND_OWN_KEY, place.ahead_of_own, "of its own key"),
    ]
    return [
        Constraint(
            kind,
            f"{count_text(count, 'task')} {whose} {'goes' if count == 1 else 'go'} before it",
            used=count,
            frees=(Remedy(RemedyKind.TAKE_TURN, count=count),),
        )
        for kind, count, whose in waits
        if count
    ]
