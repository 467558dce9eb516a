"""A fault campaign: kill and freeze servers and workers under load, then check all records against the guarantees.

    python -m tests.faults.campaign --store postgres --faults 200 [--seed N] [--folder DIR]

Theory of operation
-------------------
Three servers on PostgreSQL (or one on SQLite, where one server owns the file) serve SDK workers in their own processes.
Queues have a cap, a cap with prefetching, a rate, dispatches per minute and a cost budget; workflows use two of them.
A feeder starts tasks and workflows without pause, with idempotency keys, and keeps a ledger of what was acknowledged.
An adversary, driven by a seed, kills (SIGKILL) or freezes (SIGSTOP) a server or a worker, one fault after the other.

Four witnesses are heard at the end:

1. the ledger: every acknowledged start has ended, once, and as a success;
2. the workers' logs: the attempts that *ran* at one instant never exceed a cap, and no attempt of a task begins
   after a later attempt of it has ended. Time in which a worker was frozen does not count as running;
3. probes: one for each server, on a queue of its own and on a capped one that all servers share. The longest time in
   which a server that is itself not a victim let no probe through is the longest standstill;
4. the servers' journal, swept by `penstock verify`'s laws: caps, rates, budgets, one lease, refunds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from penstock.core.verify.check import check
from penstock.core.verify.findings import Law
from tests.acceptance.cluster import Cluster
from tests.acceptance.witness import in_words, read_all
from tests.faults.programs import campaign_worker
from tests.faults.programs.campaign_worker import ATTEMPTS
from tests.support.lag import Lag
from tests.support.live import LiveServer, headers, migrate, running, server
from tests.support.patience import PATIENCE_S
from tests.support.servers import create_database, postgres_server

CAP, AHEAD_CAP, PROBE_CAP = 5, 4, 50
RATE, PER_MINUTE, COST_PER_MINUTE, COST = 20, 600, 6000, 10
STANDSTILL_MAX_S = 3.0
SUSPICIOUS_S = 1.5
"""After so long without a completed probe the sessions of the database are logged."""
LEASE_S = 2
WORKERS = 3
SETTINGS = {
    "DW_JOURNAL": "true",
    "DW_ACTIVITY_TASK_TIMEOUT": str(LEASE_S),
    "DW_WORKFLOW_TASK_TIMEOUT": str(LEASE_S),
    "DW_QUARANTINE_AFTER": "0",
}
AGAIN = (429, 503, 507)
"""Statuses that a client retries."""
RECOVERED_S = 1.0
"""How long after it responds again a process still counts as harmed."""
KINDS = ("kill_server", "freeze_server", "kill_worker", "freeze_worker")
Span = tuple[float, float]
Json = dict[str, Any]


@dataclass
class FaultTarget:
    """A server or worker that faults are injected into, with their times."""

    name: str
    spans: list[Span] = field(default_factory=list)
    """From each fault until the process responds or runs again."""
    harmed_since: float | None = None


@dataclass
class WorkerProcess(FaultTarget):
    log: Path = field(default_factory=Path)
    urls: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    incarnation: int = 0
    frozen: list[Span] = field(default_factory=list)
    killed_at: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}.{self.incarnation}"

    def start(self) -> None:
        self.incarnation += 1
        command = (
            sys.executable,
            campaign_worker.__file__,
            self.label,
            str(self.log),
            ",".join(self.urls),
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with self.log.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.killed_at[self.label] = time.monotonic()


@dataclass
class ServerProcess(FaultTarget):
    live: LiveServer = field(kw_only=True)


@dataclass
class Findings:
    """The findings and figures of a campaign."""

    problems: list[str] = field(default_factory=list)
    stalls: list[str] = field(default_factory=list)
    """Servers that stalled for too long without a fault of their own. A busy machine causes some of these, so they only
    count if the campaign has the machine for itself."""
    figures: dict[str, Any] = field(default_factory=dict)


# Load


class Feeder:
    """Starts tasks and workflows as fast as they complete, and records the acknowledged ones."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.acknowledged: dict[str, str] = {}
        """The kind of each start by its id."""
        self.is_over = False
        self._cluster = cluster
        self._dice = dice
        self._number = 0

    async def feed(self, waiting_max: int) -> None:
        while not self.is_over:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                if await self._waiting() < waiting_max:
                    await asyncio.gather(*(self._start_some() for _ in range(8)))
                    continue
            await asyncio.sleep(0.1)

    async def _waiting(self) -> int:
        total = 0
        for queue in ("capped", "ahead"):
            stats = (await self._ask("GET", f"/api/task-queues/{queue}"))["stats"]["activity_tasks"]
            total += stats["ready_count"]
        return total

    async def _start_some(self) -> None:
        for queue in ("capped", "capped", "ahead", "rated", "minute", "budget"):
            await self._start_activity(queue)
        await self._start_workflow()

    async def _start_activity(self, queue: str) -> None:
        name = self._name("a")
        body = {
            "activity_type": "campaign.step",
            "activity_id": name,
            "task_queue": queue,
            "input": [round(self._dice.uniform(0, 0.3), 3)],
            "start_to_close_timeout": 30,
            "retry_policy": {"max_attempts": ATTEMPTS, "backoff_seconds": [1]},
        }
        body |= {"cost_estimate": COST} if queue == "budget" else {}
        await self._retry_until_accepted("/api/activities", body, name)
        self.acknowledged[name] = "activities"

    async def _start_workflow(self) -> None:
        name = self._name("w")
        body = {
            "workflow_type": "campaign.flow",
            "workflow_id": name,
            "task_queue": "flows",
            "input": [round(self._dice.uniform(0, 0.1), 3)],
        }
        await self._retry_until_accepted("/api/workflows", body, name)
        self.acknowledged[name] = "workflows"

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    async def _retry_until_accepted(self, path: str, body: Json, key: str) -> None:
        """Send the same start with the same idempotency key to each server in turn until one acknowledges it."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                more: dict[str, str | None] = {"Idempotency-Key": key}
                reply = await asyncio.wait_for(self._cluster.ask("POST", path, body, more=more), 5)
                if reply.status < 300:
                    return
                assert reply.status in AGAIN, f"{path}: {reply.status} {reply.body}"
            await asyncio.sleep(0.05)

    async def _ask(self, method: str, path: str) -> Json:
        reply = await asyncio.wait_for(self._cluster.ask(method, path), 5)
        if reply.status in AGAIN:
            raise TimeoutError(reply.body["reason"])
        return dict(reply.ok().body)


class Probe:
    """Starts, polls and completes one task after the other through one server, and records the times."""

    def __init__(self, at: ServerProcess, session: aiohttp.ClientSession, queue: str) -> None:
        self.at = at
        self.queue = queue
        self.done: list[float] = []
        self._session = session
        self._number = 0

    async def run(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, LookupError):
                await self._once()
                self.done.append(time.monotonic())
            await asyncio.sleep(0.05)

    async def _once(self) -> None:
        self._number += 1
        worker = f"probe-{self.queue}-{self.at.name}"
        if not self.done:
            registration = {"worker_id": worker, "task_queue": self.queue, "runtime": "python"}
            await self._post("/api/worker/register", registration, "worker")
        start = {
            "activity_type": "campaign.probe",
            "activity_id": f"p-{self.queue}-{self.at.name}-{self._number}",
            "task_queue": self.queue,
        }
        await self._post("/api/activities", start, "operator")
        poll = {"worker_id": worker, "task_queue": self.queue, "timeout_seconds": 1}
        task = (await self._post("/api/worker/activity-tasks/poll", poll, "worker"))["task"]
        if task is None:
            raise LookupError("nothing was to be had")
        report = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": worker, "result": None}
        await self._post(f"/api/worker/activity-tasks/{task['task_id']}/complete", report, "worker")

    async def _post(self, path: str, body: Json, role: str) -> Json:
        timeout = aiohttp.ClientTimeout(total=STANDSTILL_MAX_S * 2)
        async with self._session.post(
            self.at.live.url + path, json=body, headers=headers(role), timeout=timeout
        ) as answer:
            if answer.status >= 400:
                raise LookupError(await answer.text())
            return dict(await answer.json())

    def longest_standstill(self, over: float, lag: Lag) -> tuple[float, float]:
        """The longest time without a completed probe while the server had no fault, and when it began.

        The lag of the machine in that time is not the server's.
        """
        moments = [*self.done, over]
        longest = (0.0, 0.0)
        for before, after in itertools.pairwise(moments):
            if _outside(before, after, self.at.spans) > longest[0]:
                stood = _outside(before, after, self.at.spans) - lag.between(before, after)
                longest = max(longest, (stood, before))
        return longest

    def longest_since_last(self, now: float) -> float:
        """How long nothing has completed while the server had no fault."""
        began = self.at.harmed_since
        return 0.0 if began is not None else _outside(self.done[-1], now, self.at.spans)


def _outside(begin: float, end: float, spans: Sequence[Span]) -> float:
    """The longest part of an interval outside of all spans."""
    longest, at = 0.0, begin
    for first, last in sorted(spans):
        if last < at or first > end:
            continue
        longest = max(longest, first - at)
        at = max(at, last)
    return max(longest, end - at)


SESSIONS = """
SELECT pid, state, wait_event_type, wait_event, client_port, pg_blocking_pids(pid)::text AS blocked_by,
       extract(epoch FROM clock_timestamp() - xact_start)::float AS in_transaction_s,
       extract(epoch FROM clock_timestamp() - query_start)::float AS in_query_s,
       extract(epoch FROM clock_timestamp() - state_change)::float AS in_state_s, left(query, 200) AS query
  FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""


