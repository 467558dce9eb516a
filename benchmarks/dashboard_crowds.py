"""What the dashboard is measured on: many closed runs, a queue with many waiting tasks and keys, and one long run.

A few real rows are made through the API: a queue with a worker, limits, changes, leases and a schedule, and one run of
each kind. They are then copied, as `crowds` and `workflows_crowds` do, while no server is up. The long run repeats its
last round, of an activity and three side effects, with later events, steps and instants.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.crowds import grow_postgres, grow_sqlite
from benchmarks.sqlite_library import sqlite3
from benchmarks.workflows_crowds import AMOUNT, CUSTOMER, ORIGINAL_AMOUNT, ORIGINAL_CUSTOMER, grow
from penstock import assembly
from penstock.core.timestamps import instant, iso
from penstock.settings import load
from tests.support import asgi, live

QUEUE, LONG_QUEUE, CLOSED_QUEUE = "payments", "orders", "archive"
LONG, CLOSED, FIRST = "long", "closed", "first"
WORKER, SCHEDULE, KEY = "worker-1", "nightly", "acme"
EVENTS_A_ROUND = 5
ROUND_MS = 250
LEASES = 24
CHANGES = 60
SETTINGS = live.TOKENS | {"DW_VIEWER_TOKEN": "viewer-secret", "DW_WORKER_STALE_AFTER_SECONDS": "3600"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CrowdSizes:
    """How much there is."""

    closed_runs: int
    waiting: int
    keys: int
    events: int

    @property
    def rounds(self) -> int:
        return self.events // EVENTS_A_ROUND


@contextlib.asynccontextmanager
async def in_process(url: str) -> AsyncIterator[assembly.Server]:
    """A server without sockets whose background duties do nothing."""
    loaded = load(SETTINGS | {"DW_DATABASE_URL": url, "DW_WORKER_POLL_TIMEOUT": "1"})
    async with assembly.assembled(loaded, duties=lambda _: []) as server:
        yield server


def fill(url: str, sizes: CrowdSizes) -> None:
    """Fill an empty database that has its schema."""
    asyncio.run(fill_in_loop(url, sizes))


async def fill_in_loop(url: str, sizes: CrowdSizes) -> None:
    """The same where an event loop runs."""
    await _with(url, _furnish)
    await _repeat_rounds(url, sizes.rounds - 2)
    await _with(url, _close_one)
    await asyncio.to_thread(grow, url, sizes.closed_runs - 1)
    await _with(url, _start_one)
    await asyncio.to_thread(_wait, url, sizes)


def _wait(url: str, sizes: CrowdSizes) -> None:
    if url.startswith("sqlite:"):
        grow_sqlite(Path(url.removeprefix("sqlite:///")), sizes.waiting - 1, sizes.keys)
    else:
        grow_postgres(url, sizes.waiting - 1, sizes.keys)


async def _with(url: str, work: Any) -> None:
    async with in_process(url) as server:
        await work(_Api(server.application))


class _Api:
    """Requests that must succeed."""

    def __init__(self, app: asgi.App) -> None:
        self._app = app

    async def send(self, method: str, target: str, body: Json, role: str = "operator") -> Json:
        raw = json.dumps(body).encode()
        headers = {"host": "127.0.0.1:8080", "content-type": "application/json"} | live.headers(role)
        lines = [(name.lower(), value) for name, value in headers.items()]
        lines.append(("content-length", str(len(raw))))
        answer = await asgi.call(self._app, method, target, headers=lines, chunks=[raw])
        if answer.status >= 300:
            raise RuntimeError(f"{method} {target} answered {answer.status}: {answer.raw[:500]!r}")
        found: Json = answer.json
        return found

    async def work(self, target: str, body: Json) -> Json:
        return await self.send("POST", f"/api/worker/{target}", body, "worker")

    async def poll(self, kind: str, queue: str) -> Json:
        body = {"worker_id": worker_of(queue), "task_queue": queue, "timeout_seconds": 0}
        task: Json = (await self.work(f"{kind}-tasks/poll", body))["task"]
        return task

    async def decide(self, task: Json, commands: Sequence[Json]) -> None:
        body = {name: task[name] for name in ("lease_owner", "workflow_task_attempt")}
        await self.work(f"workflow-tasks/{task['task_id']}/complete", body | {"commands": commands})


def worker_of(queue: str) -> str:
    return WORKER if queue == QUEUE else f"{queue}-worker"


async def _furnish(api: _Api) -> None:
    for queue in (QUEUE, LONG_QUEUE, CLOSED_QUEUE):
        registration = {
            "worker_id": worker_of(queue),
            "task_queue": queue,
            "runtime": "python",
            "supported_workflow_types": ["order"],
            "supported_activity_types": ["charge"],
            "max_concurrent_workflow_tasks": 100,
            "max_concurrent_activity_tasks": 100,
            "build_id": "2026-11-01",
        }
        await api.work("register", registration)
    for name, type_ in ((CUSTOMER, "keyword"), (AMOUNT, "int")):
        await api.send("POST", "/api/search-attributes", {"name": name, "type": type_})
    schedule = {
        "schedule_id": SCHEDULE,
        "spec": {"cron_expressions": ["0 3 * * *"]},
        "action": {"workflow_type": "order", "task_queue": LONG_QUEUE},
    }
    await api.send("POST", "/api/schedules", schedule)
    for number in range(CHANGES):
        limits = {
            "max_active_leases_per_queue": 200 + number,
            "reason": f"the bank asked for change {number}",
        }
        await api.send("PATCH", f"/api/task-queues/{QUEUE}/limits", limits | {"expires_in_seconds": 90_000})
    await api.send("PATCH", "/api/namespaces/default/limits", {"max_active_leases": 5_000}, "admin")
    for number in range(LEASES):
        await api.send("POST", "/api/activities", _activity(f"leased-{number}", f"leased-key-{number % 5}"))
    for _ in range(LEASES):
        await api.poll("activity", QUEUE)
    await _run_rounds(api, 2)


def _activity(activity_id: str, key: str) -> Json:
    return {
        "activity_id": activity_id,
        "activity_type": "charge",
        "task_queue": QUEUE,
        "fairness_key": key,
        "input": ["card 4242 4242 4242 4242"],
        "start_to_close_timeout_ms": 3_600_000,
    }


async def _run_rounds(api: _Api, count: int) -> None:
    start = {"workflow_id": LONG, "workflow_type": "order", "task_queue": LONG_QUEUE, "input": ["x"]}
    await api.send("POST", "/api/workflows", start)
    for _ in range(count):
        effects = [{"type": "record_side_effect", "result": f"result {number}"} for number in range(3)]
        charge = {"type": "schedule_activity", "activity_type": "charge", "arguments": None}
        await api.decide(await api.poll("workflow", LONG_QUEUE), [*effects, charge])
        task = await api.poll("activity", LONG_QUEUE)
        body = {name: task[name] for name in ("lease_owner", "activity_attempt_id")}
        await api.work(f"activity-tasks/{task['task_id']}/complete", body | {"result": "done"})


async def _close_one(api: _Api) -> None:
    """A run that is closed, has attributes of two kinds, and is newer than all others."""
    start = {
        "workflow_id": CLOSED,
        "workflow_type": "order",
        "task_queue": CLOSED_QUEUE,
        "input": ["x"],
        "search_attributes": {CUSTOMER: ORIGINAL_CUSTOMER, AMOUNT: ORIGINAL_AMOUNT},
    }
    await api.send("POST", "/api/workflows", start)
    await api.decide(
        await api.poll("workflow", CLOSED_QUEUE), [{"type": "complete_workflow", "result": "done"}]
    )


async def _start_one(api: _Api) -> None:
    await api.send("POST", "/api/activities", _activity(FIRST, KEY))


Row = dict[str, Any]
_NUMBERED_BY_DATABASE = "seq"
_STEPS_A_ROUND = EVENTS_A_ROUND - 1


async def _repeat_rounds(url: str, count: int) -> None:
    """Repeat the last round of the long run so often; it began as much earlier."""
    async with _database(url) as database:
        (run,) = await database.rows("runs", f"workflow_id = '{LONG}'")
        of_run = f"run_id = '{run['run_id']}'"
        events = await database.rows("events", f"{of_run} ORDER BY sequence")
        activities = await database.rows("activities", f"{of_run} ORDER BY step")
        tasks = await database.rows("tasks", f"{of_run} AND state = 'done' ORDER BY seq")
        for table, rows in (
            ("events", events[-EVENTS_A_ROUND:]),
            ("activities", activities[-1:]),
            ("tasks", tasks[-2:]),
        ):
            copies = [_later(row, number, count) for number in range(1, count + 1) for row in rows]
            await database.insert(table, copies)
        ms, last, step = ROUND_MS * count, run["last_sequence"], run["last_step"]
        await database.execute(
            f"UPDATE runs SET last_sequence = {last + EVENTS_A_ROUND * count}, "
            f"last_step = {step + _STEPS_A_ROUND * count}, started_at_ms = started_at_ms - {ms} WHERE {of_run}"
        )
        await database.execute(
            f"UPDATE events SET recorded_at_ms = recorded_at_ms - {ms} WHERE {of_run} AND sequence <= {last}"
        )


def _later(row: Row, number: int, count: int) -> Row:
    """A row of a round as the round has it that comes so much later; all of `count` are over by now."""
    found, steps, ms = dict(row), _STEPS_A_ROUND * number, ROUND_MS * (number - count)
    for name, value in row.items():
        if value is None:
            continue
        if name.endswith("_at_ms"):
            found[name] = value + ms
        elif name == "step":
            found[name] = value + steps
        elif name == "sequence":
            found[name] = value + EVENTS_A_ROUND * number
        elif name in ("activity_id", "task_id"):
            found[name] = f"{value}{number:06d}"
        elif name == "payload":
            found[name] = json.dumps(_later_payload(json.loads(value), number, steps, ms))
    return found


def _later_payload(payload: Json, number: int, steps: int, ms: int) -> Json:
    found = payload | {"sequence": payload["sequence"] + steps}
    if "activity_execution_id" in payload:
        found["activity_execution_id"] = f"{payload['activity_execution_id']}{number:06d}"
    if (started_ms := instant(payload.get("started_at") or "")) is not None:
        found["started_at"] = iso(started_ms + ms)
    return found


class _SqliteRows:
    """Reads and writes rows of a file."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, table: str, where: str) -> list[Row]:
        cursor = self._connection.execute(f"SELECT * FROM {table} WHERE {where}")
        names = [each[0] for each in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    async def insert(self, table: str, rows: Sequence[Row]) -> None:
        names = [name for name in rows[0] if name != _NUMBERED_BY_DATABASE]
        marks = ", ".join("?" * len(names))
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
        self._connection.executemany(statement, [[row[name] for name in names] for row in rows])

    async def execute(self, statement: str) -> None:
        self._connection.execute(statement)


class _PostgresRows:
    """Reads and writes rows of a database."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, table: str, where: str) -> list[Row]:
        return [dict(each) for each in await self._connection.fetch(f"SELECT * FROM {table} WHERE {where}")]

    async def insert(self, table: str, rows: Sequence[Row]) -> None:
        names = [name for name in rows[0] if name != _NUMBERED_BY_DATABASE]
        records = [[row[name] for name in names] for row in rows]
        await self._connection.copy_records_to_table(table, records=records, columns=names)

    async def execute(self, statement: str) -> None:
        await self._connection.execute(statement)


@contextlib.asynccontextmanager
async def _database(url: str) -> AsyncIterator[_SqliteRows | _PostgresRows]:
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            yield _SqliteRows(file)
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield _PostgresRows(connection)
    finally:
        await connection.close()
