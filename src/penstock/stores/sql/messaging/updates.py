"""Updates of runs in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from penstock.core.model import RunId, Update, UpdateStatus
from penstock.stores.sql.session import Repository, Row


class SqlUpdates(Repository):
    async def get(self, update_id: str) -> Update | None:
        return _first(await self._session.fetch("get_update", update_id))

    async def next_accepted(self, run_id: RunId) -> Update | None:
        return _first(await self._session.fetch("next_accepted_update", run_id))

    async def accepted_of(self, run_id: RunId) -> Sequence[Update]:
        return [_update(row) for row in await self._session.fetch("accepted_updates", run_id)]

    async def all_of(self, run_id: RunId) -> Sequence[Update]:
        return [_update(row) for row in await self._session.fetch("all_updates", run_id)]

    def insert(self, update: Update) -> None:
        self._session.record("insert_update", *astuple(update))

    def save(self, update: Update) -> None:
        self._session.record(
            "save_update",
            update.update_id,
            update.run_id,
            update.status,
            update.outcome,
            update.closed_at_ms,
        )


def _first(rows: Sequence[Row]) -> Update | None:
    return _update(rows[0]) if rows else None


def _update(row: Row) -> Update:
    values: list[Any] = [*row[1:]]
    values[8] = UpdateStatus(values[8])
    return Update(*values)
