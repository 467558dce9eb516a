"""The rows of a SQLite store, for what no operation of the engine returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from penstock.core.model import (
    Activity,
    ActivityId,
    ChildRun,
    Cohort,
    Instance,
    NewEvent,
    OutboxMessage,
    QueryTask,
    RecordedEvent,
    Run,
    RunId,
    Task,
    Timer,
    Update,
    WorkerRecord,
)
from penstock.core.scheduling.fairness import Lane
from penstock.ports.store import Tx
from penstock.stores.sqlite import fetches
from penstock.stores.sqlite.connections import connect
from penstock.stores.sqlite.store import SqliteStore

T = TypeVar("T")
ALL = 100_000
_LANE = "tag, weight_milli, wanted_milli, count, state"


class Tables:
    """Each table as it is now: values by primary key, in the order of insertion where the table has one."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._version = 0
        self._known: dict[str, dict[Any, Any]] = {}
        """The tables that were read since the last commit."""

    # reading

    def read(self, question: Callable[[Tx], Awaitable[T]]) -> T:
        """The answer of a read, without waiting for the event loop."""
        if self._store._reading is None:
            self._store._reading = self._store._reader()
        typed = cast("Callable[[Tx], Coroutine[Any, Any, T]]", question)
        return self._store._read_one(self._store._reading, typed, fetches.execute)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        connection = self._store._reading or self._store._reader()
        self._store._reading = connection
        return connection.execute(sql, values).fetchall()

    def _by_key(self, keys: str, table: str, get: Callable[..., Awaitable[Any]]) -> dict[Any, Any]:
        """The values of a table, by one or several columns."""
        [(version,)] = self.rows("PRAGMA data_version")
        if version != self._version:
            self._version, self._known = version, {}
        if table in self._known:
            return self._known[table]
        found = self.rows(f"SELECT {keys} FROM {table}")

        async def question(tx: Tx) -> dict[Any, Any]:
            return {row if len(row) > 1 else row[0]: await get(tx, *row) for row in found}

        self._known[table] = self.read(question)
        return self._known[table]

    @property
    def runs(self) -> dict[RunId, Run]:
        return self._by_key("run_id", "runs ORDER BY rowid", lambda tx, key: tx.runs.get(key))

    @property
    def instances(self) -> dict[tuple[str, str], Instance]:
        return self._by_key("namespace, workflow_id", "instances", lambda tx, *key: tx.runs.instance(*key))

    @property
    def events(self) -> dict[tuple[RunId, int], RecordedEvent]:
        pages = self._by_key("DISTINCT run_id", "events", lambda tx, key: tx.histories.page(key, 0, ALL))
        return {(run_id, event.sequence): event for run_id, page in pages.items() for event in page}

    @property
    def buffered_events(self) -> dict[RunId, list[NewEvent]]:
        return self._by_key("DISTINCT run_id", "buffered_events", lambda tx, key: tx.histories.buffered(key))

    @property
    def activities(self) -> dict[ActivityId, Activity]:
        return self._by_key(
            "activity_id", "activities ORDER BY rowid", lambda tx, key: tx.activities.get(key)
        )

    @property
    def timers(self) -> dict[str, Timer]:
        return self._by_key("timer_id", "timers", lambda tx, key: tx.timers.get(key))

    @property
    def children(self) -> dict[tuple[RunId, int], ChildRun]:
        return self._by_key("parent_run_id, step", "children", lambda tx, *key: tx.children.get(*key))

    @property
    def outbox(self) -> dict[str, OutboxMessage]:
        return self._by_key(
            "message_id", "outbox ORDER BY created_at_ms, message_id", lambda tx, key: tx.outbox.get(key)
        )

    @property
    def updates(self) -> dict[str, Update]:
        return self._by_key("update_id", "updates", lambda tx, key: tx.updates.get(key))

    @property
    def queries(self) -> dict[str, QueryTask]:
        return self._by_key("query_id", "query_tasks", lambda tx, key: tx.queries.get(key))

    @property
    def tasks(self) -> dict[str, Task]:
        return self._by_key("task_id", "tasks ORDER BY seq", lambda tx, key: tx.tasks.get(key))

    @property
    def lanes(self) -> dict[tuple[int, int, str], Lane]:
        found = self.rows(f"SELECT queue_id, level, key, {_LANE} FROM lanes")
        return {row[:3]: Lane(*row[1:]) for row in found}

    @property
    def workers(self) -> dict[tuple[str, str], WorkerRecord]:
        return self._by_key("namespace, worker_id", "workers", lambda tx, *key: tx.workers.get(*key))

    @property
    def cohorts(self) -> dict[tuple[str, str, str], Cohort]:
        return self._by_key(
            "namespace, task_queue, build_id", "cohorts", lambda tx, *key: tx.cohorts.get(*key)
        )

    def live_tasks(self, run_id: RunId) -> list[Task]:
        sql = "SELECT task_id FROM tasks WHERE run_id = ? AND state IN ('ready', 'delayed', 'leased') ORDER BY seq"
        found = self.rows(sql, run_id)

        async def question(tx: Tx) -> list[Task]:
            return [task for (task_id,) in found if (task := await tx.tasks.get(task_id)) is not None]

        return self.read(question)

    def count(self, table: str, where: str = "TRUE", *values: object) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table} WHERE {where}", *values)[0][0])

    # writing

    def execute(self, sql: str, *values: object) -> None:
        """Change rows as no operation does. The store notices it as it notices another process."""
        connection = connect(self._store._path, "off")
        connection.execute(sql, values)
        connection.close()