async def watch_sessions(url: str, probes: Sequence[Probe], log: Path) -> None:
    """Log what the sessions of PostgreSQL wait for whenever a server without a fault stalls."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            await asyncio.sleep(0.25)
            now = time.monotonic()
            stuck = [each for each in probes if each.done and each.longest_since_last(now) > SUSPICIOUS_S]
            if stuck:
                sessions = [dict(row) for row in await connection.fetch(SESSIONS)]
                line = {"at": now, "stuck": [f"{e.at.name} {e.queue}" for e in stuck], "sessions": sessions}
                with log.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    finally:
        await connection.close()


# Faults


@dataclass
class Adversary:
    """Injects faults into one process after the other, at random."""

    servers: Sequence[ServerProcess]
    workers: Sequence[WorkerProcess]
    dice: random.Random
    kinds: Sequence[str] = KINDS
    counts: Counter[str] = field(default_factory=Counter)

    async def harm(self) -> None:
        await getattr(self, self.dice.choice(self.kinds))()
        await asyncio.sleep(self.dice.uniform(0.1, 1.0))

    async def kill_server(self) -> None:
        victim = self.dice.choice(self.servers)
        began = victim.harmed_since = time.monotonic()
        await asyncio.to_thread(victim.live.kill)
        await asyncio.to_thread(victim.live.start)
        self._over(victim, began, "server kills")

    async def freeze_server(self) -> None:
        victim = self.dice.choice(self.servers)
        began = victim.harmed_since = time.monotonic()
        os.kill(victim.live.pid, signal.SIGSTOP)
        await asyncio.sleep(self.dice.choice((0.5, 2, 4, 8)))
        os.kill(victim.live.pid, signal.SIGCONT)
        self._over(victim, began, "server freezes")

    async def kill_worker(self) -> None:
        victim = self.dice.choice(self.workers)
        began = victim.harmed_since = time.monotonic()
        await asyncio.to_thread(victim.kill)
        victim.start()
        self._over(victim, began, "worker kills")

    async def freeze_worker(self) -> None:
        victim = self.dice.choice(self.workers)
        assert victim.process is not None
        began = victim.harmed_since = time.monotonic()
        victim.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.dice.choice((0.5, 2, 4)))
        victim.frozen.append((began, time.monotonic()))
        victim.process.send_signal(signal.SIGCONT)
        self._over(victim, began, "worker freezes")

    def _over(self, victim: FaultTarget, began: float, kind: str) -> None:
        victim.spans.append((began, time.monotonic() + RECOVERED_S))
        victim.harmed_since = None
        self.counts[kind] += 1


# Evidence


@dataclass(frozen=True)
class Attempt:
    task: str
    number: int
    queue: str
    begin: float
    end: float


def attempts(workers: Sequence[WorkerProcess], over: float) -> list[Attempt]:
    """Attempts that ran, from the workers' logs; an attempt ends when its process is frozen or killed."""
    found = []
    for worker in workers:
        if not worker.log.exists():
            continue
        open_: dict[tuple[str, int], Json] = {}
        for line in map(json.loads, worker.log.read_text().splitlines()):
            key = (line["task"], line["attempt"])
            if line["op"] == "begin":
                open_[key] = line
            elif key in open_:
                found.append(_attempt(open_.pop(key), line["at"], worker))
        for begun in open_.values():
            found.append(_attempt(begun, worker.killed_at.get(begun["worker"], over), worker))
    return found


