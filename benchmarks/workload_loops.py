"""Raw clients of the HTTP contract: keep-alive connections, prepared bodies, as little reading as possible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from benchmarks.processes import cpu_of, load_average, own_cpu_seconds
from benchmarks.work import Kind, Order, Outcome

LOOPS = 32
"""Parallel poll loops of each kind when one request carries one task."""
BATCH_LOOPS = 4
CONNECTIONS_OF_REQUESTS = 64
POLL_SECONDS = 5
SLOTS = 1_000
WORKFLOW_TYPE = "bench.one-activity"
ACTIVITY_TYPE = "bench.nothing"

_COMMON = {"Content-Type": "application/json", "Accept-Encoding": "identity", "X-Namespace": "default"}
WORKER_HEADERS = _COMMON | {
    "Authorization": "Bearer worker-secret",
    "X-Durable-Workflow-Protocol-Version": "1.0",
}
OPERATOR_HEADERS = _COMMON | {
    "Authorization": "Bearer operator-secret",
    "X-Durable-Workflow-Control-Plane-Version": "2",
}
REQUESTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "page": ("GET", "/favicon.ico", {"Accept-Encoding": "identity"}),
    "checked": ("POST", "/api/worker/activity-tasks/batch", WORKER_HEADERS),
    "committed": ("POST", "/api/worker/heartbeat", WORKER_HEADERS),
}
"""A page without any check; a batch whose only item is refused after all checks; one row that is committed."""


class _Event(Struct):
    event_type: str


class _Task(Struct):
    task_id: str
    workflow_id: str
    lease_owner: str
    activity_attempt_id: str = ""
    workflow_task_attempt: int = 0
    history_events: list[_Event] = []


class _Polled(Struct):
    task: _Task | None = None
    tasks: list[_Task] = []

    def all(self) -> list[_Task]:
        return self.tasks or ([self.task] if self.task else [])


class _Batched(Struct):
    accepted: int
    refused: int


_POLLED = msgspec.json.Decoder(_Polled)
_BATCHED = msgspec.json.Decoder(_Batched)


class UnexpectedAnswer(RuntimeError):
    """The server refused what a benchmark sent: its figures would mean nothing."""


async def drive(order: Order) -> Outcome:
    """Carry out one order and say what it took."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(
        order.url, connector=connector, skip_auto_headers=("User-Agent", "Accept")
    ) as session:
        return await _Drive(order, session).run()


