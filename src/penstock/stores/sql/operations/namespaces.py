"""Namespaces in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import Namespace
from penstock.stores.sql.session import Repository

_OF_QUEUES = ("lanes", "clocks", "meters", "keys", "policy_changes", "retry_budgets", "samples")


class SqlNamespaces(Repository):
    async def get(self, name: str) -> Namespace | None:
        rows = await self._session.fetch("get_namespace", name)
        return Namespace(*rows[0][1:]) if rows else None

    async def list(self) -> Sequence[Namespace]:
        return [Namespace(*row[1:]) for row in await self._session.fetch("list_namespaces", 1)]

    async def is_empty(self, name: str) -> bool:
        rows = await self._session.fetch("namespace_in_use", name)
        return not rows[0][1]

    async def has_runs(self, name: str) -> bool:
        rows = await self._session.fetch("namespace_has_runs", name)
        return bool(rows[0][1])

    async def clear(self, name: str) -> int:
        for row in await self._session.fetch("clear_namespace_queues", name):
            for table in _OF_QUEUES:
                self._session.record(f"clear_queue_{table}", row[1])
        self._session.record("clear_namespace_cohorts", name)
        self._session.record("clear_namespace_change_sets", name)
        self._session.record("clear_namespace_simulations", name)
        return len(await self._session.fetch("clear_namespace_workers", name))

    async def reserve(self, namespace: Namespace) -> bool:
        return bool(await self._session.fetch("reserve_namespace", *astuple(namespace)))

    def save(self, namespace: Namespace) -> None:
        self._session.record("save_namespace", *astuple(namespace))

    def delete(self, name: str) -> None:
        self._session.record("delete_namespace", name)