def _attempt(begun: Json, ended: float, worker: WorkerProcess) -> Attempt:
    cut = [first for first, _ in worker.frozen if begun["at"] <= first < ended]
    return Attempt(begun["task"], begun["attempt"], begun["queue"], begun["at"], min([ended, *cut]))


def most_at_once(ran: Sequence[Attempt], queue: str) -> int:
    edges = [(each.begin, 1) for each in ran if each.queue == queue]
    edges += [(each.end, -1) for each in ran if each.queue == queue]
    now = most = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


def begun_too_late(ran: Sequence[Attempt]) -> Iterator[str]:
    by_task: dict[str, list[Attempt]] = defaultdict(list)
    for each in ran:
        by_task[each.task].append(each)
    for task, tries in by_task.items():
        for each in tries:
            later = [other for other in tries if other.number > each.number and other.end < each.begin]
            if later:
                late = each.begin - max(other.end for other in later)
                yield f"{task}: attempt {each.number} began {late:.2f} s after a later one had ended"


# The campaign


async def campaign(
    store: str,
    faults: int,
    seed: int,
    folder: Path,
    *,
    kinds: Sequence[str] = KINDS,
    waiting_max: int = 60,
) -> Findings:
    """Run a campaign and return its findings."""
    dice = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        count = 3 if store == "postgres" else 1
        url = await stack.enter_async_context(_database(store, folder))
        lives = [server(folder, url, name=f"server-{n}", settings=SETTINGS) for n in range(count)]
        stack.enter_context(running(*lives))
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        cluster = Cluster(lives, session)
        await _set_limits(cluster)
        servers = [ServerProcess(f"server-{n}", live=each) for n, each in enumerate(lives)]
        urls = [each.url for each in lives]
        workers = [
            WorkerProcess(f"w{n}", log=folder / f"w{n}.jsonl", urls=urls[n % count :] + urls[: n % count])
            for n in range(WORKERS)
        ]
        stack.callback(_end, workers)
        for each in workers:
            each.start()
        feeder = Feeder(cluster, dice)
        probes = [Probe(each, session, queue) for each in servers for queue in (f"own-{each.name}", "shared")]
        adversary = Adversary(servers, workers, dice, kinds)
        lag = stack.enter_context(Lag())
        running_ = [asyncio.create_task(probe.run()) for probe in probes]
        if store == "postgres":
            running_.append(asyncio.create_task(watch_sessions(url, probes, folder / "stalls.jsonl")))
        feeding = asyncio.create_task(feeder.feed(waiting_max))
        stack.callback(_cancel, [feeding, *running_])
        for number in range(faults):
            await adversary.harm()
            for task in (feeding, *running_):
                if task.done():
                    task.result()
            if (number + 1) % 10 == 0:
                print(f"{number + 1} faults, {len(feeder.acknowledged)} starts", file=sys.stderr, flush=True)
        over = time.monotonic()
        feeder.is_over = True
        await feeding
        _cancel(running_)
        await asyncio.gather(*running_, return_exceptions=True)
        findings = Findings(figures={"store": store, "seed": seed, **adversary.counts})
        await _hear_the_ledger(cluster, feeder, findings)
        _end(workers)
        _hear_the_workers(workers, time.monotonic(), findings)
        _hear_the_probes(probes, over, lag, findings)
        await _hear_the_journal(cluster, findings)
        return findings


