"""Changes of a fairness key's row when its tasks are dispatched and end; the SQL statements follow these rules.

A key has a row once it has settings, a rate debt or counted leases.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.limits.policies import KeySettings
from penstock.core.model import QueueId
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import KeyRow, Tables


def row(tables: Tables, queue_id: QueueId, key: str) -> KeyRow:
    """The row of a key, or its defaults if it has none."""
    return tables.keys.of(queue_id).get(key) or KeyRow(KeySettings(key))


def save(tables: Tables, changes: Changes, queue_id: QueueId, settings: KeySettings) -> None:
    """Save the settings of a key; empty settings lose their timestamp."""
    saved = replace(settings, at_ms=None) if settings.is_empty else settings
    _put(tables, changes, queue_id, replace(row(tables, queue_id, settings.key), settings=saved))


def uncount(tables: Tables, changes: Changes, queue_id: QueueId, key: str) -> None:
    """A counted lease has ended."""
    found = tables.keys.of(queue_id).get(key)
    if found is not None:
        _put(tables, changes, queue_id, replace(found, running=found.running - 1))


def spend(
    tables: Tables, changes: Changes, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int
) -> None:
    """Record a dispatch: the new rate debt, None if unchanged, and the number of counted leases."""
    found = row(tables, queue_id, key)
    paid = paid_until_ns or found.paid_until_ns
    _put(tables, changes, queue_id, replace(found, paid_until_ns=paid, running=found.running + leased))


def recount(tables: Tables, changes: Changes, queue_id: QueueId, running: dict[str, int]) -> None:
    """Set the lease counts of all keys of a queue."""
    for key in [*tables.keys.of(queue_id), *running]:
        found = row(tables, queue_id, key)
        if found.running != running.get(key, 0):
            _put(tables, changes, queue_id, replace(found, running=running.get(key, 0)))


def tells_nothing(found: KeyRow, now_ns: int) -> bool:
    """Whether the key has no settings, no leases and no rate debt."""
    return found.settings.at_ms is None and not found.running and found.paid_until_ns <= now_ns


def _put(tables: Tables, changes: Changes, queue_id: QueueId, found: KeyRow) -> None:
    assert found.running >= 0, f"key {found.settings.key!r} ended more than it ran"
    changes.add(tables.keys, queue_id, found.settings.key, found)
