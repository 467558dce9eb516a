"""Two independent records of every limit: the journal of the servers, and the observations of workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.core.verify.check import check
from penstock.core.verify.findings import Findings
from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    LeaseId,
    LeaseRenewed,
    LeaseStarted,
)
from penstock.core.verify.journal_clock import DEFAULT_CLOCK_OPTIONS, ClockOptions
from penstock.core.verify.observations import (
    CallVerdict,
    LimitsSet,
    Observation,
    Polled,
    PolledLease,
    Reported,
)
from penstock.wire.operations.journal import read_journal
from tests.acceptance.cluster import Cluster, Hand, Json, Reply

PAGE = 10_000
OPS = {"complete": "complete", "fail": "fail", "heartbeat": "heartbeat", "start": "started"}


def now_ms() -> float:
    return time.monotonic() * 1000


@dataclass
class Log:
    """The observations of the clients of a test."""

    observations: list[Observation] = field(default_factory=list)

    def poll(
        self, hand: Hand, kind: str, sent_at: float, reply: Reply | None, groups: tuple[str, ...]
    ) -> None:
        tasks = [] if reply is None or reply.status != 200 else _tasks(reply)
        leases = tuple(_seen(hand, kind, task, groups, _expires_in_ms(task, sent_at)) for task in tasks)
        answered = None if reply is None else now_ms()
        self.observations.append(Polled(sent_at, answered, hand.worker_id, leases))

    def report(self, task: Json, action: str, sent_at: float, reply: Reply | None) -> None:
        if action not in OPS:
            return
        verdict = _verdict(action, reply)
        answered = None if reply is None else now_ms()
        said: Any = OPS[action]
        self.observations.append(Reported(said, sent_at, task["task_id"], _token(task), answered, verdict))

    def change(self, scope: str, sent_at: float, reply: Reply | None, **limits: Any) -> None:
        verdict = _verdict("change", reply)
        answered = None if reply is None else now_ms()
        self.observations.append(LimitsSet(sent_at, scope, limits, answered, verdict))


def _tasks(reply: Reply) -> list[Json]:
    if "tasks" in reply.body:
        return list(reply["tasks"])
    return [] if reply["task"] is None else [reply["task"]]


def _expires_in_ms(task: Json, sent_at: float) -> float:
    """Measured from when it was requested; servers and workers share a clock here."""
    passed_ms = now_ms() - sent_at
    return datetime.fromisoformat(task["lease_expires_at"]).timestamp() * 1000 - (
        time.time() * 1000 - passed_ms
    )


def _seen(hand: Hand, kind: str, task: Json, groups: tuple[str, ...], expires_in_ms: float) -> PolledLease:
    return PolledLease(
        task["task_id"],
        _token(task),
        hand.cluster.namespace or "default",
        task["task_queue"],
        kind,
        task.get("attempt_number", task.get("workflow_task_attempt")),
        expires_in_ms,
        phase="claimed" if task.get("must_start") else "running",
        scopes=groups,
    )


def _token(task: Json) -> str:
    return str(task.get("activity_attempt_id") or task["lease_token"])


def _verdict(action: str, reply: Reply | None) -> CallVerdict:
    if reply is None or reply.status >= 500:
        return "unknown"
    if reply.status >= 400 or (action == "start" and not reply["started"]):
        return "refused"
    return "accepted"


@dataclass(frozen=True)
class ObservedWorker(Hand):
    """A manually driven worker that records its requests and responses about activities."""

    log: Log = field(default_factory=Log)
    groups: tuple[str, ...] = ()
    """The scopes of its queue's budget groups."""

    async def poll(self, kind: str = "workflow", timeout: int = 0, **fields: Any) -> Reply:
        if kind != "activity":
            return await super().poll(kind, timeout, **fields)
        return await self._recorded(
            lambda: super(ObservedWorker, self).poll(kind, timeout, **fields),
            lambda sent_at, reply: self.log.poll(self, kind, sent_at, reply, self.groups),
        )

    async def report(self, task: Json, action: str, **fields: Any) -> Reply:
        if "activity_attempt_id" not in task:
            return await super().report(task, action, **fields)
        return await self._recorded(
            lambda: super(ObservedWorker, self).report(task, action, **fields),
            lambda sent_at, reply: self.log.report(task, action, sent_at, reply),
        )

    async def begin(self, task: Json) -> Reply:
        """Request the permit of a prefetched task."""
        return await self.report(task, "start")

    @staticmethod
    async def _recorded(
        ask: Callable[[], Awaitable[Reply]], tell: Callable[[float, Reply | None], None]
    ) -> Reply:
        sent_at, reply = now_ms(), None
        try:
            reply = await ask()
            return reply
        finally:
            tell(sent_at, reply)


