"""A cluster as its clients see it: one API, served by any of the servers."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from penstock.wire import payloads
from tests.support.live import LiveServer, headers
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]
ANSWER_SECONDS_MAX = PATIENCE_S
TASKS_PER_REQUEST_MAX = 100
SLOTS = {"max_concurrent_workflow_tasks": 100_000, "max_concurrent_activity_tasks": 100_000}
any_or_named_types = pytest.mark.parametrize(
    "types", [{}, {"supported_activity_types": ["greet", "paint", "print"]}], ids=["any-type", "named-types"]
)
"""Workers that register types are matched by other queries than workers that take all types."""
_addresses = itertools.count(1)
_started = itertools.count(1)


def stranger() -> dict[str, str]:
    """A header with a client address of its own, so that failed logins of other tests do not count."""
    number = next(_addresses)
    return {"X-Forwarded-For": f"10.{number // 65536 % 256}.{number // 256 % 256}.{number % 256}"}


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    body: Any
    headers: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def reason(self) -> str | None:
        return self.body.get("reason") if isinstance(self.body, dict) else None

    def expect(self, status: int, reason: str | None = None) -> Reply:
        """This reply if it has the expected status; fails with the whole reply otherwise."""
        assert (self.status, self.reason) == (status, reason), f"{self.status} {self.body}"
        return self

    def ok(self) -> Reply:
        assert self.status < 400, f"{self.status} {self.body}"
        return self


@dataclass(frozen=True)
class Cluster:
    """Servers on one database. Each request goes to the next server, unless it names one."""

    servers: Sequence[LiveServer]
    session: aiohttp.ClientSession
    namespace: str | None = None
    _turns: Iterator[int] = field(default_factory=itertools.count)

    @property
    def first(self) -> LiveServer:
        return self.servers[0]

    @property
    def last(self) -> LiveServer:
        return self.servers[-1]

    def at(self, namespace: str | None) -> Cluster:
        """The cluster with another namespace."""
        return dataclasses.replace(self, namespace=namespace)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = "operator",
        more: Mapping[str, str | None] | None = None,
        raw: bytes | None = None,
        server: LiveServer | None = None,
    ) -> Reply:
        """Send one request. `more` adds headers, or removes those whose value is None."""
        asked = self.servers[next(self._turns) % len(self.servers)] if server is None else server
        sent: dict[str, str | None] = dict(headers(role, self.namespace) if role else {})
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        sent |= more or {}
        async with self.session.request(
            method,
            asked.url + path,
            data=data,
            headers={name: value for name, value in sent.items() if value is not None},
            skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX),
        ) as answer:
            text = await answer.read()
            is_json = answer.headers.get("Content-Type", "").startswith("application/json")
            return Reply(answer.status, json.loads(text) if is_json else text.decode(), answer.headers)

    async def get(self, path: str, **how: Any) -> Reply:
        return await self.ask("GET", path, **how)

    async def post(self, path: str, body: Any = None, **how: Any) -> Reply:
        return await self.ask("POST", path, body, **how)

    async def start(self, workflow_id: str, workflow_type: str = "greeter", **fields: Any) -> Reply:
        """Start a workflow, on the queue `q` by default."""
        how = {name: fields.pop(name) for name in ("more", "server") if name in fields}
        asked = {"workflow_id": workflow_id, "workflow_type": workflow_type, "task_queue": "q"} | fields
        return await self.post("/api/workflows", asked, **how)

    async def start_activity(self, activity_id: str, activity_type: str = "greet", **fields: Any) -> Reply:
        how = {name: fields.pop(name) for name in ("more", "server") if name in fields}
        asked = {"activity_id": activity_id, "activity_type": activity_type, "task_queue": "q"} | fields
        return await self.post("/api/activities", asked, **how)

    async def queue_up(
        self, standings: Sequence[Json], task_queue: str = "q", at_once: int = TASKS_PER_REQUEST_MAX
    ) -> None:
        """Start a standalone activity for each priority; ids contain the key and the order.

        Those of one request start together, so where their order counts they are sent one by one.
        """
        items = [
            {
                "activity_id": f"{standing.get('fairness_key', '')}-{next(_started):06}",
                "activity_type": "greet",
                "task_queue": task_queue,
            }
            | standing
            for standing in standings
        ]
        for start in range(0, len(items), at_once):
            some = items[start : start + at_once]
            batch = (await self.post("/api/activities/batch", {"items": some})).expect(200)
            assert batch["accepted"] == len(some), batch.body

    async def config(self, task_queue: str = "q", kind: str = "activity", **fields: Any) -> Reply:
        """Change settings of a queue's tasks of one kind."""
        how = {name: fields.pop(name) for name in ("server", "role") if name in fields}
        body = {"task_queue_type": kind} | fields
        return await self.ask("PATCH", f"/api/task-queues/{task_queue}/config", body, **how)

    async def read_config(self, task_queue: str = "q", kind: str = "activity") -> Json:
        path = f"/api/task-queues/{task_queue}/config?task_queue_type={kind}"
        found = (await self.get(path)).expect(200).body
        assert isinstance(found, dict)
        return found

    async def line(self, task_queue: str = "q", kind: str = "activity") -> Json:
        """The description of a queue's tasks of one kind."""
        stats = (await self.get(f"/api/task-queues/{task_queue}")).expect(200)["stats"]
        found = stats[f"{kind}_tasks"]
        assert isinstance(found, dict)
        return found

    async def worker(self, worker_id: str, task_queue: str = "q", **fields: Any) -> Hand:
        """A registered worker, with enough slots by default."""
        body = {"worker_id": worker_id, "task_queue": task_queue, "runtime": "python"} | SLOTS | fields
        (await self.post("/api/worker/register", body, role="worker")).expect(201)
        return Hand(self, worker_id, task_queue)

    async def describe(self, workflow_id: str) -> Json:
        return (await self.get(f"/api/workflows/{workflow_id}")).ok().body

    async def events(self, workflow_id: str, run_id: str | None = None) -> list[Json]:
        """The whole history of a run; its sequence is dense."""
        run = run_id or (await self.describe(workflow_id))["run_id"]
        found: list[Json] = []
        token = ""
        while True:
            path = f"/api/workflows/{workflow_id}/runs/{run}/history?page_size=1000&derived=false{token}"
            page = (await self.get(path)).ok()
            found += page["events"]
            if page["next_page_token"] is None:
                assert [event["sequence"] for event in found] == list(range(1, len(found) + 1))
                return found
            token = f"&next_page_token={page['next_page_token']}"

    async def event_types(self, workflow_id: str) -> list[str]:
        return [event["event_type"] for event in await self.events(workflow_id)]


