"""A SQLite store without its optimisations: the reference for what cache, buffer and groups must not change."""

from __future__ import annotations

import sqlite3

from penstock.stores.group_commit import QueuedOperation
from penstock.stores.sql.row_cache import ImmutableCache
from penstock.stores.sqlite.ephemeral import EphemeralStore


class PlainStore(EphemeralStore):
    """Every operation has its own transaction, writes its rows at its end, and reads all of them anew."""

    async def _commit_group(self, jobs: list[QueuedOperation]) -> None:
        for job in jobs:
            await super()._commit_group([job])

    async def _run_group(self, cursor: sqlite3.Cursor, jobs: list[QueuedOperation]) -> None:
        self._row_cache.clear()
        self._immutable = ImmutableCache()
        await self._run_all(cursor, jobs, self._run_in_savepoint)
