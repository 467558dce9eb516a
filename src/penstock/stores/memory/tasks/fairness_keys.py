"""How a key's row changes when its tasks are dispatched and end; every store follows these rules.

A key has a row once somebody asks something for it, or once what it has paid or runs matters.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.limits.policies import KeySettings
from penstock.core.model import QueueId
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import KeyRow, Tables


def row(tables: Tables, queue_id: QueueId, key: str) -> KeyRow:
    """The key's row, or what it would say if there were one."""
    return tables.keys.of(queue_id).get(key) or KeyRow(KeySettings(key))


def save(tables: Tables, changes: Changes, queue_id: QueueId, settings: KeySettings) -> None:
    """Keep what the operator asked; a key for which nothing is asked any more has no settings."""
    row_cache = replace(settings, at_ms=None) if settings.is_empty else settings
    _put(tables, changes, queue_id, replace(row(tables, queue_id, settings.key), settings=row_cache))


def uncount(tables: Tables, changes: Changes, queue_id: QueueId, key: str) -> None:
    """A counted lease has ended."""
    found = tables.keys.of(queue_id).get(key)
    if found is not None:
        _put(tables, changes, queue_id, replace(found, running=found.running - 1))


def spend(
    tables: Tables, changes: Changes, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int
) -> None:
    """The key was given something: what it has paid, None for nothing new, and how many leases are counted."""
    found = row(tables, queue_id, key)
    paid = paid_until_ns or found.paid_until_ns
    _put(tables, changes, queue_id, replace(found, paid_until_ns=paid, running=found.running + leased))


def recount(tables: Tables, changes: Changes, queue_id: QueueId, running: dict[str, int]) -> None:
    """Set what every key of a line runs."""
    for key in [*tables.keys.of(queue_id), *running]:
        found = row(tables, queue_id, key)
        if found.running != running.get(key, 0):
            _put(tables, changes, queue_id, replace(found, running=running.get(key, 0)))


def tells_nothing(found: KeyRow, now_ns: int) -> bool:
    """Nothing is asked for it, it runs nothing and owes nothing."""
    return found.settings.at_ms is None and not found.running and found.paid_until_ns <= now_ns


def _put(tables: Tables, changes: Changes, queue_id: QueueId, found: KeyRow) -> None:
    assert found.running >= 0, f"key {found.settings.key!r} ended more than it ran"
    changes.add(tables.keys, queue_id, found.settings.key, found)
