"""A queue as operations see it: its row, with settings that live elsewhere."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import Queue
from penstock.stores.memory.tables import IN_FORCE, Tables


def seen(tables: Tables, queue: Queue, now_ms: int) -> Queue:
    """The queue with the fairness default of its namespace and the limits in force for it now."""
    namespace = tables.namespaces.get(queue.namespace)
    fair = queue.fair_by_default if namespace is None else namespace.fair
    limits = tables.admission[IN_FORCE].of(queue.namespace, queue.name, queue.kind, queue.policy, now_ms)
    return replace(queue, fair_by_default=fair, limits=limits, at_ms=now_ms)