@dataclass
class LimitWitness:
    """One namespace of a cluster whose limits are verified."""

    cluster: Cluster
    log: Log = field(default_factory=Log)

    @property
    def namespace(self) -> str:
        return self.cluster.namespace or "default"

    async def worker(
        self, worker_id: str, task_queue: str = "q", groups: tuple[str, ...] = (), **fields: Any
    ) -> ObservedWorker:
        await self.cluster.worker(worker_id, task_queue, **fields)
        return ObservedWorker(self.cluster, worker_id, task_queue, self.log, groups)

    async def limit(self, task_queue: str = "q", **limits: Any) -> None:
        """Change the limits of a queue's activities."""
        body = {
            f"{name}_per_queue" if name == "max_active_leases" else name: value
            for name, value in limits.items()
        }
        path = f"/api/task-queues/{task_queue}/limits"
        await self._change(path, f"queue:{self.namespace}/{task_queue}/activity", body, limits)

    async def limit_namespace(self, **limits: Any) -> None:
        await self._change(
            f"/api/namespaces/{self.namespace}/limits", f"namespace:{self.namespace}", limits, limits
        )

    async def limit_group(self, group: str, **limits: Any) -> None:
        scope = f"group:{self.namespace}/{group}"
        await self._change(f"/api/budget-groups/{group}", scope, limits, limits)

    async def limit_shared_group(self, group: str, **limits: Any) -> None:
        body = limits | {"scope": "global"}
        await self._change(f"/api/budget-groups/{group}", f"group:*/{group}", body, limits, role="admin")

    async def limit_cluster(self, max_active_leases: int | None) -> None:
        """Cap the cluster at so many leases in addition to those that others hold already."""
        cap = max_active_leases
        if cap is not None:
            cap += len(live(await self.journal()))
        limits = {"max_active_leases": cap}
        await self._change("/api/cluster/limits", "cluster", limits, limits, role="admin")

    async def _change(self, path: str, scope: str, body: Json, limits: Json, role: str = "operator") -> None:
        sent_at = now_ms()
        reply = await self.cluster.ask("PATCH", path, body, role=role)
        told = {name: value for name, value in limits.items() if name.startswith("max_") or name == "paused"}
        if told:
            self.log.change(scope, sent_at, reply, **told)
        reply.expect(200)

    async def journal(self) -> list[JournalLine]:
        """The journal of all namespaces."""
        return await read_all(self.cluster)

    async def verified(self) -> list[JournalLine]:
        """The journal, after checking all invariants on it and on the observations of the workers."""
        lines = await self.journal()
        found = findings(lines, self.log.observations)
        assert not found, found
        return lines

    async def peak(self, *queues: str, namespaces: Sequence[str] = ()) -> int:
        """The maximum of concurrently running activities in some queues, after checking all invariants."""
        where = {(name, queue) for name in namespaces or [self.namespace] for queue in queues or ("q",)}
        return peak(await self.verified(), where)


async def read_all(cluster: Cluster) -> list[JournalLine]:
    found: list[Json] = []
    after: int | None = 0
    while after is not None:
        path = f"/api/system/journal?after={after}&limit={PAGE}"
        page = (await cluster.get(path, role="admin")).expect(200)
        found += page["lines"]
        after = page["next_after"]
    return list(read_journal((json.dumps(line).encode() for line in found), "the journal"))


def findings(
    lines: Iterable[JournalLine],
    observations: Iterable[Observation],
    reading: ClockOptions = DEFAULT_CLOCK_OPTIONS,
) -> list[str]:
    """The findings of a check as text."""
    return in_words(check(lines, observations, reading)[0])


def in_words(book: Findings) -> list[str]:
    return [
        f"{finding.law}: {finding.said} ({finding.scope}, number {finding.seq})" for finding in book.findings
    ]


def live(lines: Iterable[JournalLine]) -> set[LeaseId]:
    """The leases that have not ended."""
    found: set[LeaseId] = set()
    for line in lines:
        if isinstance(line, LeaseGranted):
            found.add(line.lease_id)
        elif isinstance(line, LeaseEnded):
            found.discard(line.lease_id)
    return found


def running(lines: Iterable[JournalLine], where: set[tuple[str, str]]) -> Iterable[int]:
    """How many activities run in some queues after each line that is about them."""
    claimed: set[LeaseId] = set()
    runs: set[LeaseId] = set()
    for line in lines:
        match line:
            case LeaseGranted(kind="activity") if (line.namespace, line.task_queue) in where:
                (runs if line.phase == "running" else claimed).add(line.lease_id)
            case LeaseStarted() if line.lease_id in claimed:
                runs.add(line.lease_id)
            case LeaseEnded() if line.lease_id in runs | claimed:
                runs.discard(line.lease_id)
                claimed.discard(line.lease_id)
            case LeaseRenewed():
                continue
        yield len(runs)


def peak(lines: Iterable[JournalLine], where: set[tuple[str, str]]) -> int:
    return max(running(lines, where), default=0)


class Load:
    """Workers that poll, hold their tasks until released, and complete them."""

    def __init__(self, total: int, holds: int | None = None) -> None:
        self.total = total
        self.done: list[Json] = []
        self.held: list[Json] = []
        self._full = asyncio.Event()
        self._over = asyncio.Event()
        self._holds = holds
        if holds is None:
            self._full.set()

    async def run(self, *hands: Hand, pollers: int = 8, at_once: int = 1) -> None:
        """Run so many concurrent polls per worker until all tasks are done."""
        polling = [asyncio.create_task(self._work(hand, at_once)) for hand in hands for _ in range(pollers)]
        over = asyncio.create_task(self._over.wait())
        try:
            ended, _ = await asyncio.wait([over, *polling], return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                each.result()
        finally:
            for each in (over, *polling):
                each.cancel()
            await asyncio.gather(over, *polling, return_exceptions=True)

    async def _work(self, hand: Hand, at_once: int) -> None:
        while True:
            reply = (await hand.poll("activity", 20, max_tasks=at_once)).expect(200)
            for task in reply["tasks"]:
                self.held.append(task)
            if self._holds is not None and len(self.held) >= self._holds:
                self._full.set()
            await self._full.wait()
            for task in reply["tasks"]:
                await self._finish(hand, task)

    async def _finish(self, hand: Hand, task: Json) -> None:
        (await hand.finish(task)).expect(200)
        self.held.remove(task)
        self.done.append(task)
        if len(self.done) == self.total:
            self._over.set()
