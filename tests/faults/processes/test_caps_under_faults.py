"""Limits under faults: the checker finds no violation in the journal and the observations of workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from penstock.core.verify.check import check
from penstock.core.verify.findings import Law
from penstock.core.verify.journal import JournalLine, LeaseEnded, LeaseGranted
from penstock.core.verify.observations import Observation
from penstock.wire.operations.journal import read_observations
from tests.acceptance.cluster import Cluster
from tests.acceptance.witness import in_words, peak, read_all
from tests.faults.deadlines import until
from tests.faults.programs import clock_skewed_server, logging_worker
from tests.faults.programs.logging_worker import LEASE_MS
from tests.support.dispatch_log import standing
from tests.support.live import PENSTOCK, LiveServer, running, server
from tests.support.patience import PATIENCE_S
from tests.support.servers import CrashableRedis, crashable_redis

pytestmark = pytest.mark.faults

CAPS = {"c": 4}
GROUP_CAP, NAMESPACE_CAP, RATE = 6, 9, 7
SETTINGS = {
    "DW_JOURNAL": "true",
    "DW_ACTIVITY_TASK_TIMEOUT": str(LEASE_MS // 1000),
    "DW_WORKER_POLL_TIMEOUT": "2",
    "DW_QUARANTINE_AFTER": "0",
}
WORKING = ("a", "b", "c")
"""Queues whose tasks are all done in the end; those of `slow` wait for their rate."""


@pytest.fixture
def dice() -> random.Random:
    """A new seed each time; it is printed, so that a failure can be looked at again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@dataclass
