"""What each page of the dashboard costs: time, CPU, bytes, statements, and what the plans say of large tables.

Pages are requested from a server in this process, so that only the server's own time is measured, and so that the
database itself is asked which statements reached it. Each of them is then planned again with its values.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import asyncpg
import pytest

from benchmarks.dashboard_crowds import (
    CLOSED,
    FIRST,
    KEY,
    LONG,
    QUEUE,
    SCHEDULE,
    SETTINGS,
    WORKER,
    in_process,
)
from benchmarks.processes import load_average
from benchmarks.sqlite_library import sqlite3
from penstock.stores.postgres import session_limits
from penstock.stores.sqlite.fetches import SEPARATOR
from tests.speed.statement_log import StatementLog, log_postgres, log_sqlite
from tests.support import asgi

HOST = "127.0.0.1:8080"
ORIGIN = f"http://{HOST}"
LARGE = frozenset({"runs", "tasks", "events", "activities", "run_attributes", "instances", "lanes"})
FAILED, PART = "Status = 'failed'", "00000123"
MS_MAX, BYTES_MAX, STATEMENTS_MAX = 150, 250_000, 12
"""What a page may take: server time at the 95th percentile, bytes, and statements."""
ROWS_MAX = 10_500
"""Most rows of a large table that one statement reads: a count stops at 10,000."""
_NOT_OF_PAGES = (
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "END",
    "PRAGMA",
    "SELECT 1, 'lease', min(",
    "SELECT (extract(epoch FROM clock_timestamp())",
)
"""What delimits transactions, and what the server reads for all requests: what is due next, and the database's time."""


def pages(run_id: str) -> Mapping[str, str]:
    """Every page by name, and the dialogs that read most."""
    run = f"/runs/{LONG}/{run_id}"
    return {
        "overview": "",
        "queues": "/queues",
        "queue, 10,000 keys": f"/queues/{QUEUE}",
        "queue, all keys": f"/queues/{QUEUE}/keys",
        "queue, keys found": f"/queues/{QUEUE}/keys?search={KEY[-2:]}",
        "queue, a dialog": f"/queues/{QUEUE}/cap?to=5",
        "queue, a key": f"/queues/{QUEUE}/keys/{KEY}",
        "runs": "/runs",
        "runs, failed": f"/runs?{urlencode({'q': FAILED})}",
        "runs, a part of an id": f"/runs?{urlencode({'q': PART})}",
        "runs, completion": "/runs/suggest?q=Work",
        "runs, all that match": "/runs/bulk/terminate",
        "run, 50,000 events": run,
        "run, its events": f"{run}?history=events",
        "run, a type opened": f"{run}?type=charge",
        "run, one event": f"{run}/events/40",
        "run, closed": f"/runs/{CLOSED}",
        "why, last of a key": f"/why/{FIRST}",
        "why, a run": f"/why/{LONG}",
        "tasks": "/tasks",
        "task": f"/tasks/{FIRST}",
        "workers": "/workers",
        "worker": f"/workers/{WORKER}",
        "schedules": "/schedules",
        "schedule": f"/schedules/{SCHEDULE}",
        "limits": "/limits",
        "limits, a dialog": f"/limits/change?scope={quote('namespace:default')}",
        "changes": "/changes",
        "system": "/system",
        "find": f"/find?q={LONG}",
    }


class Browser:
    """Somebody who is signed in at a server in this process."""

    def __init__(self, app: asgi.App) -> None:
        self._app = app
        self._cookie = ""

    async def sign_in(self) -> None:
        form = urlencode({"token": SETTINGS["DW_ADMIN_TOKEN"], "name": "somebody"}).encode()
        answer = await self._send("POST", "/ui/session", form)
        self._cookie = answer.headers["set-cookie"].partition(";")[0]

    async def get(self, target: str) -> bytes:
        answer = await self._send("GET", f"/ui{target}")
        if answer.status != 200:
            raise RuntimeError(f"{target} answered {answer.status}: {answer.raw[:500]!r}")
        return answer.raw

    async def _send(self, method: str, target: str, raw: bytes = b"") -> asgi.Answer:
        headers = [("host", HOST), ("origin", ORIGIN), ("cookie", self._cookie)]
        if raw:
            headers += [
                ("content-type", "application/x-www-form-urlencoded"),
                ("content-length", str(len(raw))),
            ]
        present = [each for each in headers if each[1]]
        return await asgi.call(self._app, method, target, headers=present, chunks=[raw])