@contextlib.asynccontextmanager
async def _database(store: str, folder: Path) -> AsyncIterator[str]:
    if store == "sqlite":
        yield f"sqlite:///{folder}/penstock.db"
        return
    with postgres_server() as postgres:
        url = await create_database(postgres)
        await asyncio.to_thread(migrate, folder, url)
        yield url


async def _set_limits(cluster: Cluster) -> None:
    async def patch(path: str, **body: Any) -> None:
        (await cluster.ask("PATCH", path, body)).expect(200)

    await patch("/api/namespaces/default/limits", max_active_leases=1000)
    await patch("/api/task-queues/capped/limits", max_active_leases_per_queue=CAP)
    await patch("/api/task-queues/ahead/limits", max_active_leases_per_queue=AHEAD_CAP)
    await patch("/api/task-queues/shared/limits", max_active_leases_per_queue=PROBE_CAP)
    await patch("/api/task-queues/rated/config", task_queue_type="activity", queue_rps_limit=RATE)
    await patch("/api/task-queues/minute/limits", max_dispatches_per_minute=PER_MINUTE)
    await patch("/api/budget-groups/money", max_cost_per_minute=COST_PER_MINUTE)
    await patch("/api/task-queues/budget/limits", dispatch_budget_group="money")


def _end(workers: Sequence[WorkerProcess]) -> None:
    for each in workers:
        if each.process is not None and each.process.poll() is None:
            each.process.send_signal(signal.SIGCONT)
            each.kill()


