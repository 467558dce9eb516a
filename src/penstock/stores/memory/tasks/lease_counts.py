"""How a scope counts leases: what was granted and what ended; every store follows these rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from penstock.core.model import QueueId, Task
from penstock.core.scheduling.gates import ScopeState
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import Tables


def leases(tables: Tables, queue_id: QueueId) -> Iterator[Task]:
    """The leases of a line, in no order."""
    return (tables.tasks[task_id] for task_id in tables.tasks_leased.of(queue_id))


def counts(task: Task, scope_id: int) -> bool:
    """Whether the scope counts the lease of this task."""
    return f" {scope_id} " in task.scopes


def settle(tables: Tables, changes: Changes, state: ScopeState) -> None:
    """Record what was granted; what ended is counted elsewhere, and may have grown since the scope was read."""
    ended = tables.scopes[state.scope_id].ended
    changes.put(tables.scopes, state.scope_id, replace(state, ended=ended))
    if state.costs:
        changes.put(tables.costed, state.scope_id, True)
    changes.check_invariant(partial(_check_invariant, tables, state.scope_id))


def end(tables: Tables, changes: Changes, scope_id: int) -> None:
    """A lease that the scope counts has ended."""
    state = tables.scopes[scope_id]
    changes.put(tables.scopes, scope_id, replace(state, ended=state.ended + 1))
    changes.check_invariant(partial(_check_invariant, tables, scope_id))


def _check_invariant(tables: Tables, scope_id: int) -> None:
    state = tables.scopes[scope_id]
    assert state.running >= 0, f"scope {state.name!r} ended more than it granted"
