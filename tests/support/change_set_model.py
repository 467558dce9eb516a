"""A model of change sets and approvals: what each step of a program of operators must do, in plain dictionaries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.core.limits.admission import namespace_scope, queue_scope
from penstock.core.limits.change_approvals import APPROVAL_LASTS_MS
from penstock.core.limits.change_sets import ItemTarget

PEOPLE = ("ada", "ben", "cat", "root")
NAMESPACE = namespace_scope("default")
QUEUES = tuple(queue_scope("default", name, "activity") for name in ("a", "b"))
WANTED = ItemTarget(NAMESPACE, "change_approvals")
TARGETS = (
    ItemTarget(QUEUES[0], "max_running"),
    ItemTarget(QUEUES[0], "fairness_weight_override", "acme"),
    ItemTarget(QUEUES[1], "max_running"),
    ItemTarget(NAMESPACE, "max_running"),
    WANTED,
)
SCOPES = (*QUEUES, NAMESPACE)
HOUR_MS = 3_600_000
Value = int | None


@dataclass
class ModelSet:
    """A change set of the model."""

    author: str
    items: dict[ItemTarget, tuple[Value, Value]]
    lasts_ms: int | None
    state: str = "proposed"
    due_at_ms: int | None = None
    applied_at_ms: int = 0
    undoes: int | None = None
    approvals: dict[str, tuple[int, dict[ItemTarget, tuple[Value, Value]], dict[str, int]]] = field(
        default_factory=dict
    )

    @property
    def scopes(self) -> set[str]:
        return {target.scope for target in self.items}

    @property
    def is_open(self) -> bool:
        return self.state in ("proposed", "scheduled")


@dataclass
class Model:
    """All limits, and all change sets by number."""

    now_ms: int
    values: dict[ItemTarget, Value] = field(default_factory=lambda: dict.fromkeys(TARGETS))
    versions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
    sets: list[ModelSet] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        return self.values[WANTED] or 0

    def lacking(self, found: ModelSet) -> int:
        """How many approvals are missing for an apply now."""
        now = {scope: self.versions[scope] for scope in found.scopes}
        counting = [
            by
            for by, (at_ms, items, versions) in found.approvals.items()
            if by != found.author
            and self.now_ms < at_ms + APPROVAL_LASTS_MS
            and (items, versions) == (found.items, now)
        ]
        return max(0, self.wanted - len(counting))

    def moved(self, found: ModelSet) -> bool:
        return any(self.values[target] != before for target, (before, _) in found.items.items())

    def do(self, step: tuple[Any, ...]) -> str:
        """Carry out a step; what becomes of it in one word."""
        return str(getattr(self, f"do_{step[0]}")(*step[1:]))

    def _items(self, asked: dict[ItemTarget, Value]) -> dict[ItemTarget, tuple[Value, Value]]:
        return {
            target: (self.values[target], after)
            for target, after in asked.items()
            if self.values[target] != after
        }

    def _write(self, values: dict[ItemTarget, Value]) -> None:
        self.values |= values
        for scope in {target.scope for target in values}:
            self.versions[scope] += 1

    def do_propose(self, by: str, asked: dict[ItemTarget, Value], lasts_ms: int | None) -> str:
        items = self._items(asked)
        if not items:
            return "validation_failed"
        self.sets.append(ModelSet(by, items, lasts_ms))
        return "done"

    def do_edit(self, by: str, number: int, asked: dict[ItemTarget, Value]) -> str:
        found, items = self.sets[number], self._items(asked)
        if not found.is_open or found.undoes is not None:
            return "change_set_state_conflict"
        if not items:
            return "validation_failed"
        found.author, found.items, found.lasts_ms = by, items, None
        found.approvals, found.state, found.due_at_ms = {}, "proposed", None
        return "done"

    def do_approve(self, by: str, number: int) -> str:
        found = self.sets[number]
        if not found.is_open:
            return "change_set_state_conflict"
        if by == found.author:
            return "own_change_set"
        found.approvals[by] = (
            self.now_ms,
            dict(found.items),
            {scope: self.versions[scope] for scope in found.scopes},
        )
        return "done"

    def do_unapprove(self, by: str, number: int) -> str:
        found = self.sets[number]
        if not found.is_open:
            return "change_set_state_conflict"
        found.approvals.pop(by, None)
        return "done"

    def do_apply(self, by: str, number: int, glass: bool) -> str:
        found = self.sets[number]
        if glass and by != "root":
            return "forbidden"
        if not found.is_open:
            return "change_set_state_conflict"
        if self.moved(found):
            return "stale"
        if not glass and self.lacking(found):
            return "change_needs_approval"
        self._apply(found)
        return "done"

    def _apply(self, found: ModelSet) -> None:
        undone, in_force = found.undoes, False
        while undone is not None:
            older = self.sets[undone]
            if older.state == "applied" and older.lasts_ms is not None:
                older.due_at_ms = older.applied_at_ms + older.lasts_ms if in_force else None
            undone, in_force = older.undoes, not in_force
        self._write({target: after for target, (_, after) in found.items.items()})
        found.state, found.applied_at_ms = "applied", self.now_ms
        found.due_at_ms = None if found.lasts_ms is None else self.now_ms + found.lasts_ms

    def do_schedule(self, by: str, number: int, at_ms: int) -> str:
        found = self.sets[number]
        if not found.is_open:
            return "change_set_state_conflict"
        found.state, found.due_at_ms = "scheduled", at_ms
        return "done"

    def do_withdraw(self, by: str, number: int) -> str:
        found = self.sets[number]
        if not found.is_open:
            return "change_set_state_conflict"
        found.state, found.due_at_ms = "withdrawn", None
        return "done"

    def do_rollback(self, by: str, number: int) -> str:
        found = self.sets[number]
        if found.state != "applied":
            return "change_set_state_conflict"
        items = {target: (after, before) for target, (before, after) in found.items.items()}
        self.sets.append(ModelSet(by, items, None, undoes=number))
        return "done"

    def do_set(self, by: str, target: ItemTarget, value: int) -> str:
        """A direct change: free where no approval is wanted, or where it wants more of them."""
        before = self.values[target]
        if self.wanted and not (target == WANTED and value >= (before or 0)):
            return "change_needs_approval"
        self._write({target: value})
        return "done"

    def do_pause(self, by: str, scope: str) -> str:
        """Pausing and resuming are free, and change what an approval saw."""
        self.versions[scope] += 1
        return "done"

    def do_sweep(self, ms: int) -> str:
        """Time passes; what is due is applied or ends, the oldest first."""
        self.now_ms += ms
        while due := [each for each in self.sets if (each.due_at_ms or self.now_ms + 1) <= self.now_ms]:
            found = min(due, key=lambda each: (each.due_at_ms or 0, self.sets.index(each)))
            found.due_at_ms = None
            if found.state == "applied":
                self._expire(found)
            elif self.moved(found) or self.lacking(found):
                found.state = "refused"
            else:
                self._apply(found)
        return "done"

    def _expire(self, found: ModelSet) -> None:
        found.state = "expired"
        back = {
            target: before for target, (before, after) in found.items.items() if self.values[target] == after
        }
        self._write(back)


def program(dice: random.Random, model: Model, *, timed: bool) -> Iterator[tuple[Any, ...]]:
    """Steps without end, each chosen for the model as it is then.

    Args:
        dice: Chooses them.
        model: The model that every step is carried out on before the next is chosen.
        timed: Whether time passes, so that change sets are scheduled and expire.
    """
    fresh = iter(range(3, 1_000_000))
    while True:
        by = dice.choice(PEOPLE)
        acts = ["propose", "set", "pause"]
        if model.sets:
            acts += (
                ["approve"] * 5 + ["apply"] * 5 + ["edit", "unapprove", "withdraw", "rollback", "rollback"]
            )
            acts += ["schedule", "sweep"] if timed else []
        act, number = dice.choice(acts), dice.randrange(max(1, len(model.sets)))
        number = max(0, len(model.sets) - 1 - int(dice.expovariate(0.5))) if dice.random() < 0.8 else number
        match act:
            case "propose":
                lasts_ms = dice.choice([None, HOUR_MS]) if timed else None
                yield act, by, _asked(dice, fresh), lasts_ms
            case "edit":
                yield act, by, number, _asked(dice, fresh)
            case "apply":
                yield act, by, number, dice.random() < 0.1
            case "schedule":
                yield act, by, number, model.now_ms + dice.choice([1, HOUR_MS])
            case "set":
                target = dice.choice(TARGETS)
                yield act, by, target, _value(dice, target, fresh)
            case "pause":
                yield act, by, dice.choice(QUEUES)
            case "sweep":
                yield act, dice.choice([1, HOUR_MS // 2, HOUR_MS, APPROVAL_LASTS_MS])
            case _:
                yield act, by, number


def _asked(dice: random.Random, fresh: Iterator[int]) -> dict[ItemTarget, Value]:
    targets = dice.sample(TARGETS, dice.choice([1, 1, 2, 3]))
    return {
        target: None if target != WANTED and dice.random() < 0.15 else _value(dice, target, fresh)
        for target in targets
    }


def _value(dice: random.Random, target: ItemTarget, fresh: Iterator[int]) -> int:
    """A value that the target did not have before, except for approvals, of which few are possible."""
    return dice.choice([0, 1, 1, 2]) if target == WANTED else next(fresh)
