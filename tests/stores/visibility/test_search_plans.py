"""No search scans or sorts more than it returns, according to the plans of the databases."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from penstock.core.visibility.binder import bind
from penstock.core.visibility.filters import EVERYTHING
from penstock.core.visibility.parser import parse
from penstock.ports.tables.visibility import PageStart, RunSearch
from penstock.stores.postgres import schema as postgres_schema
from penstock.stores.postgres import session_limits
from penstock.stores.sql.catalogue import Dialect, catalogue
from penstock.stores.sql.row_cache import ImmutableCache
from penstock.stores.sql.session import Fetch, Session
from penstock.stores.sql.visibility.visibility import SqlVisibility
from penstock.stores.sqlite import connections
from penstock.stores.sqlite import schema as sqlite_schema
from tests.support.builders import NOW_MS

T = TypeVar("T")
RUNS = 20_000
LIMIT, MOST = 50, 500
SHAPES = {
    "": "runs_newest",
    "WorkflowType = 'T1'": "runs_by_type",
    "WorkflowType = 'Nobody'": "runs_by_type",
    "WorkflowType IN ('T1', 'T2')": "runs_by_type",
    "WorkflowType STARTS_WITH 'T'": "runs_newest",
    "WorkflowId = 'w7'": "runs_of_instance",
    "RunId = 'r0000007'": "run_id",
    "Status = 'running'": "runs_by_end",
    "Status = 'failed'": "runs_by_end",
    "Status = 'closed'": "runs_newest",
    "Status = 'timed_out' AND WorkflowType = 'T1'": "runs_by_end",
    "StatusBucket = 'failed'": "runs_by_end",
    "TaskQueue = 'q1'": "runs_by_queue",
    "BusinessKey = 'b3'": "runs_by_business_key",
    "BuildId = 'nobody'": "runs_newest",
    "StartTime BETWEEN '60m ago' AND '50m ago'": "runs_newest",
    "CloseTime > '1m ago'": "runs_newest",
    "Customer = 'c4'": "run_attributes_newest",
    "Customer = 'c4' AND WorkflowType = 'T1' AND Status = 'failed' AND TaskQueue = 'q1'": "run_attributes_newest",
    "Amount > 5 AND Amount < 7": "run_attributes_newest",
    "Customer IS NOT NULL": "run_attributes_newest",
    "Customer IS NULL": "runs_newest",
    "memo.note = 'n1' OR Customer = 'c2' OR WorkflowId = 'w1'": "run_attributes_newest",
    "NOT (WorkflowType = 'T1' OR Customer = 'c2')": "runs_newest",
    "ParentWorkflowId = 'w1'": "run_attributes_newest",
}
"""Queries, each with an index that serves it."""

_COLUMNS = (
    "run_id, namespace, workflow_id, run_number, host, workflow_type, task_queue, business_key, level, key, "
    "weight_milli, compatibility, input, memo, search_attributes, started_at_ms, status, closed_reason, "
    "closed_at_ms, last_progress_at_ms, last_sequence, last_step, last_task, open_activities, open_timers, "
    "buffered, task_failures"
)


def fill(series: str) -> list[str]:
    """Runs: one in a hundred open, one in fifty failed, half with attributes."""
    return [
        f"""INSERT INTO runs ({_COLUMNS})
            SELECT 'r' || substr('0000000' || n, -7), 'default', 'w' || (n % 5000), 1,
                   CASE WHEN n % 10 = 9 THEN 'activity' ELSE 'workflow' END, 'T' || (n % 5), 'q' || (n % 7),
                   CASE WHEN n % 4 = 0 THEN 'b' || (n % 999) END, 3, '', 1000, NULL, '', '{{}}', '{{}}',
                   {NOW_MS} - n * 1000, CASE WHEN n % 100 = 0 THEN 'waiting' WHEN n % 50 = 1 THEN 'failed'
                   ELSE 'completed' END, CASE WHEN n % 100 = 0 THEN NULL WHEN n % 50 = 1 THEN 'failed'
                   ELSE 'completed' END, CASE WHEN n % 100 = 0 THEN NULL ELSE {NOW_MS} - n * 1000 END, 0, 1, 1, 1,
                   0, 0, 0, 0
              FROM {series}""",
        *(
            f"""INSERT INTO run_attributes (run_id, name, value, namespace, started_at_ms)
                SELECT 'r' || substr('0000000' || n, -7), '{name}', {value}, 'default', {NOW_MS} - n * 1000
                  FROM {series} WHERE n % 2 = 0 AND n % 10 <> 9"""
            for name, value in (
                ("Customer", "''"),
                ("Customer", "'sc' || (n % 40)"),
                ("Amount", "''"),
                ("Amount", "'n25001' || (1 + n % 9)"),
                ("memo.note", "'sn' || (n % 3)"),
            )
        ),
        "ANALYZE",
    ]


class Overheard:
    """Runs a search on a database, and records its statements."""

    def __init__(self, dialect: Dialect) -> None:
        self.visibility = SqlVisibility(Session(catalogue(dialect), NOW_MS, ImmutableCache()))
        self.fetches: list[Fetch] = []

    async def answered(self, fetch: Fetch) -> Any:
        raise NotImplementedError

    async def drive(self, question: Coroutine[Any, Any, T]) -> T:
        self.fetches.clear()
        answers: Any = None
        while True:
            try:
                fetches = question.send(answers)
            except StopIteration as end:
                return end.value
            self.fetches += fetches
            answers = [await self.answered(fetch) for fetch in fetches]


class OnSqlite(Overheard):
    def __init__(self, connection: Any) -> None:
        super().__init__(Dialect.SQLITE)
        self._connection = connection

    async def answered(self, fetch: Fetch) -> Any:
        return self._connection.execute(fetch.statement.sql, fetch.values).fetchall()

    def plan(self, fetch: Fetch) -> list[tuple[int, str]]:
        """The lines of a plan, each with the part that it belongs to."""
        rows = self._connection.execute("EXPLAIN QUERY PLAN " + fetch.statement.sql, fetch.values)
        return [(row[1], row[3]) for row in rows]


class OnPostgres(Overheard):
    def __init__(self, connection: Any) -> None:
        super().__init__(Dialect.POSTGRES)
        self._connection = connection

    async def answered(self, fetch: Fetch) -> Any:
        return await self._connection.fetch(fetch.statement.sql, *fetch.values)

    async def plan(self, fetch: Fetch) -> dict[str, Any]:
        text = await self._connection.fetchval(
            "EXPLAIN (ANALYZE, FORMAT JSON) " + fetch.statement.sql, *fetch.values
        )
        plan: dict[str, Any] = json.loads(text)[0]["Plan"]
        return plan


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> OnSqlite:
    path: Path = tmp_path_factory.mktemp("plans") / "penstock.db"
    sqlite_schema.prepare(path)
    connection = connections.connect(path, "normal")
    series = f"(WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {RUNS - 1}) SELECT n FROM s)"
    connection.execute("BEGIN")
    for statement in fill(series):
        connection.execute(statement)
    connection.execute("COMMIT")
    return OnSqlite(connection)


@pytest.fixture
async def on_postgres(postgres_url: str) -> AsyncIterator[OnPostgres]:
    await postgres_schema.migrate(postgres_url)
    connection = await asyncpg.connect(
        postgres_url, server_settings=session_limits.server_settings(session_limits.read_limits(10_000))
    )
    for statement in fill(f"(SELECT generate_series(0, {RUNS - 1}) AS n) s"):
        await connection.execute(statement.replace("substr('0000000' || n, -7)", "lpad(n::text, 7, '0')"))
    yield OnPostgres(connection)
    await connection.close()


def search(text: str) -> RunSearch:
    return RunSearch(
        "default",
        bind(parse(text), {"Amount": "double", "Customer": "keyword"}, NOW_MS) if text else EVERYTHING,
    )


async def ask_all(on: Overheard, text: str) -> list[Fetch]:
    """The statements of a first page, a later one and a count."""
    fetches: list[Fetch] = []
    for after in (None, PageStart(NOW_MS - RUNS * 500, "r")):
        await on.drive(on.visibility.page(search(text), after, LIMIT, MOST))
        fetches += on.fetches
        await on.drive(on.visibility.tally(search(text), after, MOST))
        fetches += on.fetches
    return fetches


@pytest.mark.parametrize("text", SHAPES, ids=lambda text: text or "everything")
async def test_sqlite_reads_indexes_newest_first_and_sorts_only_what_a_limit_has_cut(
    on_sqlite: OnSqlite, text: str
):
    served = False
    for fetch in await ask_all(on_sqlite, text):
        plan = on_sqlite.plan(fetch)
        for part, line in plan:
            assert not line.startswith(("SCAN runs", "SCAN t", "SCAN a", "SCAN run_attributes")), plan
            if line.startswith("SEARCH") and "started_at_ms" in line:
                assert not any(other == part and "ORDER BY" in told for other, told in plan), plan
            served = served or SHAPES[text] in line
    assert served


@pytest.mark.slow
async def test_postgres_looks_at_a_bounded_number_of_rows_whatever_is_asked(on_postgres: OnPostgres):
    for text, index in SHAPES.items():
        served = set()
        for fetch in await ask_all(on_postgres, text):
            plan = await on_postgres.plan(fetch)
            for node in nodes(plan):
                assert node["Node Type"] != "Seq Scan", (text, node)
                served.add(node.get("Index Name", ""))
            looked = sum(rows_read(node) for node in nodes(plan))
            ranges = fetch.statement.sql.count("UNION") + 1
            assert looked <= 3 * MOST * ranges + 1000, (text, looked, json.dumps(plan, indent=1))
        assert index in served or (index == "run_id" and "runs_pkey" in served), (text, served)


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for part in plan.get("Plans", ()) for node in nodes(part))]


def rows_read(node: dict[str, Any]) -> int:
    if "Scan" not in node["Node Type"] or node["Node Type"] == "Subquery Scan":
        return 0
    each = (
        node["Actual Rows"]
        + node.get("Rows Removed by Filter", 0)
        + node.get("Rows Removed by Index Recheck", 0)
    )
    return int(each * node["Actual Loops"])