class Bench:
    """Servers, worker processes that may die, and an operator; each writes down what it did."""

    cluster: Cluster
    folder: Path
    dice: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def hire(self, pollers: int, queues: str = "a,b,c,slow") -> subprocess.Popen[bytes]:
        """Start a worker process."""
        name = f"w{len(self.logs)}"
        log = self.folder / f"{name}.jsonl"
        self.logs.append(log)
        turned = len(self.logs) % len(self.cluster.servers)
        urls = [each.url for each in (*self.cluster.servers[turned:], *self.cluster.servers[:turned])]
        seed, folder = str(self.dice.randrange(2**32)), str(Path(__file__).parents[3])
        command = (sys.executable, logging_worker.__file__, name, str(log), seed, str(pollers), queues, *urls)
        with (self.folder / f"{name}.err").open("wb") as errors:
            worker = subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": folder}, stdout=errors, stderr=errors
            )
        self.workers.append(worker)
        return worker

    def dismiss(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait(PATIENCE_S)

    async def ask(self, method: str, path: str, body: object = None, role: str = "operator") -> Any:
        """Ask one server after the other until one answers."""

        async def answered() -> Any:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                reply = await asyncio.wait_for(self.cluster.ask(method, path, body, role=role), 5)
                if reply.status not in (429, 503):
                    return reply.ok().body
            return None

        return await until(f"{method} {path} is answered", answered, within_s=PATIENCE_S)

    async def limit(self, path: str, scope: str, **limits: int) -> None:
        body = dict(limits)
        if path.startswith("/api/task-queues") and "max_active_leases" in body:
            body["max_active_leases_per_queue"] = body.pop("max_active_leases")
        sent_at = time.monotonic() * 1000
        await self.ask("PATCH", path, body)
        line = {"op": "set_limits", "t_inv": sent_at, "t_ok": time.monotonic() * 1000, "scope": scope}
        with (self.folder / "operator.jsonl").open("a") as log:
            log.write(json.dumps(line | {"verdict": "accepted"} | limits) + "\n")

    async def limit_queue(self, queue: str, **limits: int) -> None:
        await self.limit(f"/api/task-queues/{queue}/limits", f"queue:default/{queue}/activity", **limits)

    async def set_up(self, tasks: int) -> None:
        """Two queues of one group, one with a cap of its own, one with a rate; all in a capped namespace."""
        await self.limit(
            "/api/namespaces/default/limits", "namespace:default", max_active_leases=NAMESPACE_CAP
        )
        await self.limit("/api/budget-groups/shared", "group:default/shared", max_active_leases=GROUP_CAP)
        for queue in ("a", "b"):
            path = f"/api/task-queues/{queue}/limits"
            await self.ask("PATCH", path, {"dispatch_budget_group": "shared"})
        for queue, cap in CAPS.items():
            await self.limit_queue(queue, max_active_leases=cap)
        path = "/api/task-queues/slow/limits"
        await self.ask("PATCH", path, {"max_dispatches_per_minute": RATE, "dispatch_window": "sliding"})
        for queue in WORKING:
            await self.cluster.queue_up(standing("", tasks), queue)
        await self.cluster.queue_up(standing("", 3 * RATE), "slow")

    async def left(self) -> int:
        """How many tasks of the working queues are not done."""
        total = 0
        for queue in WORKING:
            stats = (await self.ask("GET", f"/api/task-queues/{queue}"))["stats"]["activity_tasks"]
            total += stats["ready_count"] + stats["leased_count"] + stats.get("delayed_count", 0)
        return total

    async def come_to(self, left: int) -> None:
        async def so_far() -> bool:
            return await self.left() <= left

        await until(f"{left} tasks are left", so_far, within_s=PATIENCE_S)

    async def verdict(self) -> list[JournalLine]:
        """The journal, when all is done and the checker has found nothing in it or in what the workers saw."""
        await self.come_to(0)
        self.dismiss()
        lines = await read_all(self.cluster)
        book, evidence = check(lines, self.observations())
        assert in_words(book) == []
        for law in (Law.CAP, Law.CLIENT_CAP, Law.RATE, Law.LIMIT_IN_FORCE, Law.ONE_LEASE, Law.ACKNOWLEDGED):
            assert book.checked[law] > 0, law
        assert evidence.client_leases > 0
        return lines

    def observations(self) -> Iterator[Observation]:
        for log in (*self.logs, self.folder / "operator.jsonl"):
            if log.exists():
                with log.open("rb") as seen:
                    yield from read_observations(seen, log.name)


@contextlib.asynccontextmanager
async def bench(servers: Sequence[LiveServer], folder: Path, dice: random.Random) -> AsyncIterator[Bench]:
    with running(*servers):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            made = Bench(Cluster(servers, session), folder, dice)
            try:
                yield made
            finally:
                made.dismiss()


def cluster_of(
    count: int, folder: Path, url: str, settings: Mapping[str, str] | None = None
) -> list[LiveServer]:
    given = SETTINGS | dict(settings or {})
    return [server(folder, url, name=f"server-{number}", settings=given) for number in range(count)]


def peaks(lines: Sequence[JournalLine]) -> dict[str, int]:
    found = {queue: peak(lines, {("default", queue)}) for queue in CAPS}
    found["shared"] = peak(lines, {("default", "a"), ("default", "b")})
    return found | {"namespace": peak(lines, {("default", queue) for queue in (*WORKING, "slow")})}


def given_of(lines: Sequence[JournalLine], queue: str) -> int:
    """How many dispatches of a queue count: those that were granted and not refunded."""
    granted = {line.lease_id for line in lines if isinstance(line, LeaseGranted) and line.task_queue == queue}
    refunded = {line.lease_id for line in lines if isinstance(line, LeaseEnded) and line.refunded}
    return len(granted - refunded)


async def kill_and_restart(victim: LiveServer) -> None:
    await asyncio.to_thread(victim.kill)
    await asyncio.to_thread(victim.start)


async def stop_and_continue(victim: LiveServer, meanwhile: Any) -> None:
    os.kill(victim.pid, signal.SIGSTOP)
    try:
        await meanwhile
    finally:
        os.kill(victim.pid, signal.SIGCONT)


async def test_three_servers_and_their_workers_killed_and_stopped_while_limits_change(
    postgres_database: str, tmp_path: Path, dice: random.Random
):
    servers = cluster_of(3, tmp_path, postgres_database)
    async with bench(servers, tmp_path, dice) as at:
        await at.set_up(100)
        workers = [at.hire(50) for _ in range(3)]
        await at.come_to(270)
        await kill_and_restart(dice.choice(servers))
        await at.limit_queue("c", max_active_leases=1)
        await at.come_to(220)
        dice.choice(workers).kill()
        await at.limit("/api/budget-groups/shared", "group:default/shared", max_active_leases=2)
        at.hire(30)
        victim = dice.choice(servers)
        await stop_and_continue(victim, asyncio.sleep(2.5))
        await at.limit_queue("c", max_active_leases=4)
        await at.come_to(150)
        sleeper = at.hire(20)
        sleeper.send_signal(signal.SIGSTOP)
        await at.limit("/api/budget-groups/shared", "group:default/shared", max_active_leases=GROUP_CAP)
        await kill_and_restart(dice.choice(servers))
        await at.come_to(80)
        sleeper.send_signal(signal.SIGCONT)
        lines = await at.verdict()
    assert peaks(lines)["namespace"] <= NAMESPACE_CAP
    assert given_of(lines, "slow") >= RATE


async def test_one_server_on_sqlite_killed_again_and_again_while_limits_change(
    sqlite_database: str, tmp_path: Path, dice: random.Random
):
    (only,) = cluster_of(1, tmp_path, sqlite_database)
    async with bench([only], tmp_path, dice) as at:
        await at.set_up(60)
        workers = [at.hire(20), at.hire(20)]
        for left, cap in ((150, 2), (110, 3), (70, 4)):
            await at.come_to(left)
            await kill_and_restart(only)
            await at.limit_queue("c", max_active_leases=cap)
        workers[0].kill()
        lines = await at.verdict()
    assert peaks(lines)["namespace"] <= NAMESPACE_CAP


async def test_tasks_claimed_ahead_by_workers_that_die_or_stop(
    database_url: str, tmp_path: Path, dice: random.Random
):
    servers = cluster_of(1 if database_url.startswith("sqlite") else 2, tmp_path, database_url)
    async with bench(servers, tmp_path, dice) as at:
        await at.set_up(35)
        ahead = [at.hire(15, "~a,~b,~c"), at.hire(15, "~a,b,~c")]
        await at.come_to(80)
        ahead[0].kill()
        ahead[1].send_signal(signal.SIGSTOP)
        at.hire(15, "a,~b,c,slow")
        await at.come_to(45)
        ahead[1].send_signal(signal.SIGCONT)
        await kill_and_restart(dice.choice(servers))
        lines = await at.verdict()
    assert peaks(lines)["namespace"] <= NAMESPACE_CAP


@pytest.fixture
def own_redis() -> Iterator[CrashableRedis]:
    with crashable_redis() as redis:
        yield redis


async def test_redis_flushed_killed_and_stopped(
    own_redis: CrashableRedis, postgres_database: str, tmp_path: Path, dice: random.Random
):
    settings = {"DW_COORDINATION": "redis", "DW_REDIS_URL": own_redis.server.url}
    async with bench(cluster_of(3, tmp_path, postgres_database, settings), tmp_path, dice) as at:
        await at.set_up(60)
        at.hire(30)
        at.hire(30)
        await at.come_to(150)
        async with Redis.from_url(own_redis.server.url) as client:
            await client.flushall()
        await at.come_to(120)
        own_redis.kill()
        await at.limit_queue("c", max_active_leases=2)
        own_redis.start()
        await at.come_to(80)
        own_redis.pause()
        await at.limit_queue("c", max_active_leases=3)
        own_redis.resume()
        lines = await at.verdict()
    assert peaks(lines)["namespace"] <= NAMESPACE_CAP
    assert given_of(lines, "slow") == RATE


async def test_a_clock_that_is_moved_forth_and_back(
    sqlite_database: str, tmp_path: Path, dice: random.Random
):
    offset = tmp_path / "offset"
    command = (sys.executable, clock_skewed_server.__file__, str(offset))
    only = server(tmp_path, sqlite_database, settings=SETTINGS, command=command)
    async with bench([only], tmp_path, dice) as at:
        await at.set_up(50)
        at.hire(30)
        for left, moved_ms in ((120, 20_000), (90, 12_000), (60, 3_600_000), (30, 3_594_000)):
            await at.come_to(left)
            offset.write_text(str(moved_ms))
        lines = await at.verdict()
    assert peaks(lines)["namespace"] <= NAMESPACE_CAP
    assert any(later.at_ms < earlier.at_ms - 4_000 for earlier, later in pairwise(lines))


async def test_the_command_finds_nothing_either(sqlite_database: str, tmp_path: Path, dice: random.Random):
    async with bench(cluster_of(1, tmp_path, sqlite_database), tmp_path, dice) as at:
        await at.set_up(20)
        at.hire(20)
        await at.verdict()
        page = (await at.ask("GET", "/api/system/journal?limit=10000", role="admin"))["lines"]
        journal = tmp_path / "journal.jsonl"
        journal.write_text("".join(json.dumps(line) + "\n" for line in page))
        clients = [word for log in at.logs for word in ("--client", str(log))]
        command = (*PENSTOCK, "verify", "--dense", "--journal", str(journal), *clients, "--json")
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert (report["verdict"], report["findings"]) == ("clean", [])


async def test_without_its_redis_a_limited_line_says_unavailable_and_an_unlimited_one_goes_on(
    own_redis: CrashableRedis, postgres_database: str, tmp_path: Path, dice: random.Random
):
    settings = {"DW_COORDINATION": "redis", "DW_REDIS_URL": own_redis.server.url}
    async with bench(cluster_of(2, tmp_path, postgres_database, settings), tmp_path, dice) as at:
        await at.limit_queue("c", max_active_leases=2)
        await at.cluster.queue_up(standing("", 3), "c")
        await at.cluster.queue_up(standing("", 3), "free")
        limited, free = await at.cluster.worker("w1", "c"), await at.cluster.worker("w2", "free")

        async def shown(queue: str) -> tuple[str, bool, bool]:
            section = (await at.ask("GET", f"/api/task-queues/{queue}"))["admission"]["activity_tasks"]
            return section["status"], section["server_lock_required"], section["server_lock_supported"]

        async def both(queue: str, *said: object) -> None:
            """Checked on each server."""

            async def so() -> bool:
                return [await shown(queue), await shown(queue)] == [said, said]

            await until(f"{queue} is {said}", so)

        await both("c", "accepting", True, True)
        own_redis.kill()
        await both("c", "unavailable", True, False)
        await both("free", "accepting", False, False)
        held = (await limited.poll_once("activity")).expect(200)
        assert (held["poll_status"], held["task"]) == ("unavailable", None)
        (await free.finish(await free.take("activity"))).expect(200)
        own_redis.start()
        await both("c", "accepting", True, True)
        await limited.take("activity")
