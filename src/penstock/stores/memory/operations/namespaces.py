"""Namespaces, by name."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import Namespace
from penstock.stores.memory.tables import MemoryRepository


class MemoryNamespaces(MemoryRepository):
    async def get(self, name: str) -> Namespace | None:
        return self._tables.namespaces.get(name)

    async def list(self) -> Sequence[Namespace]:
        return sorted(self._tables.namespaces.values(), key=lambda each: each.name)

    async def reserve(self, namespace: Namespace) -> bool:
        self._changes.allow()
        if namespace.name in self._tables.namespaces:
            return False
        self._changes.put(self._tables.namespaces, namespace.name, namespace)
        return True

    def save(self, namespace: Namespace) -> None:
        def write() -> None:
            assert namespace.name in self._tables.namespaces
            self._changes.put(self._tables.namespaces, namespace.name, namespace)

        self._changes.record(write)

    def delete(self, name: str) -> None:
        def write() -> None:
            if name in self._tables.namespaces:
                self._changes.drop(self._tables.namespaces, name)

        self._changes.record(write)

    async def is_empty(self, name: str) -> bool:
        owned = (self._tables.runs, self._tables.queues, self._tables.workers)
        return not any(row.namespace == name for table in owned for row in table.values())
