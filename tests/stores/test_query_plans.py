"""No statement scans a whole table, according to the plans of the databases."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from penstock.stores.postgres import schema as postgres_schema
from penstock.stores.postgres import session_limits
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue
from penstock.stores.sqlite import connections
from penstock.stores.sqlite import schema as sqlite_schema
from tests.stores.sample_rows import UNFILLED, fill_postgres, fill_sqlite

READS_ALL: Mapping[str, str] = {
    "list_namespaces": "it lists them all, and they are few",
    "get_admission": "all scopes that operators set something for, read when limits have changed",
    "all_queue_ids": "a limit of the whole cluster has changed, which concerns every line",
    "scope_difference": "it counts every lease, in an index that holds nothing else, for those who check us",
    "idle_lanes": "idle lanes only, no more than are asked for, and they are dropped then",
    "active_queues": "each queue is asked whether it has work, once in ten seconds over all servers",
}
"""Statements that may scan a table, and why."""

TAKES_ANY: Mapping[str, str] = {
    "any_expired_nonce": "one row will do",
    "any_fire_before": "one row will do",
    "any_schedule_event_before": "one row will do",
    "any_settlement_before": "one row will do",
    "any_meter_before": "one row will do",
    "any_journal_before": "one row will do",
    "any_old_simulation": "one row will do",
    "expired_queries": "some rows will do",
    "namespace_in_use": "one row will do",
}
"""Statements for which PostgreSQL would otherwise choose an unsuitable index, expecting to find a row early."""

AS_THE_STORE_ASKS = session_limits.server_settings(session_limits.read_limits(10_000)) | {
    "plan_cache_mode": "force_generic_plan"
}
LEFT_TO_ITSELF = AS_THE_STORE_ASKS | {"enable_seqscan": "on"}


@pytest.mark.parametrize("analysed", [True, False])
def test_sqlite_reads_no_table_from_end_to_end(tmp_path: Path, analysed: bool):
    path = tmp_path / "penstock.db"
    sqlite_schema.prepare(path)
    driver: Any = vars(connections)["sqlite3"]
    with contextlib.closing(driver.connect(path)) as connection:
        fill_sqlite(connection)
        if analysed:
            connection.execute("ANALYZE")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        walked: dict[str, list[str]] = {}
        for name, statement in catalogue(Dialect.SQLITE).items():
            values = [None] * len(statement.takes)
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values).fetchall()
            walked[name] = _walked_in_sqlite(statement.sql, [row[3] for row in plan], tables)
            if statement.many is not None:
                plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.many}", ("[]",)).fetchall()
                walked[f"{name} for many"] = _walked_in_sqlite(
                    statement.many, [row[3] for row in plan], tables
                )
    _check(walked, READS_ALL)


def test_sqlite_plans_no_statement_anew_for_other_values(tmp_path: Path):
    """The authorizer is called while a statement is planned, which shows when SQLite plans."""
    path = tmp_path / "penstock.db"
    sqlite_schema.prepare(path)
    driver: Any = vars(connections)["sqlite3"]
    planned: list[str] = []

    def may(_action: int, table: str | None, *_: Any) -> int:
        planned.append(table or "")
        return int(driver.SQLITE_OK)

    with contextlib.closing(driver.connect(path, isolation_level=None, cached_statements=2)) as connection:
        connection.set_authorizer(may)
        connection.execute("BEGIN")
        anew = []
        for name, statement in catalogue(Dialect.SQLITE).items():
            _execute(driver, connection, statement, 1)
            planned.clear()
            _execute(driver, connection, statement, 2)
            anew += [name] if planned else []
        _execute(
            driver,
            connection,
            Statement("bare", "SELECT 1 FROM tasks LIMIT ?1", (("most", "bigint"),), 0, True, True, False),
            1,
        )
        assert planned, "a test that cannot see a plan being made shows nothing"
    assert anew == []


def _execute(driver: Any, connection: Any, statement: Statement, number: int) -> None:
    values = [number if kind == "bigint" else json.dumps([number]) for _, kind in statement.takes]
    with contextlib.suppress(driver.IntegrityError):
        connection.execute(statement.sql, values).fetchall()


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [(AS_THE_STORE_ASKS, READS_ALL), (LEFT_TO_ITSELF, {**READS_ALL, **TAKES_ANY})],
    ids=["as the store asks", "left to itself"],
)
async def test_postgres_reads_no_table_from_end_to_end(
    postgres_url: str, settings: dict[str, str], allowed: Mapping[str, str]
):
    await postgres_schema.migrate(postgres_url)
    connection = await asyncpg.connect(postgres_url, server_settings=settings)
    try:
        await fill_postgres(connection)
        await connection.execute("VACUUM ANALYZE")
        walked = {
            name: [*_walked_in_postgres(await _plan(connection, statement))]
            for name, statement in catalogue(Dialect.POSTGRES).items()
        }
    finally:
        await connection.close()
    _check(walked, allowed)


def _check(walked: Mapping[str, list[str]], allowed: Mapping[str, str]) -> None:
    """Only the listed statements scan, and each of them still does: the list has no outdated entries."""
    walking = {name: tables for name, tables in walked.items() if set(tables) - UNFILLED}
    assert {name: tables for name, tables in walking.items() if name not in allowed} == {}
    assert [name for name in allowed if name not in walking] == []


def _walked_in_sqlite(sql: str, plan: list[str], tables: list[str]) -> list[str]:
    """The tables that are scanned, directly or by an index."""
    if _is_a_first_page(sql) and not any("TEMP B-TREE" in step for step in plan):
        return []
    names = {table: table for table in tables}
    for found in re.finditer(rf"\b(?:FROM|JOIN|UPDATE)\s+({'|'.join(tables)})\s+(?:AS\s+)?(\w+)", sql):
        names[found[2]] = found[1]
    scans = re.findall(r"^SCAN (\w+)", "\n".join(plan), flags=re.MULTILINE)
    return [names[scan] for scan in scans if scan in names]


def _is_a_first_page(sql: str) -> bool:
    """Whether the statement asks for the first rows in index order."""
    return re.search(r"\bLIMIT \?\d+ \+ 0$", sql) is not None and "WHERE" not in sql


async def _plan(connection: asyncpg.Connection[asyncpg.Record], statement: Statement) -> Mapping[str, Any]:
    """The generic plan."""
    values = ", ".join(["NULL"] * statement.parameters)
    await connection.execute(f"PREPARE planned AS {statement.sql}")
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE planned{values and f'({values})'}")
    await connection.execute("DEALLOCATE planned")
    plan: Mapping[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def _walked_in_postgres(node: Mapping[str, Any], *, only_first: bool = False) -> Iterator[str]:
    """The tables that are scanned, directly or by an index, except for a first page."""
    kind = node["Node Type"]
    is_walk = kind == "Seq Scan" or ("Index" in kind and "Index Cond" not in node)
    if is_walk and not (only_first and "Filter" not in node):
        yield node.get("Relation Name") or node["Index Name"]
    for below in node.get("Plans", ()):
        yield from _walked_in_postgres(below, only_first=kind == "Limit")
