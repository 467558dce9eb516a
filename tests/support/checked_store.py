"""A SQLite store that compares, after every group, the rows that it has at hand with those of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.stores.driving import Job
from penstock.stores.sql.activities import ACTIVITIES
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.kept import Table
from penstock.stores.sql.runs import RUNS
from penstock.stores.sql.tasks import TASKS
from penstock.stores.sql.unwritten import Unwritten
from penstock.stores.sqlite import TABLES, SqliteStore

_READ_BY: dict[Table[Any], str] = {RUNS: "get_run", TASKS: "get_task", ACTIVITIES: "get_activity"}
COMPARED_MAX = 50
"""The newest of each table: those that the group has touched."""


class CheckedUnwritten(Unwritten):
    """Finds out operations that save a row more than once: which of its values stays, no store would promise."""

    def add(self, writes: Mapping[Statement, list[tuple[Any, ...]]]) -> None:
        for table in TABLES:
            saved = Counter(
                row[0]
                for statement, rows in writes.items()
                if statement.name in table.told and statement.name.startswith("save_")
                for row in rows
            )
            twice = [key for key, times in saved.items() if times > 1]
            assert not twice, f"one operation saves {twice} of {table.name} twice"
        super().add(writes)


class CheckedStore(SqliteStore):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._unwritten = CheckedUnwritten(self._statements.values(), TABLES)
        self.rows_compared = self.owners_compared = 0

    async def _commit_group(self, jobs: list[Job]) -> None:
        await super()._commit_group(jobs)
        for table, statement in _READ_BY.items():
            at_hand = self._kept.shelf(table).rows()
            assert self._writing is not None or not at_hand, "nothing is at hand after a failure"
            for key in list(at_hand)[-COMPARED_MAX:]:
                self._compare(table, statement, key, at_hand[key])
        for owner, key in list(self._kept.shelf(TASKS).only().items())[-COMPARED_MAX:]:
            self._compare_only(owner, key)

    def _compare(self, table: Table[Any], statement: str, key: str, at_hand: object) -> None:
        assert self._writing is not None
        [row] = self._writing.execute(self._statements[statement].sql, (key,)).fetchall()
        assert table.make(row) == at_hand, f"{key} is at hand as it is not in the database"
        self.rows_compared += 1

    def _compare_only(self, owner: str, key: str) -> None:
        assert self._writing is not None
        rows = self._writing.execute(self._statements["lock_workflow_task"].sql, (owner,)).fetchall()
        assert [TASKS.id_of(TASKS.make(row)) for row in rows] == ([key] if key else []), (
            f"{owner} has another"
        )
        self.owners_compared += 1
