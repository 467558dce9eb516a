"""Counting of leases by scopes, granted and ended; the SQL statements follow these rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from penstock.core.model import QueueId, Task
from penstock.core.scheduling.gates import ScopeState
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import Tables


def leases(tables: Tables, queue_id: QueueId) -> Iterator[Task]:
    """The leases of a queue, unordered."""
    return (tables.tasks[task_id] for task_id in tables.tasks_leased.of(queue_id))


def counts(task: Task, scope_id: int) -> bool:
    """Whether the scope counts the lease of this task."""
    return f" {scope_id} " in task.scopes


def settle(tables: Tables, changes: Changes, state: ScopeState) -> None:
    """Save the state of a scope, except its ended leases: they are counted separately and may have grown since."""
    ended = tables.scopes[state.scope_id].ended
    changes.put(tables.scopes, state.scope_id, replace(state, ended=ended))
    if state.costs:
        changes.put(tables.costed, state.scope_id, True)
    changes.check_invariant(partial(_check_invariant, tables, state.scope_id))


def end(tables: Tables, changes: Changes, scope_id: int) -> None:
    """Count the end of a lease that the scope counts."""
    state = tables.scopes[scope_id]
    changes.put(tables.scopes, scope_id, replace(state, ended=state.ended + 1))
    changes.check_invariant(partial(_check_invariant, tables, scope_id))


def _check_invariant(tables: Tables, scope_id: int) -> None:
    state = tables.scopes[scope_id]
    assert state.running >= 0, f"scope {state.name!r} ended more than it granted"
