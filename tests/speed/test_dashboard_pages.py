"""What the pages of the dashboard may cost beside many runs, waiting tasks, keys and events, on both databases.

The databases themselves are asked: which statements a page sends, how they are planned, and how much they read. The
benchmark `dashboard` measures the same pages beside a million runs, with their times.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from benchmarks.dashboard_crowds import CrowdSizes, fill_in_loop
from benchmarks.dashboard_pages import (
    BYTES_MAX,
    STATEMENTS_MAX,
    Browser,
    Plan,
    looking,
    parts_of_sqlite,
    planner,
    scanned_by_sqlite,
    sent,
)
from penstock.stores.postgres import schema as postgres_schema
from penstock.stores.sqlite.fetches import SEPARATOR
from tests.speed.statement_log import StatementLog, described

SIZES = CrowdSizes(closed_runs=25_000, waiting=15_000, keys=500, events=2_000)
"""More than a bounded count reads, of everything that could be scanned."""
TIMES = 3
INSTRUCTIONS_MAX = 600_000
"""Steps of SQLite for one page; one that visited every run would take more than a million."""


@dataclass(frozen=True)
class Looking:
    """A browser at a filled database."""

    store: str
    browser: Browser
    log: StatementLog
    pages: Mapping[str, str]
    plan: Plan


@pytest.fixture(scope="module")
async def visit(address: Path | str) -> AsyncIterator[Looking]:
    on_sqlite = isinstance(address, Path)
    url = f"sqlite:///{address}" if on_sqlite else str(address)
    if not on_sqlite:
        await postgres_schema.migrate(url)
    await fill_in_loop(url, SIZES)
    async with looking(url) as (browser, log, pages), planner(url) as plan:
        yield Looking("sqlite" if on_sqlite else "postgres", browser, log, pages, plan)


async def test_every_page_is_small_and_needs_few_statements(visit: Looking) -> None:
    for name, target in visit.pages.items():
        raw = await visit.browser.get(target)
        assert len(raw) <= BYTES_MAX, f"{name} has {len(raw):,} bytes, and at most {BYTES_MAX:,} are allowed"
        seen = await visit.log.fewest(TIMES, partial(visit.browser.get, target))
        statements = [sql for sql, _ in sent(visit.log, seen)]
        assert len(statements) <= STATEMENTS_MAX, (
            f"{visit.store}: {name} takes {len(statements)} statements, and at most {STATEMENTS_MAX} are allowed:\n"
            f"{described(statements)}"
        )


async def test_no_page_scans_a_large_table(visit: Looking) -> None:
    for name, target in visit.pages.items():
        async with visit.log.during() as seen:
            await visit.browser.get(target)
        for sql, values in sent(visit.log, seen):
            scanned = await visit.plan(sql, values)
            assert scanned == [], f"{visit.store}: {name} reads much of {scanned}: {sql[:1000]}"


async def test_what_a_page_reads_of_sqlite_is_bounded(visit: Looking) -> None:
    """Also by an index: SQLite counts its steps."""
    if visit.store != "sqlite":
        return  # the plans of PostgreSQL say how many rows were read
    for name, target in visit.pages.items():
        await visit.browser.get(target)
        took = await visit.log.fewest_instructions(TIMES, partial(visit.browser.get, target))
        assert took <= INSTRUCTIONS_MAX, f"{name} took {took:,} instructions of SQLite"


def test_a_plan_that_scans_is_recognised_among_the_parts_of_a_statement() -> None:
    names, runs = "SELECT t.name FROM namespaces t", "SELECT t.run_id FROM runs t"
    merged = f"SELECT 0, p.* FROM ({names}) p{SEPARATOR}SELECT 1, p.* FROM ({runs}) p"
    scan, search = "SCAN t", "SEARCH t USING INDEX runs_newest (namespace=?)"
    for first, second, found in ((scan, search, []), (search, scan, ["runs"])):
        rows = [(1, 0, 0, "COMPOUND QUERY"), (2, 1, 0, "LEFT-MOST SUBQUERY"), (5, 2, 0, first)]
        rows += [(9, 1, 0, "UNION ALL"), (11, 9, 0, second)]
        parts = parts_of_sqlite(merged, rows)
        assert [table for part, steps in parts for table in scanned_by_sqlite(part, steps)] == found


def test_a_plan_that_scans_is_recognised() -> None:
    sql = "SELECT count(*) FROM runs t WHERE t.status = 'x'"
    assert list(scanned_by_sqlite(sql, ["SCAN t"])) == ["runs"]
    assert list(scanned_by_sqlite(sql, ["SEARCH t USING INDEX runs_newest (namespace=?)"])) == []
