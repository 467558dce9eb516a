"""Mutants of the engine, each with one known fault: the checker must find every one by name.

A mutant is made by replacing a seam of the real engine inside the test's process; nothing in the product knows of it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from penstock.core.limits import policies, windows
from penstock.core.limits.policies import LimitSetting, Policy
from penstock.core.limits.windows import SECOND_MS, Window
from penstock.core.model import Queue, QueueId, Task, TaskKind, TaskState
from penstock.core.scheduling import fairness, gates
from penstock.core.scheduling.charges import LockedScopes
from penstock.core.scheduling.gates import ScopeState
from penstock.core.verify.findings import Law
from penstock.engine.activities import activity_reports
from penstock.engine.matching import dispatcher, permits, snapshot, undelivered
from penstock.ports.store import Operation, TransactionClass, Tx
from penstock.stores.sql.matching.queues import SqlQueues
from penstock.stores.sql.operations.nonces import SqlNonces
from penstock.stores.sql.session import Session
from penstock.stores.sqlite.store import SqliteStore
from penstock.wakeups.local import LocalWakeups

T = TypeVar("T")
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """A fault, and the invariants of which at least one must be reported as violated."""

    name: str
    commit: Callable[[Patch], None]
    caught_by: frozenset[Law]


MUTANTS: dict[str, Mutant] = {}


def mutant(*laws: Law) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def known(commit: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS[commit.__name__] = Mutant(commit.__name__, commit, frozenset(laws))
        return commit

    return known


@mutant(Law.CAP, Law.CLIENT_CAP)
def double_release(patch: Patch) -> None:
    """Every ended lease releases two permits."""
    honest = Session.record

    def end_twice(self: Session, name: str, *values: Any) -> None:
        for _ in range(2 if name == "end_in_scope" else 1):
            honest(self, name, *values)

    patch.setattr(Session, "record", end_twice)


@mutant(Law.CAP, Law.CLIENT_CAP)
def permit_not_taken_at_start(patch: Patch) -> None:
    """A prefetched task starts without being counted."""
    patch.setattr(permits, "_hold", lambda *_: None)


@mutant(Law.ACKNOWLEDGED, Law.ONE_OUTCOME, Law.ENDS_ONCE)
def missing_epoch_guard(patch: Patch) -> None:
    """Reports are accepted without checking the lease token."""
    honest = activity_reports._lease_refusal

    def unguarded(task: Task, *told: Any) -> Any:
        return None if task.state is TaskState.LEASED else honest(task, *told)

    patch.setattr(activity_reports, "_is_attempt", lambda *_: True)
    patch.setattr(activity_reports, "_lease_refusal", unguarded)


@mutant(Law.RATE, Law.CLIENT_RATE)
def minute_bucket_instead_of_sliding(patch: Patch) -> None:
    """The sliding window forgets everything at the calendar minute."""
    honest = windows._leaves_at_ms
    patch.setattr(windows, "_leaves_at_ms", lambda _, second: honest(Window.MINUTE, second))


@mutant(Law.RATE, Law.CLIENT_RATE)
def window_too_short(patch: Patch) -> None:
    """A sliding minute of fifty seconds."""
    patch.setattr(windows, "_leaves_at_ms", lambda _, second: (second + 50) * SECOND_MS)


@mutant(Law.DELIVERED)
def handed_back_without_refund(patch: Patch) -> None:
    """What was not delivered waits again, and what it was charged stays spent."""
    honest = undelivered._undelivered

    def unrefunded(task: Task, now_ms: int) -> Task:
        return replace(honest(task, now_ms), ended_refunded=False)

    patch.setattr(undelivered, "_undelivered", unrefunded)


@mutant(Law.RATE, Law.COST)
def refunded_twice(patch: Patch) -> None:
    """Undelivered tasks are refunded twice."""
    honest = windows.returned

    def twice(window: Window, counts: windows.Counts, at_ms: int, amount: int) -> windows.Counts:
        return honest(window, counts, at_ms, 2 * amount)

    patch.setattr(windows, "returned", twice)


@mutant(Law.CAP, Law.CLIENT_CAP)
def lock_scope_mismatch(patch: Patch) -> None:
    """One queue of a group takes another lock, so it decides by what it read before."""
    honest, before = snapshot.lock_scopes, dict[str, ScopeState]()

    async def unlocked(tx: Tx, queue: Queue) -> LockedScopes:
        locked = await honest(tx, queue)
        if queue.name != "b":
            return locked
        states = locked.states
        stale = {
            name: replace(before.get(name, state), ended=before.get(name, state).granted)
            for name, state in states.items()
        }
        before.update(states)
        return LockedScopes(stale, locked.corrected)

    patch.setattr(snapshot, "lock_scopes", unlocked)


@mutant(Law.LOST)
def lost_wakeup(patch: Patch) -> None:
    """Notifications are lost, and there is no fallback polling."""
    patch.setattr(LocalWakeups, "notify", lambda *_: None)
    patch.setattr(LocalWakeups, "notify_before_commit", lambda *_: ())
    patch.setattr(dispatcher, "LOOK_AGAIN_S", 3600.0)


class _RolledBackError(Exception):
    """Raised to have the store roll back an operation."""


@mutant(Law.ACKNOWLEDGED)
def ack_before_commit(patch: Patch) -> None:
    """Now and then a report is acknowledged although its transaction was rolled back."""
    honest, completions = SqliteStore.transact, itertools.count(1)

    async def forgetful(
        self: SqliteStore,
        operation: Operation[T],
        *,
        key: str,
        tx_class: TransactionClass = TransactionClass.WORK,
    ) -> T:
        is_completion = operation.__qualname__.startswith("completion_transaction.")
        if not is_completion or next(completions) % 7:
            return await honest(self, operation, key=key, tx_class=tx_class)
        outcome: list[T] = []

        async def rolled_back(tx: Tx) -> None:
            outcome.append(await operation(tx))
            raise _RolledBackError

        with contextlib.suppress(_RolledBackError):
            await honest(self, rolled_back, key=key, tx_class=tx_class)
        return outcome[-1]

    patch.setattr(SqliteStore, "transact", forgetful)


@mutant(Law.LATE_ANSWER)
def expiry_resurrected(patch: Patch) -> None:
    """An expired lease becomes valid again when its holder reports."""
    honest = activity_reports._lease_refusal

    def lenient(task: Task, run: Any, activity: Any, report: Any, now_ms: int) -> Any:
        return honest(task, run, activity, report, min(now_ms, (task.lease_expires_at_ms or now_ms + 1) - 1))

    patch.setattr(activity_reports, "_lease_refusal", lenient)


@mutant(Law.FIFO)
def newest_first(patch: Patch) -> None:
    """Last in, first out instead of first in, first out."""
    honest = SqlQueues.take

    async def take_last(self: SqlQueues, queue_id: QueueId, wanted: Any, worker_filter: Any) -> Any:
        everything = [(level, key, 10_000) for level, key, _ in wanted]
        found = await honest(self, queue_id, everything, worker_filter)
        return [tasks[::-1][:count] for tasks, (_, _, count) in zip(found, wanted, strict=True)]

    patch.setattr(SqlQueues, "take", take_last)


@mutant(Law.NAMESPACE)
def namespace_from_body(patch: Patch) -> None:
    """A worker gets tasks of another namespace."""
    honest = SqlQueues.ensure

    async def elsewhere(self: SqlQueues, namespace: str, name: str, kind: TaskKind) -> Queue:
        return await honest(self, "default", name, kind)

    patch.setattr(SqlQueues, "ensure", elsewhere)


@mutant(Law.CLOSED, Law.LIMIT_IN_FORCE)
def zero_is_unlimited(patch: Patch) -> None:
    """A cap of zero opens the gate instead of closing it."""

    def number(self: Policy, setting_name: LimitSetting) -> int | None:
        setting = self.settings.get(setting_name)
        return (setting.value or None) if setting is not None and isinstance(setting.value, int) else None

    patch.setattr(policies.Policy, "number", number)


@mutant(Law.COST)
def cost_not_reserved(patch: Patch) -> None:
    """A lease does not count against the budget."""
    honest = gates.charged

    def free(rules: Any, state: Any, count: int, cost: int, now_ms: int) -> Any:
        return honest(rules, state, count, 0, now_ms)

    patch.setattr("penstock.core.scheduling.dispatch.charged", free)
    patch.setattr(permits, "charged", free)


@mutant(Law.CAP, Law.CLIENT_CAP)
def cap_of_yesterday(patch: Patch) -> None:
    """Leases of the queue are counted one too few."""

    async def too_few(tx: Tx, queue: Queue) -> int:
        limit = queue.rules.lease_cap
        return 0 if limit is None else max(0, await tx.queues.running(QueueId(queue.queue_id), limit) - 1)

    patch.setattr(snapshot, "lease_count", too_few)


def weight_at_enqueue(patch: Patch) -> None:
    """A new weight only applies to later tasks; the backlog keeps the old one."""
    patch.setattr(fairness.Lane, "effective_milli", property(lambda lane: lane.wanted_milli))


def nonce_not_stored(patch: Patch) -> None:
    """Nonces are always accepted as new."""

    async def always_new(*_: Any) -> bool:
        return True

    patch.setattr(SqlNonces, "register", always_new)


BESIDE_LIMITS = (weight_at_enqueue, nonce_not_stored)
"""Faults that are not about limits: each is found by the check of its name."""