@asynccontextmanager
async def looking(url: str) -> AsyncIterator[tuple[Browser, StatementLog, Mapping[str, str]]]:
    """A browser, the statements that its pages send, and the pages of the database at `url`."""
    log = StatementLog()
    with pytest.MonkeyPatch.context() as patch:
        (log_sqlite if url.startswith("sqlite:") else log_postgres)(log, patch)
        async with in_process(url) as server:
            browser = Browser(server.application)
            await browser.sign_in()
            text = (await browser.get(f"/runs/{LONG}")).decode()
            found = re.search(rf"/ui/runs/{LONG}/(\w+)", text)
            assert found is not None, "the page of a run links to what can be done to it"
            yield browser, log, pages(found[1])


async def measure_pages(url: str, asked: int) -> list[dict[str, Any]]:
    """One row for each page of a filled database."""
    rows: list[dict[str, Any]] = []
    async with looking(url) as (browser, log, wanted), planner(url) as plan:
        for name, target in wanted.items():
            first = await _timed(browser, target)
            raw = await browser.get(target)
            seen = await log.fewest(3, partial(browser.get, target))
            took = [await _timed(browser, target) for _ in range(asked)]
            scans = [each for sql, values in sent(log, seen) for each in await plan(sql, values)]
            rows.append(
                {
                    "page": name,
                    "asked": asked,
                    "first_ms": first[0],
                    "p50_ms": _percentile([each for each, _ in took], 50),
                    "p95_ms": _percentile([each for each, _ in took], 95),
                    "cpu_ms": _percentile([each for _, each in took], 50),
                    "cpu_p95_ms": _percentile([each for _, each in took], 95),
                    "bytes": len(raw),
                    "statements": len(sent(log, seen)),
                    "scans": sorted(set(scans)),
                    "load": load_average(),
                }
            )
    return rows


async def _timed(browser: Browser, target: str) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    await browser.get(target)
    return round((time.perf_counter() - began) * 1000, 1), round((time.process_time() - cpu) * 1000, 1)


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def sent(log: StatementLog, seen: Sequence[str]) -> list[tuple[str, Sequence[Any]]]:
    """The statements of a page with their values, without what is not the page's own."""
    return [(sql, log.values.get(sql, ())) for sql in seen if not sql.startswith(_NOT_OF_PAGES)]


Plan = Callable[[str, Sequence[Any]], Any]


@asynccontextmanager
async def planner(url: str) -> AsyncIterator[Plan]:
    """Tells which large tables a statement reads from end to end, or too much of."""
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)

        async def of_sqlite(sql: str, _: Sequence[Any]) -> list[str]:
            """The statement has its values: SQLite reports it that way."""
            rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            return [
                table
                for part, steps in parts_of_sqlite(sql, rows)
                for table in scanned_by_sqlite(part, steps)
            ]

        try:
            yield of_sqlite
        finally:
            connection.close()
        return
    settings = session_limits.server_settings(session_limits.read_limits(60_000))
    session = await asyncpg.connect(url, server_settings=settings)

    async def of_postgres(sql: str, values: Sequence[Any]) -> list[str]:
        text = await session.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values)
        return list(scanned_by_postgres(json.loads(text)[0]["Plan"]))

    try:
        yield of_postgres
    finally:
        await session.close()


def parts_of_sqlite(
    sql: str, rows: Sequence[tuple[int, int, int, str]]
) -> Sequence[tuple[str, Sequence[str]]]:
    """The parts of a merged statement, each with the steps of its plan; a statement of one part is its own."""
    texts = sql.split(SEPARATOR) if sql.startswith("SELECT 0, p.*") else [sql]
    if len(texts) == 1:
        return [(sql, [row[3] for row in rows])]
    compound = rows[0][0]
    heads = [row[0] for row in rows if row[1] == compound]
    assert len(heads) == len(texts), "each part has its own plan"
    part_of = {head: number for number, head in enumerate(heads)}
    steps: list[list[str]] = [[] for _ in texts]
    for step, above, _, text in rows:
        if above in part_of:
            part_of[step] = part_of[above]
            steps[part_of[step]].append(text)
    return list(zip(texts, steps, strict=True))


def scanned_by_sqlite(sql: str, steps: Sequence[str]) -> Iterator[str]:
    """The large tables that a plan walks, directly or along an index, except where a limit ends the walk."""
    names = {table: table for table in LARGE}
    for found in re.finditer(rf"\b(?:FROM|JOIN)\s+({'|'.join(LARGE)})\s+(?:AS\s+)?(\w+)", sql):
        names[found[2]] = found[1]
    for step in steps:
        walked = re.match(r"SCAN (\w+)", step)
        if walked and walked[1] in names:
            yield names[walked[1]]


def scanned_by_postgres(node: Mapping[str, Any]) -> Iterator[str]:
    """The large tables of which an executed plan read a great many rows, used or not."""
    table = node.get("Relation Name")
    read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    if table in LARGE and read > ROWS_MAX:
        yield f"{table}: {read:,.0f} rows"
    for below in node.get("Plans", ()):
        yield from scanned_by_postgres(below)
