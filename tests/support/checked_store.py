"""A SQLite store that compares its row cache with the database after every group commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.stores.group_commit import QueuedOperation
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.row_cache import CachedTable
from penstock.stores.sql.tasks.activities import ACTIVITIES
from penstock.stores.sql.tasks.tasks import TASKS
from penstock.stores.sql.workflows.runs import RUNS
from penstock.stores.sql.write_buffer import WriteBuffer
from penstock.stores.sqlite.store import TABLES, SqliteStore

_READ_BY: dict[CachedTable[Any], str] = {RUNS: "get_run", TASKS: "get_task", ACTIVITIES: "get_activity"}
COMPARED_MAX = 50
"""The newest of each table: those that the group has touched."""


class CheckedWriteBuffer(WriteBuffer):
    """Refuses operations that save a row more than once: which of the values stays is undefined."""

    def append(self, writes: Mapping[Statement, list[tuple[Any, ...]]]) -> bool:
        for table in TABLES:
            saved = [
                row[0]
                for statement, rows in writes.items()
                if statement.name in table.written_by and statement.name.startswith("save_")
                for row in rows
            ]
            assert len(saved) == len(set(saved)), f"one operation saves a row of {table.name} twice: {saved}"
        return super().append(writes)


class CheckedStore(SqliteStore):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._write_buffer = CheckedWriteBuffer(self._statements.values(), TABLES)
        self.rows_compared = self.owners_compared = 0

    async def _commit_group(self, jobs: list[QueuedOperation]) -> None:
        await super()._commit_group(jobs)
        for table, statement in _READ_BY.items():
            cached = self._row_cache.tables[table].rows()
            assert self._writing is not None or not cached, "the cache is empty after a failure"
            for key in list(cached)[-COMPARED_MAX:]:
                self._compare(table, statement, key, cached[key])
        for owner, key in list(self._row_cache.tables[TASKS].only().items())[-COMPARED_MAX:]:
            self._compare_only(owner, key)

    def _compare(self, table: CachedTable[Any], statement: str, key: str, cached: object) -> None:
        assert self._writing is not None
        [row] = self._writing.execute(self._statements[statement].sql, (key,)).fetchall()
        assert table.make(row) == cached, f"{key} is cached with other values than the database has"
        self.rows_compared += 1

    def _compare_only(self, owner: str, key: str) -> None:
        assert self._writing is not None
        rows = self._writing.execute(self._statements["lock_workflow_task"].sql, (owner,)).fetchall()
        assert [TASKS.id_of(TASKS.make(row)) for row in rows] == ([key] if key else []), (
            f"{owner} has another live task than the cache says"
        )
        self.owners_compared += 1
