"""Simulations in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.operations.simulations import SimulationRecord, decoded, encoded
from penstock.stores.sql.session import Repository


class SqlSimulations(Repository):
    async def get(self, namespace: str, simulation_id: str) -> SimulationRecord | None:
        rows = await self._session.fetch("get_simulation", namespace, simulation_id)
        return decoded(rows[0][1]) if rows else None

    async def lock(self, simulation_id: str) -> SimulationRecord | None:
        rows = await self._session.fetch("lock_simulation", simulation_id)
        return decoded(rows[0][1]) if rows else None

    async def page(self, namespace: str, limit: int) -> Sequence[SimulationRecord]:
        return [decoded(row[1]) for row in await self._session.fetch("page_simulations", namespace, limit)]

    async def any_before(self, created_ms: int) -> bool:
        return bool(await self._session.fetch("any_old_simulation", created_ms))

    def create(self, record: SimulationRecord) -> None:
        self._session.record(
            "create_simulation",
            record.simulation_id,
            record.namespace,
            record.created_at_ms,
            encoded(record),
        )

    def save(self, record: SimulationRecord) -> None:
        self._session.record("save_simulation", record.simulation_id, encoded(record))

    def delete(self, simulation_id: str) -> None:
        self._session.record("delete_simulation", simulation_id)

    def forget(self, created_ms: int) -> None:
        self._session.record("forget_simulations", created_ms)
