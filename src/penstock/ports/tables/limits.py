"""Policies of queues, shared scopes, change sets, and the lease journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.core.limits.admission import Admission, Declaration
from penstock.core.limits.change_sets import ChangeSet, ChangeSetState
from penstock.core.limits.policies import KeySettings, KeyState, Policy, PolicyChange
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.limits.windows import Counts
from penstock.core.model import (
    Queue,
    QueueId,
    Task,
)
from penstock.core.operations.simulations import SimulationRecord
from penstock.core.scheduling.backlog import KeyFilter
from penstock.core.scheduling.fairness import LaneState
from penstock.core.scheduling.gates import ScopeState
from penstock.ports.tables.visibility import PageStart as PageStart


class Policies(Protocol):
    """A queue's settings and the rows of its keys. Written under the queue's lock."""

    async def key_states(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeyState]:
        """The keys that have a row."""
        ...

    async def keys_without_backlog(
        self, queue_id: QueueId, wanted: KeyFilter, after: str, limit: int
    ) -> Sequence[KeyState]:
        """Keys with settings or counted leases for which no task waits, by name."""
        ...

    async def key_settings(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeySettings]:
        """The keys that have settings."""
        ...

    async def keys_with_settings(self, queue_id: QueueId, limit: int) -> Sequence[KeySettings]: ...
    async def count_keys_with_settings(self, queue_id: QueueId) -> int: ...
    async def newest_changes(
        self, namespace: str, before_ms: int, limit: int
    ) -> Sequence[tuple[str, str, PolicyChange]]:
        """Changes of all queues of a namespace, newest first: the queue's name, its kind of tasks, and the change."""
        ...

    async def changes(self, queue_id: QueueId, limit: int) -> Sequence[PolicyChange]:
        """The log, newest version first."""
        ...

    async def count_leases(self, queue_id: QueueId) -> None:
        """Mark every lease of the queue as counted, and set the number of running tasks of each key.

        Only in `TransactionClass.CHANGE`: it relies on row locks, which do not separate operations that share a
        transaction.
        """
        ...

    async def rank_lanes(self, queue_id: QueueId, *, by_running: bool) -> None:
        """Set the rank of every busy lane by its key's running tasks, or reset all ranks."""
        ...

    async def idle_keys(self, now_ms: int, limit: int) -> Sequence[tuple[QueueId, str]]:
        """Keys without settings, running tasks or rate debt: their rows have no information left."""
        ...

    def save(self, queue_id: QueueId, policy: Policy) -> None: ...
    def save_worker_rate(self, queue_id: QueueId, rate: WorkerRate | None) -> None: ...
    def save_key(self, queue_id: QueueId, settings: KeySettings) -> None: ...
    def log(self, queue_id: QueueId, changes: Sequence[PolicyChange]) -> None: ...
    def forget_changes(self, queue_id: QueueId, up_to_version: int) -> None: ...
    def spend(self, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int) -> None:
        """Update a key's rate debt (None: unchanged) and add to its counted leases."""
        ...

    def settle(self, queue_id: QueueId, paid_until_ns: int, aging_turn: int, window: Counts) -> None:
        """Update the queue's rate debt, aging turn and dispatch window."""
        ...

    def touch_key(self, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
        """Set the state of a key's busy lanes, except new ones, so that the next claim evaluates them."""
        ...

    def rerank_others(self, queue_id: QueueId, level: int, key: str) -> None:
        """Mark the key's ready lanes at other levels as dirty, after a dispatch at this level."""
        ...

    def reset_lanes(self, queue_id: QueueId, lane_state: LaneState) -> None:
        """Set the state of every dirty, throttled or blocked lane: dirty to evaluate it again, ready to release it."""
        ...

    def drop_key(self, queue_id: QueueId, key: str) -> None:
        """Delete a key's row if it still has no information."""
        ...


class Scopes(Protocol):
    """Limits shared by several queues. Changed under the locks of the admission row and of every affected queue."""

    async def admission(self) -> Admission:
        """All limits that are in force."""
        ...

    async def lock_admission(self) -> Admission: ...
    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        """Lock every queue of a namespace, or of all: none of them grants anything meanwhile."""
        ...

    async def names(self, after: str, limit: int) -> Sequence[str]:
        """Names of scopes with counters, in order."""
        ...

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        """The scopes' ids; new scopes are created."""
        ...

    async def lock(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        """The counters of scopes by id, locked until the commit."""
        ...

    async def find(self, names: Sequence[str]) -> Sequence[ScopeState]:
        """The counters of those of the scopes that have any; not locked."""
        ...

    async def settlements(self, scope_id: int) -> Sequence[tuple[int, int]]:
        """Take the differences between real and estimated costs, as (granted at, amount)."""
        ...

    async def counted(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """The number of leases of these queues that the scope counts."""
        ...

    async def difference(self, scope_id: int) -> int:
        """The scope's counter minus the leases that it counts, in one snapshot."""
        ...

    async def adopt(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """Have the scope count every lease of these queues; returns how many are new to it."""
        ...

    async def hold(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """Like `counted`, with the leases locked until the commit."""
        ...

    async def holders(self, scope_id: int, queue_ids: Sequence[QueueId], limit: int) -> Sequence[Task]:
        """The leases of some queues that the scope counts, by expiry."""
        ...

    async def newest_changes(self, before_ms: int, limit: int) -> Sequence[tuple[str, PolicyChange]]:
        """Changes of all scopes of all namespaces, newest first, with the scope's name."""
        ...

    async def changes(self, name: str, limit: int) -> Sequence[PolicyChange]: ...
    def settle(self, state: ScopeState) -> None:
        """Update the counters of a scope, except ended leases, which are counted where they end."""
        ...

    def settle_cost(self, scope_id: int, at_ms: int, amount: int) -> None:
        """Record a difference between real and estimated cost: more is counted now, less returned to `at_ms`."""
        ...

    async def any_settlement_before(self, at_ms: int) -> bool: ...
    def forget_settlements(self, before_ms: int) -> None:
        """Delete differences that were not taken and are outside of every window."""
        ...

    def cool(self, scope_id: int, until_ms: int) -> None:
        """Close a scope until a time, unless it is closed for longer already."""
        ...

    def save_policy(self, scope_id: int, policy: Policy) -> None: ...
    def log(self, name: str, changes: Sequence[PolicyChange]) -> None: ...
    def forget_changes(self, name: str, up_to_version: int) -> None: ...
    def declare(self, declaration: Declaration, by: str) -> None: ...
    def stamp(self, stamp: str, queue_ids: Sequence[QueueId]) -> None:
        """Set the version of the limits, and the queues that must use it."""
        ...


class ChangeSets(Protocol):
    async def get(self, namespace: str, change_set_id: str) -> ChangeSet | None: ...
    async def lock(self, change_set_id: str) -> ChangeSet | None:
        """Lock a change set until the commit, before the limits that it changes."""
        ...

    async def page(
        self, namespace: str, state: ChangeSetState | None, before: PageStart | None, limit: int
    ) -> Sequence[ChangeSet]:
        """The change sets of a namespace, newest first."""
        ...

    async def due(self, now_ms: int, limit: int) -> Sequence[str]:
        """The ids of change sets that are to be applied or to end by now."""
        ...

    def create(self, change_set: ChangeSet) -> None: ...
    def save(self, change_set: ChangeSet) -> None: ...


class Simulations(Protocol):
    async def get(self, namespace: str, simulation_id: str) -> SimulationRecord | None: ...
    async def lock(self, simulation_id: str) -> SimulationRecord | None:
        """The record, locked until the commit."""
        ...

    async def page(self, namespace: str, limit: int) -> Sequence[SimulationRecord]:
        """Those of a namespace, newest first."""
        ...

    async def any_before(self, created_ms: int) -> bool: ...
    def create(self, record: SimulationRecord) -> None: ...
    def save(self, record: SimulationRecord) -> None: ...
    def delete(self, simulation_id: str) -> None: ...
    def forget(self, created_ms: int) -> None:
        """Delete those that were created before an instant."""
        ...


class Journal(Protocol):
    async def page(self, after: int, limit: int) -> Sequence[tuple[int, str]]: ...
    async def any_before(self, at_ms: int) -> bool: ...
    async def between(
        self, since_ms: int, until_ms: int, event: str, after: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """Lines of one event, from one time until another inclusive, after a sequence number."""
        ...

    def append(self, line: Mapping[str, Any]) -> None: ...
    def forget(self, before_ms: int) -> None: ...
