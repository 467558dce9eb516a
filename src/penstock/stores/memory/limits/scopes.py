"""Admission scopes: the limits in force, and the leases and costs that each scope counts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from penstock.core.limits.admission import Admission, Declaration, ScopeRow
from penstock.core.limits.policies import Policy, PolicyChange
from penstock.core.model import Queue, QueueId, Task
from penstock.core.scheduling.gates import ScopeState
from penstock.stores.memory.changes import Phase
from penstock.stores.memory.limits.queue_view import seen
from penstock.stores.memory.tables import IN_FORCE, MemoryRepository
from penstock.stores.memory.tasks import lease_counts


class MemoryScopes(MemoryRepository):
    async def admission(self) -> Admission:
        return self._tables.admission[IN_FORCE]

    async def lock_admission(self) -> Admission:
        return await self.admission()

    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        rows = [self._tables.queues[queue_id] for queue_id in sorted(self._tables.queues)]
        return [seen(self._tables, row, self._now_ms) for row in rows if namespace in (None, row.namespace)]

    async def names(self, after: str, limit: int) -> Sequence[str]:
        return heapq.nsmallest(limit, (name for name in self._tables.scope_names if name > after))

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        for name in sorted(set(names)):
            if name not in self._tables.scope_names:
                self._make(name)
        return [self._tables.scope_names[name] for name in names]

    async def lock(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        return [self._tables.scopes[scope_id] for scope_id in sorted(scope_ids)]

    async def find(self, names: Sequence[str]) -> Sequence[ScopeState]:
        known = self._tables.scope_names
        return await self.lock([known[name] for name in names if name in known])

    async def settlements(self, scope_id: int) -> Sequence[tuple[int, int]]:
        self._changes.allow()
        found = list(self._tables.settlements.of(scope_id).items())
        for number, _ in found:
            self._changes.remove(self._tables.settlements, scope_id, number)
        return [settlement for _, settlement in found]

    async def counted(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        return sum(
            lease_counts.counts(task, scope_id)
            for queue_id in queue_ids
            for task in lease_counts.leases(self._tables, queue_id)
        )

    async def difference(self, scope_id: int) -> int:
        counted = await self.counted(scope_id, list(self._tables.queues))
        return self._tables.scopes[scope_id].running - counted

    async def adopt(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        self._changes.allow()
        joining = [
            task
            for queue_id in queue_ids
            for task in lease_counts.leases(self._tables, queue_id)
            if not task.claimed and not lease_counts.counts(task, scope_id)
        ]
        for task in joining:
            scopes = f"{task.scopes or ' '}{scope_id} "
            self._changes.put(self._tables.tasks, task.task_id, replace(task, scopes=scopes))
        return len(joining)

    async def hold(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        return await self.counted(scope_id, queue_ids)

    async def holders(self, scope_id: int, queue_id: QueueId, limit: int) -> Sequence[Task]:
        held = [
            task
            for task in lease_counts.leases(self._tables, queue_id)
            if lease_counts.counts(task, scope_id)
        ]
        return heapq.nsmallest(limit, held, key=lambda task: (task.lease_expires_at_ms or 0, task.task_id))

    async def changes(self, name: str, limit: int) -> Sequence[PolicyChange]:
        log = self._tables.scope_changes.of(name)
        newest = heapq.nsmallest(limit, log, key=lambda place: (-place[0], place[1]))
        return [log[place] for place in newest]

    def settle(self, state: ScopeState) -> None:
        self._changes.record(
            partial(lease_counts.settle, self._tables, self._changes, state), Phase.SETTLE_SCOPES
        )

    def settle_cost(self, scope_id: int, at_ms: int, amount: int) -> None:
        def write() -> None:
            if scope_id in self._tables.costed:
                number = next(self._tables.settlement_numbers)
                self._changes.add(self._tables.settlements, scope_id, number, (at_ms, amount))

        self._changes.record(write)

    async def any_settlement_before(self, at_ms: int) -> bool:
        return any(self._old_settlements(at_ms))

    def forget_settlements(self, before_ms: int) -> None:
        def write() -> None:
            for scope_id, number in list(self._old_settlements(before_ms)):
                self._changes.remove(self._tables.settlements, scope_id, number)

        self._changes.record(write)

    def _old_settlements(self, before_ms: int) -> Iterator[tuple[int, int]]:
        for scope_id in self._tables.scopes:
            for number, (at_ms, _) in self._tables.settlements.of(scope_id).items():
                if at_ms < before_ms:
                    yield scope_id, number

    def cool(self, scope_id: int, until_ms: int) -> None:
        def write() -> None:
            state = self._tables.scopes[scope_id]
            cooled = replace(state, cool_until_ms=max(state.cool_until_ms or 0, until_ms), cool_given=0)
            self._changes.put(self._tables.scopes, scope_id, cooled)

        self._changes.record(write)

    def save_policy(self, scope_id: int, policy: Policy) -> None:
        def write() -> None:
            row = ScopeRow(scope_id, self._tables.scopes[scope_id].name, policy)
            others = [each for each in self._tables.admission[IN_FORCE].rows if each.scope_id != scope_id]
            self._change(rows=tuple(sorted((*others, row), key=lambda each: each.name)))

        self._changes.record(write)

    def log(self, name: str, changes: Sequence[PolicyChange]) -> None:
        def write() -> None:
            log = self._tables.scope_changes
            for number, change in enumerate(changes):
                place = (change.version, number)
                assert place not in log.of(name), f"version {change.version} is in the log"
                self._changes.add(log, name, place, change)

        self._changes.record(write)

    def forget_changes(self, name: str, up_to_version: int) -> None:
        def write() -> None:
            log = self._tables.scope_changes
            for place in [place for place in log.of(name) if place[0] <= up_to_version]:
                self._changes.remove(log, name, place)

        self._changes.record(write, Phase.FORGET)

    def declare(self, declaration: Declaration, by: str) -> None:
        self._changes.record(
            partial(self._change, declaration=declaration, declared_by=by, declared_at_ms=self._now_ms)
        )

    def stamp(self, stamp: str, queue_ids: Sequence[QueueId]) -> None:
        """All queues use the one admission there is, so no queue needs a stamp."""
        self._changes.record(lambda: self._change(version=self._tables.admission[IN_FORCE].version + 1))

    def _make(self, name: str) -> None:
        self._changes.allow()
        scope_id = next(self._tables.scope_numbers)
        self._changes.put(self._tables.scopes, scope_id, ScopeState(scope_id, name))
        self._changes.put(self._tables.scope_names, name, scope_id)

    def _change(self, **values: Any) -> None:
        """A new object, because an admission caches what it has computed."""
        admission = self._tables.admission[IN_FORCE]
        self._changes.put(self._tables.admission, IN_FORCE, replace(admission, **values))