def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for each in tasks:
        each.cancel()


async def _hear_the_ledger(cluster: Cluster, feeder: Feeder, findings: Findings) -> None:
    """Wait until everything acknowledged is closed; outcomes other than success are findings."""
    ended: dict[str, str] = {}
    waits_until = time.monotonic() + PATIENCE_S
    while time.monotonic() < waits_until and ended.keys() != feeder.acknowledged.keys():
        for name in [each for each in feeder.acknowledged if each not in ended]:
            kind = feeder.acknowledged[name]
            status = (await cluster.get(f"/api/{kind}/{name}")).ok()["status"]
            if status not in ("running", "waiting", "pending"):
                ended[name] = status
        await asyncio.sleep(0.2)
    findings.figures["acknowledged"] = len(feeder.acknowledged)
    for name in feeder.acknowledged:
        if ended.get(name) != "completed":
            findings.problems.append(f"{name} was acknowledged and is {ended.get(name, 'not ended')}")


def _hear_the_workers(workers: Sequence[WorkerProcess], over: float, findings: Findings) -> None:
    ran = attempts(workers, over)
    findings.figures["attempts run"] = len(ran)
    for queue, cap in (("capped", CAP), ("ahead", AHEAD_CAP)):
        most = most_at_once(ran, queue)
        findings.figures[f"most at once in {queue} (cap {cap})"] = most
        if most > cap:
            findings.problems.append(f"{most} ran at once in {queue}, whose cap is {cap}")
    findings.problems += begun_too_late(ran)


def _hear_the_probes(probes: Sequence[Probe], over: float, lag: Lag, findings: Findings) -> None:
    longest: dict[str, float] = defaultdict(float)
    for probe in probes:
        kind = "shared" if probe.queue == "shared" else "unrelated"
        stall_detector, began = probe.longest_standstill(over, lag)
        longest[kind] = max(longest[kind], stall_detector)
        if stall_detector > STANDSTILL_MAX_S:
            findings.stalls.append(
                f"{probe.at.name} let nothing through in {probe.queue} for {stall_detector:.1f} s at {began:.1f}"
            )
    findings.figures |= {f"longest standstill, {kind} queue": round(s, 2) for kind, s in longest.items()}
    findings.figures["probes"] = sum(len(each.done) for each in probes)
    findings.figures["lag of the machine, s"] = round(lag.so_far.total_seconds(), 1)


async def _hear_the_journal(cluster: Cluster, findings: Findings) -> None:
    lines = await read_all(cluster)
    book, _ = check(lines, [])
    findings.figures["journal lines"] = len(lines)
    findings.figures["checks"] = {str(law): count for law, count in book.checked.items() if count}
    findings.figures["late answers kept after a standstill"] = book.found[Law.LATE_ANSWER]
    book.findings = [each for each in book.findings if each.law is not Law.LATE_ANSWER]
    findings.problems += in_words(book)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.campaign", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--faults", type=int, default=50, help="how many kills and freezes")
    parser.add_argument("--seed", type=int, default=None, help="to repeat a campaign; a new one unless given")
    parser.add_argument("--folder", type=Path, default=None, help="where logs are kept")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only such faults; may be repeated")
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="penstock-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, logs in {folder}", file=sys.stderr)
    kinds = given.kind or KINDS
    findings = asyncio.run(campaign(given.store, given.faults, seed, folder, kinds=kinds))
    print(json.dumps(findings.figures, indent=2))
    problems = findings.problems + findings.stalls
    for problem in problems[:50]:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
