"""Clients and workers that retry without limit and record everything they observe.

They speak HTTP to one or several servers, move to the next one when a connection breaks, and send the very same
bytes again until they are answered. Counts and times are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

import aiohttp

from tests.faults.deadlines import until
from tests.faults.observations import Found, FoundEvent, FoundRun, Kind, Lease, Record, Report, Start, Verdict
from tests.support.live import headers
from tests.support.patience import PATIENCE_S

QUEUE = "faults"
PLAIN, TIMED = "faults.plain", "faults.timed"
ACTIVITY = "faults.step"
NOTHING_NEW = "WorkflowTaskWaitingForHistory"
POLL_S = 2
TASKS_PER_POLL = 2
FORGETS_EVERY, LATE_EVERY = 23, 17
REPORTED = frozenset({429, 503, 507})
"""Statuses that are retried."""


class Lost(Exception):
    """No response: the server is down, or went down during the request."""


class OutOfPatience(AssertionError):
    """A call got no response for a minute."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Caller:
    """An HTTP client for any number of servers, some of which may be down."""

    def __init__(self, urls: Sequence[str], record: Record) -> None:
        self.record = record
        self._urls = list(urls)
        self._turn = itertools.count()
        self._at = 0
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=15), connector=aiohttp.TCPConnector(limit=0)
        )

    async def close(self) -> None:
        await self._session.close()

    async def once(
        self,
        method: str,
        path: str,
        raw: bytes | None = None,
        *,
        role: str = "worker",
        key: str | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Send once to the server that responded last; without a response raise `Lost` and switch to the next."""
        sent = headers(role) | ({"Idempotency-Key": key} if key else {})
        if raw is not None:
            sent["Content-Type"] = "application/json"
        at = self._at
        try:
            async with self._session.request(method, self._urls[at] + path, data=raw, headers=sent) as answer:
                return answer.status, await answer.json()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if self._at == at:
                self._at = (at + 1) % len(self._urls)
            raise Lost(f"{method} {path}: {error!r}") from error

    async def insist(
        self,
        method: str,
        path: str,
        raw: bytes | None = None,
        *,
        role: str = "worker",
        key: str | None = None,
        on_send: Callable[[], None] = lambda: None,
    ) -> tuple[int, dict[str, Any]]:
        """Send the same bytes until the response is final."""
        ends_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_at:
            on_send()
            with contextlib.suppress(Lost):
                status, body = await self.once(method, path, raw, role=role, key=key)
                if status not in REPORTED:
                    if status >= 500:
                        self.record.server_errors.append(f"{method} {path}: {status} {body.get('reason')}")
                    return status, body
            await asyncio.sleep(0.02)
        raise OutOfPatience(f"{method} {path}")


class Worker:
    """Polls for both kinds of tasks, runs and reports them; now and then it drops a task or reports late."""

    def __init__(self, caller: Caller, name: str) -> None:
        self.name = name
        self._caller = caller
        self._record = caller.record
        self._requests = itertools.count(1)
        self._taken = itertools.count(1)
        self.late: list[asyncio.Task[None]] = []

    async def register(self) -> None:
        body = {"worker_id": self.name, "task_queue": QUEUE, "runtime": "python"}
        await self._caller.insist("POST", "/api/worker/register", as_bytes(body))

    async def work_forever(self, kind: Kind) -> None:
        while True:
            for task in await self.poll(kind):
                number = next(self._taken)
                if number % FORGETS_EVERY == 0:
                    continue
                if number % LATE_EVERY == 0:
                    self.late.append(asyncio.create_task(self._do_late(kind, task)))
                else:
                    await self.do(kind, task)

    async def do(self, kind: Kind, task: dict[str, Any]) -> Report:
        return await (self.decide(task) if kind is Kind.WORKFLOW else self.perform(task))

    async def _do_late(self, kind: Kind, task: dict[str, Any]) -> None:
        """Report after the lease expired; another worker may hold the task by then."""
        ends_at_ms = lease_of(kind, task).expires_at_ms
        await until("the lease ends", lambda: now_ms() > ends_at_ms)
        await self.do(kind, task)

    async def poll(self, kind: Kind) -> list[dict[str, Any]]:
        """Poll for tasks; a poll without a response is repeated with the same request id."""
        body = {
            "worker_id": self.name,
            "task_queue": QUEUE,
            "timeout_seconds": POLL_S,
            "max_tasks": TASKS_PER_POLL,
            "poll_request_id": f"{self.name}-{kind}-{next(self._requests)}",
        }
        _, answer = await self._caller.insist("POST", f"/api/worker/{kind}-tasks/poll", as_bytes(body))
        tasks = answer.get("tasks") or []
        for task in tasks:
            self._record.leases.append(lease_of(kind, task, self.name))
        return tasks

    async def decide(self, task: dict[str, Any]) -> Report:
        """The workflow: an activity, optionally with a concurrent timer, then completion."""
        types = [event["event_type"] for event in task["history_events"]]
        lease = {"lease_owner": self.name, "workflow_task_attempt": task["workflow_task_attempt"]}
        timed = task["workflow_type"] == TIMED
        if "ActivityScheduled" not in types:
            commands: list[dict[str, Any]] = [
                {"type": "schedule_activity", "activity_type": ACTIVITY, "queue": QUEUE}
            ]
            if timed:
                commands.append({"type": "start_timer", "delay_seconds": 1})
            return await self._report(Kind.WORKFLOW, task, "complete", lease | {"commands": commands})
        if "ActivityCompleted" in types and (not timed or "TimerFired" in types):
            end = {"type": "complete_workflow", "result": task["run_id"]}
            return await self._report(Kind.WORKFLOW, task, "complete", lease | {"commands": [end]})
        nothing = {"message": "nothing new", "type": NOTHING_NEW}
        return await self._report(Kind.WORKFLOW, task, "fail", lease | {"failure": nothing})

    async def perform(self, task: dict[str, Any]) -> Report:
        body = {
            "lease_owner": self.name,
            "activity_attempt_id": task["activity_attempt_id"],
            "result": task["activity_attempt_id"],
        }
        return await self._report(Kind.ACTIVITY, task, "complete", body)

    async def _report(self, kind: Kind, task: dict[str, Any], verb: str, body: dict[str, Any]) -> Report:
        report = _report(kind, task, self.name, decides=verb == "complete")
        self._record.reports.append(report)
        held = next(
            lease
            for lease in reversed(self._record.leases)
            if (lease.task_id, lease.token, lease.worker) == (report.task_id, report.token, self.name)
        )

        def sending() -> None:
            report.sends += 1
            held.reported_at_ms = held.reported_at_ms or now_ms()

        path = f"/api/worker/{kind}-tasks/{report.task_id}/{verb}"
        status, answer = await self._caller.insist("POST", path, as_bytes(body), on_send=sending)
        report.reason = answer.get("reason")
        if status == 200:
            report.verdict = Verdict.REPEATED if answer["already_accepted"] else Verdict.ACCEPTED
        else:
            report.verdict = Verdict.REFUSED
        return report


class Load:
    """Workers that run during the block, and starts as their load."""

    def __init__(self, urls: Sequence[str], *, workers: int = 3) -> None:
        self.record = Record()
        urls = list(urls)
        self._callers = [
            Caller(urls[index % len(urls) :] + urls[: index % len(urls)], self.record)
            for index in range(workers + 1)
        ]
        self.client = self._callers[0]
        self.workers = [Worker(caller, f"worker-{n}") for n, caller in enumerate(self._callers[1:], 1)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = self._tasks + [late for worker in self.workers for late in worker.late]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for caller in self._callers:
            await caller.close()

    async def put_to_work(self) -> None:
        for worker in self.workers:
            await worker.register()
            for kind in Kind:
                self._tasks.append(asyncio.create_task(worker.work_forever(kind)))

    def raise_if_a_worker_gave_up(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        return False

    async def start_many(self, prefix: str, *, workflows: int, activities: int, at_once: int = 8) -> None:
        """Start so many, some with timers, a few at a time."""
        things = [Start(Kind.WORKFLOW, f"{prefix}-w{n}") for n in range(workflows)]
        things += [Start(Kind.ACTIVITY, f"{prefix}-a{n}") for n in range(activities)]
        things.sort(key=lambda start: int(start.id.rpartition("-")[2][1:]))
        waiting = iter(things)

        async def some() -> None:
            for start in waiting:
                await self.start(start)

        await asyncio.gather(*(some() for _ in range(at_once)))

    async def start(self, start: Start) -> tuple[int, dict[str, Any]]:
        """Start one, repeating the same key and bytes until it is acknowledged."""
        if start not in self.record.starts:
            self.record.starts.append(start)
        path, body = start_request(start)

        def sending() -> None:
            start.sends += 1

        status, answer = await self.client.insist(
            "POST", path, as_bytes(body), role="operator", key=f"key-{start.id}", on_send=sending
        )
        if status < 300:
            start.run_ids.append(
                answer["run_id"] if start.kind is Kind.WORKFLOW else answer["workflow_run_id"]
            )
        else:
            self.record.server_errors.append(f"start of {start.id} was refused: {status} {answer}")
        return status, answer

    async def start_again(self, every: int = 3) -> None:
        """Repeat some acknowledged starts, like a client that lost the response."""
        for start in self.record.starts[::every]:
            await self.start(start)

    async def finished(self, within_s: float = PATIENCE_S) -> Found:
        """Wait until no run is open, then read everything."""

        async def with_nothing_open() -> bool:
            self.raise_if_a_worker_gave_up()
            for noun in ("workflows", "activities"):
                _, body = await self.client.insist(
                    "GET", f"/api/{noun}?status=running&page_size=1", role="operator"
                )
                if body[noun]:
                    return False
            return True

        await until("every run ends", with_nothing_open, within_s=within_s)
        found = Found()
        for kind, noun in ((Kind.WORKFLOW, "workflows"), (Kind.ACTIVITY, "activities")):
            async for item in self._list(noun):
                found.runs.append(await self._read(kind, item))
        return found

    async def _list(self, noun: str) -> AsyncIterator[dict[str, Any]]:
        token = ""
        while True:
            _, body = await self.client.insist("GET", f"/api/{noun}?page_size=200{token}", role="operator")
            for item in body[noun]:
                yield item
            if not body["next_page_token"]:
                return
            token = f"&next_page_token={body['next_page_token']}"

    async def _read(self, kind: Kind, item: dict[str, Any]) -> FoundRun:
        name = item["workflow_id" if kind is Kind.WORKFLOW else "activity_id"]
        run_id = item["run_id" if kind is Kind.WORKFLOW else "workflow_run_id"]
        _, body = await self.client.insist(
            "GET",
            f"/api/workflows/{name}/runs/{run_id}/history?page_size=1000&derived=false",
            role="operator",
        )
        events = tuple(
            FoundEvent(
                event["sequence"],
                event["event_type"],
                event["payload"].get("sequence"),
                event["payload"].get("activity_attempt_id"),
                event["workflow_task_id"],
            )
            for event in body["events"]
        )
        return FoundRun(kind, name, run_id, item["status"], events)


def start_request(start: Start) -> tuple[str, dict[str, Any]]:
    """Path and body of a start; every third workflow has a timer concurrent to its activity."""
    if start.kind is Kind.ACTIVITY:
        body = {"activity_type": ACTIVITY, "activity_id": start.id, "task_queue": QUEUE}
        return "/api/activities", body
    timed = start.id.endswith(("0", "3", "6", "9"))
    return "/api/workflows", {
        "workflow_type": TIMED if timed else PLAIN,
        "workflow_id": start.id,
        "task_queue": QUEUE,
    }


def lease_of(kind: Kind, task: dict[str, Any], worker: str = "") -> Lease:
    """The lease of a polled task."""
    expires = datetime.fromisoformat(task["lease_expires_at"])
    return Lease(
        kind,
        task["task_id"],
        task["run_id"],
        _attempt(kind, task),
        _token(kind, task),
        worker,
        now_ms(),
        round(expires.timestamp() * 1000),
    )


def _report(kind: Kind, task: dict[str, Any], worker: str, *, decides: bool) -> Report:
    return Report(
        kind,
        task["task_id"],
        task["run_id"],
        _attempt(kind, task),
        _token(kind, task),
        worker,
        decides,
    )


def _attempt(kind: Kind, task: dict[str, Any]) -> int:
    return int(task["workflow_task_attempt" if kind is Kind.WORKFLOW else "attempt_number"])


def _token(kind: Kind, task: dict[str, Any]) -> str:
    return str(task["workflow_task_attempt" if kind is Kind.WORKFLOW else "activity_attempt_id"])


def as_bytes(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
