"""A SQLite store without its optimisations: the reference for what cache, buffer and groups must not change."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.stores.group_commit import QueuedOperation
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sqlite.ephemeral import EphemeralStore


class PlainStore(EphemeralStore):
    """Every operation has its own transaction, writes its rows at its end, and reads all of them anew."""

    def _next_jobs(self, most: int) -> list[QueuedOperation]:
        return super()._next_jobs(min(most, 1))

    async def _follow_ups(self, jobs: list[QueuedOperation]) -> list[QueuedOperation]:
        return []

    async def _run_all(
        self,
        cursor: sqlite3.Cursor,
        jobs: list[QueuedOperation],
        run: Callable[[sqlite3.Cursor, QueuedOperation, int], Coroutine[Any, Any, None]],
    ) -> None:
        self._row_cache.clear()
        self._immutable = ImmutableCache()
        await super()._run_all(cursor, jobs, self._run_in_savepoint)
