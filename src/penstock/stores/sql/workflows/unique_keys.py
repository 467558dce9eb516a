"""Unique keys of starts in SQL."""

from __future__ import annotations

from msgspec.structs import astuple

from penstock.core.model import RunId
from penstock.core.starts.unique_starts import UniqueUntil
from penstock.ports.tables.runs import UniqueKeyName, UniqueKeyRow
from penstock.stores.sql.session import Repository


class SqlUniqueKeys(Repository):
    async def get(self, name: UniqueKeyName) -> UniqueKeyRow | None:
        return await self._read("get_unique_key", name)

    async def lock(self, name: UniqueKeyName) -> UniqueKeyRow | None:
        return await self._read("lock_unique_key", name)

    async def _read(self, statement: str, name: UniqueKeyName) -> UniqueKeyRow | None:
        rows = await self._session.fetch(statement, *astuple(name))
        if not rows:
            return None
        _, run_id, until, starts, latest_at_ms = rows[0]
        return UniqueKeyRow(RunId(run_id), UniqueUntil(until), starts, latest_at_ms)

    async def reserve(self, name: UniqueKeyName, row: UniqueKeyRow) -> bool:
        rows = await self._session.fetch("reserve_unique_key", *astuple(name), *_values(row))
        return bool(rows) and rows[0][1] == row.run_id

    def save(self, name: UniqueKeyName, row: UniqueKeyRow) -> None:
        self._session.record("save_unique_key", *astuple(name), *_values(row))

    def hand_on(self, run_id: RunId, successor: RunId) -> None:
        self._session.record("hand_on_unique_key", run_id, successor)


def _values(row: UniqueKeyRow) -> tuple[str, str, int, int | None]:
    return row.run_id, row.until.value, row.starts, row.latest_at_ms
