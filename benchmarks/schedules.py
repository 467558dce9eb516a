"""Many schedules: what they cost at rest, and what 10,000 fires in one minute do to the work of others.

    python -m benchmarks.schedules --store postgres

A server has 100,000 schedules that are due days later; then come 10,000 that fire at the same moment, three times.
Measured are the CPU of the server at rest, without and with the first; how long the 10,000 starts take while nothing
else happens; and the rate and the latency of standalone activities of another queue in the seconds before and during
such starts, once paced and once as fast as the server goes. Each time has schedules of its own, which do not fire
again: on a busy machine the starts of one moment can take longer than any period.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from benchmarks.client_processes import crew
from benchmarks.databases import durable_postgres
from benchmarks.processes import cpu_of, load_average
from benchmarks.sqlite_library import sqlite3
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.workload_loops import OPERATOR_HEADERS, WORKER_HEADERS
from tests.support.live import headers

PERIOD_S = 300 * 86_400
SETTLE_S = 5.0
START_S = 30.0
"""The time in which the schedules of a burst are copied and the server starts, before it is measured."""
BEFORE_S = 20.0
"""The time before a moment in which the work of others is measured for comparison."""
LEAD_S = 4.0
_NUMBERS = {
    StoreName.SQLITE: (
        "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) SELECT n FROM c)"
    ),
    StoreName.POSTGRES: "(SELECT n FROM generate_series(1, {count}) AS c(n))",
}
_IDLE, _IDLE_SPREAD_MS = "idle", 1_000
"""The schedules that are not due, and how far their moments are from each other."""
_BESIDE = (("alone", 0, None), ("paced", 16, 100.0), ("saturated", 16, None))
"""The bursts: beside what they happen, in how many loops, and how often a second if not as fast as the server goes."""


@dataclass
class Neighbour:
    """Standalone activities of another queue, each started, leased and completed by one of several loops."""

    session: aiohttp.ClientSession
    loops: int
    a_second: float | None
    """How many, or as fast as the server goes."""
    done: list[tuple[float, float]] = field(default_factory=list)
    """When each was completed, and its latency in seconds."""

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        body = {"worker_id": "neighbour", "task_queue": "neighbour", "runtime": "external"}
        slots = {"max_concurrent_activity_tasks": 1_000, "supported_activity_types": ["near"]}
        await self._post("/api/worker/register", body | slots, WORKER_HEADERS)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._loop(number)) for number in range(self.loops)]
            try:
                yield
            finally:
                for each in tasks:
                    each.cancel()

    async def _loop(self, number: int) -> None:
        count = 0
        pause_s = 0.0 if self.a_second is None else self.loops / self.a_second
        due = time.perf_counter() + pause_s * number / self.loops
        while True:
            if pause_s:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                began, due = due, due + pause_s
            else:
                began = time.perf_counter()
            count += 1
            start = {"activity_id": f"near-{id(self)}-{number}-{count}", "activity_type": "near"}
            await self._post("/api/activities", start | {"task_queue": "neighbour"}, OPERATOR_HEADERS)
            await self._work()
            ended = time.perf_counter()
            self.done.append((ended, ended - began))

    async def _work(self) -> None:
        poll = {"worker_id": "neighbour", "task_queue": "neighbour", "timeout_seconds": 10}
        task = None
        while task is None:
            task = (await self._post("/api/worker/activity-tasks/poll", poll, WORKER_HEADERS))["task"]
        report = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": task["lease_owner"]}
        path = f"/api/worker/activity-tasks/{task['task_id']}/complete"
        await self._post(path, report | {"result": "done"}, WORKER_HEADERS)

    async def _post(self, path: str, body: dict[str, Any], head: dict[str, str]) -> Any:
        async with self.session.post(path, json=body, headers=head) as reply:
            found = await reply.json()
            assert reply.status < 300, found
            return found

    def between(self, began: float, ended: float) -> dict[str, float]:
        """Rate and latencies of what was completed between two times."""
        latencies = sorted(latency for at, latency in self.done if began <= at < ended)
        if not latencies:
            return {"per_second": 0.0}
        return {
            "per_second": round(len(latencies) / (ended - began), 1),
            "p50_ms": round(latencies[len(latencies) // 2] * 1000, 1),
            "p99_ms": round(latencies[len(latencies) * 99 // 100] * 1000, 1),
        }


@dataclass
class ManySchedules:
    ground: Ground
    store: StoreName
    count: int
    due: int
    rest_s: float

    def run(self) -> dict[str, Any]:
        url = new_store(self.store, self.ground)
        with serving(self.store, self.ground, url) as server:
            alone = self._at_rest(server)
            asyncio.run(self._create(server, _IDLE, {"every": "P300D", "offset": "P250D"}))
        self._copy(url, _IDLE, self.count - 1, _IDLE_SPREAD_MS)
        found: dict[str, Any] = {"store": self.store.value, "schedules": self.count, "due": self.due}
        with serving(self.store, self.ground, url) as server:
            found |= {"cpu_percent_without": alone, "cpu_percent_at_rest": self._at_rest(server)}
        found["bursts"] = [self._burst(url, *each) for each in _BESIDE]
        return found | {"load": load_average()}

    def _burst(self, url: str, beside: str, loops: int, a_second: float | None) -> dict[str, Any]:
        """All that is due at one moment, beside work of another queue."""
        moment_s = int(time.time() + START_S + BEFORE_S + LEAD_S)
        name = f"due-{beside}"
        with serving(self.store, self.ground, url) as server:
            interval = {"every": "P300D", "offset": f"PT{moment_s % PERIOD_S}S"}
            asyncio.run(self._create(server, name, interval))
        self._copy(url, name, self.due - 1, 0)
        with serving(self.store, self.ground, url) as server:
            burst = asyncio.run(self._fire(server, moment_s, loops, a_second))
        return {"beside": beside} | burst | self._started(url, moment_s * 1000)

    def _at_rest(self, server: Stand) -> dict[str, float]:
        time.sleep(SETTLE_S)
        began, before = time.perf_counter(), cpu_of(server.pids)
        time.sleep(self.rest_s)
        seconds, after = time.perf_counter() - began, cpu_of(server.pids)
        return {name: round((after[name] - before[name]) / seconds * 100, 2) for name in before}

    async def _create(self, server: Stand, name: str, interval: dict[str, str]) -> None:
        """Create the schedule of which the others are copies."""
        action = {"workflow_type": "burst", "task_queue": "burst", "input": ["x"]}
        body = {"schedule_id": name, "spec": {"intervals": [interval]}, "action": action}
        async with (
            aiohttp.ClientSession(server.url) as session,
            session.post(
                "/api/schedules", json=body | {"overlap_policy": "allow_all"}, headers=headers("operator")
            ) as reply,
        ):
            assert reply.status == 201, await reply.text()

    def _copy(self, url: str, name: str, count: int, spread_ms: int) -> None:
        if self.store is StoreName.SQLITE:
            with _sqlite(url) as connection:
                columns = [row[1] for row in connection.execute("PRAGMA table_info(schedules)")]
                connection.execute(_copies(self.store, name, columns, count, spread_ms))
        else:
            asyncio.run(_copy_in_postgres(url, name, count, spread_ms))

    async def _fire(self, server: Stand, moment_s: int, loops: int, a_second: float | None) -> dict[str, Any]:
        """Measure the work beside before a moment, and until all runs of the moment have started."""
        async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as session:
            neighbour = Neighbour(session, loops, a_second)
            wait_s = moment_s - BEFORE_S - LEAD_S - time.time()
            assert wait_s > 0, "the machine is too busy to be ready before the moment"
            await asyncio.sleep(wait_s)
            async with neighbour.working() if loops else contextlib.nullcontext():
                await asyncio.sleep(max(0.0, moment_s - time.time()))
                began, cpu = time.perf_counter(), cpu_of(server.pids)
                while await _fires_started(session) < self.due:  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.25)
                ended, after = time.perf_counter(), cpu_of(server.pids)
        burst: dict[str, Any] = {"cpu_seconds": {each: round(after[each] - cpu[each], 2) for each in cpu}}
        if loops:
            burst["before"] = neighbour.between(began - BEFORE_S, began - 0.5)
            burst["during"] = neighbour.between(began, ended)
        return burst

    def _started(self, url: str, moment_ms: int) -> dict[str, Any]:
        """How long after their moment the fires of it were started, in seconds."""
        text = f"SELECT at_ms FROM fires WHERE nominal_at_ms = {moment_ms} ORDER BY at_ms"
        if self.store is StoreName.SQLITE:
            with _sqlite(url) as connection:
                rows: Sequence[Any] = connection.execute(text).fetchall()
        else:
            rows = asyncio.run(_fetched(url, text))
        after = [(row[0] - moment_ms) / 1000 for row in rows]
        return {
            "fires": len(after),
            "first_s": after[0],
            "half_s": after[len(after) // 2],
            "all_s": after[-1],
            "per_second": round(len(after) / max(0.001, after[-1] - after[0]), 1),
        }


async def _copy_in_postgres(url: str, name: str, count: int, spread_ms: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'schedules' "
            "AND table_schema = current_schema() ORDER BY ordinal_position"
        )
        await connection.execute(
            _copies(StoreName.POSTGRES, name, [row[0] for row in rows], count, spread_ms)
        )
        await connection.execute("VACUUM ANALYZE schedules")
    finally:
        await connection.close()


async def _fetched(url: str, text: str) -> Sequence[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(text))
    finally:
        await connection.close()


@contextlib.contextmanager
def _sqlite(url: str) -> Iterator[Any]:
    with contextlib.closing(
        sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    ) as connection:
        yield connection


async def _fires_started(session: aiohttp.ClientSession) -> int:
    async with session.get("/metrics", headers=headers("admin")) as reply:
        text = await reply.text()
    lines = [
        line for line in text.splitlines() if line.startswith('penstock_schedule_fires{outcome="started"}')
    ]
    return int(float(lines[0].split()[-1])) if lines else 0


def _copies(store: StoreName, name: str, columns: Sequence[str], count: int, spread_ms: int) -> str:
    changed = {
        "schedule_key": "t.schedule_key || '-' || c.n",
        "schedule_id": "t.schedule_id || '-' || c.n",
        "due_at_ms": f"t.due_at_ms + {spread_ms} * c.n",
        "nominal_at_ms": f"t.nominal_at_ms + {spread_ms} * c.n",
        "created_at_ms": "t.created_at_ms + c.n",
    }
    values = ", ".join(changed.get(each, f"t.{each}") for each in columns)
    numbers = _NUMBERS[store].format(count=count)
    return (
        f"INSERT INTO schedules ({', '.join(columns)}) SELECT {values} FROM schedules t CROSS JOIN {numbers} AS c "
        f"WHERE t.schedule_id = '{name}'"
    )


def measured(store: StoreName, count: int, due: int, rest_s: float) -> dict[str, Any]:
    """One run on one store, in a folder of its own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-schedules-")))
        folder.chmod(0o755)  # PostgreSQL runs under an account of its own
        postgres = stack.enter_context(durable_postgres(folder)) if store is StoreName.POSTGRES else None
        ground = Ground(folder, stack.enter_context(crew()), postgres)
        return ManySchedules(ground, store, count, due, rest_s).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules")
    parser.add_argument("--store", choices=[each.value for each in StoreName], default="sqlite")
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--due", type=int, default=10_000, help="of these, so many fire at the same moment")
    parser.add_argument("--rest-seconds", type=float, default=20.0)
    given = parser.parse_args()
    found = measured(StoreName(given.store), given.schedules, given.due, given.rest_seconds)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