class _Drive:
    """The loops of one order, and what they count."""

    def __init__(self, order: Order, session: aiohttp.ClientSession) -> None:
        self._order = order
        self._session = session
        self._numbers = iter(range(order.count))
        self._free = asyncio.Semaphore(order.in_flight)
        self._sent_at: dict[str, float] = {}
        self._latencies: list[float] = []
        self._started = 0
        self._ended = 0
        self._requests = 0
        self._done = asyncio.Event()
        # Every connection of a plain request speaks for a worker of its own: equal ones would wait for each other.
        workers = CONNECTIONS_OF_REQUESTS if order.request == "committed" else 2
        self._workers = [f"{order.name}-worker-{number}" for number in range(workers)]

    async def run(self) -> Outcome:
        kind = self._order.kind
        if kind is not Kind.FILL:
            await self._register()
        self._requests = 0
        cpu, own, began = cpu_of(self._order.pids), own_cpu_seconds(), time.perf_counter()
        loops = [asyncio.create_task(loop) for loop in self._loops()]
        done = asyncio.create_task(self._done.wait())
        try:
            await _first_end(loops, done)
        finally:
            seconds = time.perf_counter() - began
            spent = {name: value - cpu[name] for name, value in cpu_of(self._order.pids).items()}
            spent["client"] = own_cpu_seconds() - own
            for loop in (*loops, done):
                loop.cancel()
            await asyncio.gather(*loops, done, return_exceptions=True)
        requests = self._requests
        if kind is not Kind.FILL:
            await self._deregister()
        return Outcome(
            count=self._started if kind is Kind.FILL else self._ended,
            seconds=seconds,
            requests=requests,
            cpu_seconds=spent,
            latencies_ms=_percentiles(self._latencies),
            load=load_average(),
        )

    def _loops(self) -> Iterator[Any]:
        order = self._order
        if order.kind is Kind.REQUESTS:
            for number in range(CONNECTIONS_OF_REQUESTS):
                yield self._request_loop(self._workers[number % len(self._workers)])
            return
        if order.kind is not Kind.DRAIN:
            starters = BATCH_LOOPS if order.batch else min(order.in_flight, order.count)
            yield from (self._start_loop() for _ in range(starters))
        if order.kind is not Kind.FILL:
            workers = BATCH_LOOPS if order.batch else LOOPS
            yield from (self._activity_loop() for _ in range(workers))
            if order.kind is Kind.WORKFLOWS:
                yield from (self._workflow_loop() for _ in range(workers))

    # starting

    async def _start_loop(self) -> None:
        operator = OPERATOR_HEADERS
        path = "/api/workflows" if self._order.kind is Kind.WORKFLOWS else "/api/activities"
        body = self._workflow_start if self._order.kind is Kind.WORKFLOWS else self._activity_start
        while names := await self._next_names():
            now = time.perf_counter()
            self._sent_at.update(dict.fromkeys(names, now))
            if self._order.batch:
                await self._send_batch(f"{path}/batch", [body(name) for name in names], operator)
            else:
                await self._post(path, body(names[0]), operator)
            self._started += len(names)
            if self._order.kind is Kind.FILL:
                for _ in names:
                    self._free.release()
                self._check_done(self._started)

    async def _next_names(self) -> list[str]:
        """The ids to start next, as soon as one may be in flight; as many as may be if they go together."""
        await self._free.acquire()
        names: list[str] = []
        while True:
            number = next(self._numbers, None)
            if number is None:
                self._free.release()
                return names
            names.append(f"{self._order.name}-{number}")
            if len(names) >= max(self._order.batch, 1) or self._free.locked():
                return names
            await self._free.acquire()

    def _workflow_start(self, name: str) -> bytes:
        return b'{"workflow_id":"%b","workflow_type":"%b","task_queue":"%b","input":["x"]}' % (
            name.encode(),
            WORKFLOW_TYPE.encode(),
            self._order.queue.encode(),
        )

    def _activity_start(self, name: str) -> bytes:
        return b'{"activity_id":"%b","activity_type":"%b","task_queue":"%b","input":["x"]}' % (
            name.encode(),
            ACTIVITY_TYPE.encode(),
            self._order.queue.encode(),
        )

    # working

    async def _activity_loop(self) -> None:
        path, poll = "/api/worker/activity-tasks", self._poll_body(self._workers[0])
        while True:
            tasks = _POLLED.decode(await self._post(f"{path}/poll", poll, WORKER_HEADERS)).all()
            if not tasks and self._order.kind is Kind.DRAIN:
                return
            if not tasks:
                continue
            await self._report(path, tasks, [_activity_result(task) for task in tasks])
            if self._order.kind is not Kind.WORKFLOWS:
                self._end(tasks)

    async def _workflow_loop(self) -> None:
        path, poll = "/api/worker/workflow-tasks", self._poll_body(self._workers[1])
        while True:
            tasks = _POLLED.decode(await self._post(f"{path}/poll", poll, WORKER_HEADERS)).all()
            if not tasks:
                continue
            closing = [task for task in tasks if _has_result(task)]
            await self._report(path, tasks, [self._decision(task) for task in tasks])
            self._end(closing)

    async def _report(self, path: str, tasks: list[_Task], bodies: list[bytes]) -> None:
        if self._order.batch:
            items = [
                b'{"task_id":"%b",%b' % (task.task_id.encode(), body[1:])
                for task, body in zip(tasks, bodies, strict=True)
            ]
            await self._send_batch(f"{path}/batch", items, WORKER_HEADERS)
        else:
            await self._post(f"{path}/{tasks[0].task_id}/complete", bodies[0], WORKER_HEADERS)

    def _decision(self, task: _Task) -> bytes:
        command = (
            b'{"type":"complete_workflow","result":"done"}'
            if _has_result(task)
            else b'{"type":"schedule_activity","activity_type":"%b","arguments":["x"]}'
            % ACTIVITY_TYPE.encode()
        )
        return b'{"lease_owner":"%b","workflow_task_attempt":%d,"commands":[%b]}' % (
            task.lease_owner.encode(),
            task.workflow_task_attempt,
            command,
        )

    def _poll_body(self, worker: str) -> bytes:
        body: dict[str, Any] = {
            "worker_id": worker,
            "task_queue": self._order.queue,
            "timeout_seconds": 1 if self._order.kind is Kind.DRAIN else POLL_SECONDS,
        }
        if self._order.batch:
            body["max_tasks"] = self._order.batch
        return msgspec.json.encode(body)

    def _end(self, tasks: list[_Task]) -> None:
        now = time.perf_counter()
        for task in tasks:
            self._free.release()
            sent_at = self._sent_at.pop(task.workflow_id, None)
            if sent_at is not None:
                self._latencies.append((now - sent_at) * 1000)
        self._ended += len(tasks)
        self._check_done(self._ended)

    def _check_done(self, count: int) -> None:
        if self._order.kind is not Kind.DRAIN and count >= self._order.count:
            self._done.set()

    # requests

    async def _request_loop(self, worker: str) -> None:
        method, path, headers = REQUESTS[self._order.request]
        bodies = {
            "checked": b'{"items":[{"task_id":"none","action":"none"}]}',
            "committed": msgspec.json.encode({"worker_id": worker}),
        }
        body = bodies.get(self._order.request)
        for _ in self._numbers:
            await self._send(method, path, body, headers)
            self._ended += 1
            self._check_done(self._ended)

    async def _register(self) -> None:
        for worker in self._workers:
            body = {
                "worker_id": worker,
                "task_queue": self._order.queue,
                "runtime": "external",
                "supported_workflow_types": [WORKFLOW_TYPE],
                "supported_activity_types": [ACTIVITY_TYPE],
                "max_concurrent_workflow_tasks": SLOTS,
                "max_concurrent_activity_tasks": SLOTS,
            }
            await self._post("/api/worker/register", msgspec.json.encode(body), WORKER_HEADERS)

    async def _deregister(self) -> None:
        """Leave, so that tasks which were leased in the last moment wait again at once."""
        for worker in self._workers:
            await self._send("DELETE", f"/api/worker/registrations/{worker}", None, WORKER_HEADERS)

    async def _send_batch(self, path: str, items: list[bytes], headers: dict[str, str]) -> None:
        raw = await self._post(path, b'{"items":[%b]}' % b",".join(items), headers)
        if _BATCHED.decode(raw).refused:
            raise UnexpectedAnswer(f"{path} refused items: {raw[:500]!r}")

    async def _post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        return await self._send("POST", path, body, headers)

    async def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        self._requests += 1
        async with self._session.request(method, path, data=body, headers=headers) as response:
            raw = await response.read()
            if response.status >= 300:
                raise UnexpectedAnswer(f"{method} {path} answered {response.status}: {raw[:500]!r}")
            return raw


def _activity_result(task: _Task) -> bytes:
    return b'{"activity_attempt_id":"%b","lease_owner":"%b","result":"done"}' % (
        task.activity_attempt_id.encode(),
        task.lease_owner.encode(),
    )


def _has_result(task: _Task) -> bool:
    return any(event.event_type == "ActivityCompleted" for event in task.history_events)


async def _first_end(loops: list[asyncio.Task[None]], done: asyncio.Task[Any]) -> None:
    """Wait until all is done or no loop is left; a loop that fails before fails the whole."""
    pending: set[asyncio.Task[Any]] = {*loops, done}
    while not done.done() and pending != {done}:
        ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in ended:
            each.result()


def _percentiles(values: list[float]) -> tuple[float, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