@dataclass(frozen=True)
class Hand:
    """A worker that the test drives step by step."""

    cluster: Cluster
    worker_id: str
    task_queue: str

    async def poll(self, kind: str = "workflow", timeout: int = 0, **fields: Any) -> Reply:
        """Poll until a server knows the answer; `timeout` is how long it may hold one.

        On a busy machine a claim may come back late. The poll says `unavailable` then, and spends nothing.
        """
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reply = await self.poll_once(kind, timeout, **fields)
                if not isinstance(reply.body, dict) or reply.body.get("poll_status") != "unavailable":
                    return reply

    async def poll_once(self, kind: str = "workflow", timeout: int = 0, **fields: Any) -> Reply:
        """One poll, which may find the server or its database `unavailable`."""
        how = {name: fields.pop(name) for name in ("server",) if name in fields}
        body = {"worker_id": self.worker_id, "task_queue": self.task_queue, "timeout_seconds": timeout}
        return await self.cluster.post(f"/api/worker/{kind}-tasks/poll", body | fields, role="worker", **how)

    async def take(self, kind: str = "workflow", timeout: int = 30, **fields: Any) -> Json:
        """The next task, waiting for it."""
        reply = (await self.poll(kind, timeout, **fields)).expect(200)
        assert reply["poll_status"] == "leased", reply.body
        task = reply["task"]
        assert isinstance(task, dict)
        return task

    async def drain(self, count: int, at_once: int = TASKS_PER_REQUEST_MAX, **fields: Any) -> list[Json]:
        """The next activity tasks in dispatch order; all stay leased to this worker."""
        taken: list[Json] = []
        while len(taken) < count:
            taken += await self.some(min(at_once, count - len(taken)), **fields)
        return taken

    async def some(self, most: int, timeout: int = 30, **fields: Any) -> list[Json]:
        """The activity tasks of one poll, which waits for the first."""
        reply = (await self.poll("activity", timeout, max_tasks=most, **fields)).expect(200)
        assert reply["poll_status"] == "leased", reply.body
        tasks = reply["tasks"]
        assert isinstance(tasks, list)
        return tasks

    async def finish_all(self, tasks: Sequence[Json]) -> None:
        """Complete activities."""
        await self.report_all(tasks, "complete", result=None)

    async def report_all(self, tasks: Sequence[Json], action: str, **fields: Any) -> None:
        """Complete or fail activities in batches of a hundred."""
        for start in range(0, len(tasks), TASKS_PER_REQUEST_MAX):
            items = [
                {"task_id": task["task_id"], "action": action} | self.lease(task) | fields
                for task in tasks[start : start + TASKS_PER_REQUEST_MAX]
            ]
            path = "/api/worker/activity-tasks/batch"
            batch = (await self.cluster.post(path, {"items": items}, role="worker")).expect(200)
            assert batch["refused"] == 0, batch.body

    async def report(self, task: Json, action: str, **fields: Any) -> Reply:
        """Complete, fail or heartbeat a task that this worker holds."""
        kind = "activity" if "activity_attempt_id" in task else "workflow"
        path = f"/api/worker/{kind}-tasks/{task['task_id']}/{action}"
        return await self.cluster.post(path, self.lease(task) | fields, role="worker")

    def lease(self, task: Json) -> Json:
        """The fields by which a report names its lease."""
        if "activity_attempt_id" in task:
            return {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": self.worker_id}
        return {"workflow_task_attempt": task["workflow_task_attempt"], "lease_owner": self.worker_id}

    async def decide(self, task: Json, *commands: Json) -> Reply:
        return await self.report(task, "complete", commands=list(commands))

    async def finish(self, task: Json, result: Any = None) -> Reply:
        """Complete a workflow with a result, or an activity."""
        if "activity_attempt_id" in task:
            return await self.report(task, "complete", result=result)
        return await self.decide(task, {"type": "complete_workflow", "result": result})

    async def schedule(self, workflow_id: str, activity_type: str = "greet", **fields: Any) -> Json:
        """Start a workflow that schedules an activity, and return its task, leased to this worker."""
        (await self.cluster.start(workflow_id, task_queue=self.task_queue)).expect(201)
        task = await self.take()
        command = {"type": "schedule_activity", "activity_type": activity_type, "arguments": []} | fields
        (await self.decide(task, command)).expect(200)
        return await self.take("activity")


def value(envelope: Json | None) -> object:
    """The decoded value of a payload."""
    assert envelope is not None
    return payloads.decode(envelope["blob"])


async def until(true: Callable[[], Awaitable[bool]], looks_max: int = 10_000) -> None:
    """Poll until the condition holds; there is no event to wait for in another process."""
    for _ in range(looks_max):
        if await true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not so after {looks_max} looks")


async def open_polls(cluster: Cluster, count: int) -> None:
    """Wait until the first server has so many open polls."""

    async def so_many() -> bool:
        shown = (await cluster.get("/metrics", server=cluster.first)).body
        return f"penstock_open_polls {float(count)}\n" in shown

    await until(so_many)
