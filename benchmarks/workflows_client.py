"""What the benchmarks of workflows say to a server: a client and a worker in one, in plain HTTP."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from benchmarks.workload_loops import ACTIVITY_TYPE, OPERATOR_HEADERS, WORKER_HEADERS, UnexpectedAnswer

WORKFLOW_TYPE = "bench.workflow"
SLOTS = 10_000
TOGETHER = 100
"""So many starts travel in one request."""
POLL_SECONDS = 30
FIRST_PAGE = 500
"""As many events as the SDK asks for with a workflow task."""

Json = dict[str, Any]
WAIT: Json = {"type": "open_condition_wait", "condition_key": "told"}
SIDE_EFFECT: Json = {"type": "record_side_effect", "result": "x"}

_numbers = itertools.count(1)


class Talk:
    """One server, one queue of it, and one worker that takes everything there."""

    def __init__(self, session: aiohttp.ClientSession, queue: str) -> None:
        self._session = session
        self.queue = queue
        self._worker = f"{queue}-worker"

    async def register(self) -> None:
        registration = {
            "worker_id": self._worker,
            "task_queue": self.queue,
            "runtime": "external",
            "supported_workflow_types": [WORKFLOW_TYPE],
            "supported_activity_types": [ACTIVITY_TYPE],
            "max_concurrent_workflow_tasks": SLOTS,
            "max_concurrent_activity_tasks": SLOTS,
        }
        await self._work("register", registration)

    async def start(self, **more: Any) -> str:
        """Start a run; returns its workflow id."""
        body = self._start() | more
        await self.send("POST", "/api/workflows", OPERATOR_HEADERS, body)
        return str(body["workflow_id"])

    async def start_many(self, count: int) -> list[str]:
        bodies = [self._start() for _ in range(count)]
        await self._batches("/api/workflows/batch", bodies)
        return [str(body["workflow_id"]) for body in bodies]

    async def start_activities(self, count: int) -> None:
        bodies = [
            {"activity_id": _name(self.queue), "activity_type": ACTIVITY_TYPE, "task_queue": self.queue}
            for _ in range(count)
        ]
        await self._batches("/api/activities/batch", bodies)

    def _start(self) -> Json:
        return {
            "workflow_id": _name(self.queue),
            "workflow_type": WORKFLOW_TYPE,
            "task_queue": self.queue,
            "input": ["x"],
        }

    async def _batches(self, path: str, bodies: Sequence[Json]) -> None:
        for start in range(0, len(bodies), TOGETHER):
            items = {"items": bodies[start : start + TOGETHER]}
            answer = await self.send("POST", path, OPERATOR_HEADERS, items)
            if answer["refused"]:
                raise UnexpectedAnswer(f"starts were refused: {answer}")

    async def signal(self, workflow_id: str) -> None:
        path = f"/api/workflows/{workflow_id}/signal/tell"
        await self.send("POST", path, OPERATOR_HEADERS, {"input": ["x"]})

    async def take(self, kind: str, most: int = 1) -> list[Json]:
        """Wait for tasks (`workflow` or `activity`) and lease them; nothing when none came in time."""
        poll: Json = {
            "worker_id": self._worker,
            "task_queue": self.queue,
            "timeout_seconds": POLL_SECONDS,
            "max_tasks": most,
        }
        if kind == "workflow":
            poll["history_page_size"] = FIRST_PAGE
        tasks: list[Json] = (await self._work(f"{kind}-tasks/poll", poll))["tasks"]
        return tasks

    async def take_one(self) -> Json:
        """The next workflow task; waits until it comes."""
        while not (tasks := await self.take("workflow")):
            pass
        return tasks[0]

    async def decide(self, task: Json, commands: Sequence[Json]) -> None:
        await self._work(f"workflow-tasks/{task['task_id']}/complete", _lease(task) | {"commands": commands})

    async def complete_activities(self, tasks: Sequence[Json]) -> None:
        """Report results: one on its own, several in one request."""
        results = [
            {
                "task_id": task["task_id"],
                "activity_attempt_id": task["activity_attempt_id"],
                "lease_owner": task["lease_owner"],
                "result": "done",
            }
            for task in tasks
        ]
        if len(tasks) == 1:
            await self._work(f"activity-tasks/{tasks[0]['task_id']}/complete", results[0])
            return
        answer = await self._work("activity-tasks/batch", {"items": results})
        if answer["refused"]:
            raise UnexpectedAnswer(f"results were refused: {answer}")

    async def task_page(self, task: Json, token: str) -> str | None:
        """A page of 1,000 events that a worker reads beyond the first; returns the token of the next."""
        asked = _lease(task) | {"next_history_page_token": token, "history_page_size": 1000}
        found = await self._work(f"workflow-tasks/{task['task_id']}/history", asked)
        return found["next_history_page_token"]  # type: ignore[no-any-return]

    async def history_page(self, workflow_id: str, token: str) -> str | None:
        """A page of 1,000 events that an operator reads; returns the token of the next."""
        query = {"page_size": "1000"} | ({"next_page_token": token} if token else {})
        found = await self.ask(f"/api/workflows/{workflow_id}/history", query)
        return found["next_page_token"]  # type: ignore[no-any-return]

    async def ask(self, path: str, query: Mapping[str, str]) -> Any:
        return await self.send("GET", path, OPERATOR_HEADERS, None, query)

    async def _work(self, path: str, body: Json) -> Any:
        return await self.send("POST", f"/api/worker/{path}", WORKER_HEADERS, body)

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Json | None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        data = None if body is None else msgspec.json.encode(body)
        async with self._session.request(method, path, data=data, headers=headers, params=query) as response:
            raw = await response.read()
        if response.status >= 300:
            raise UnexpectedAnswer(f"{method} {path} answered {response.status}: {raw[:500]!r}")
        return msgspec.json.decode(raw)


@contextlib.asynccontextmanager
async def talk(url: str, queue: str = "bench") -> AsyncIterator[Talk]:
    """Connections that are kept, to the server at `url`, with a worker registered on the queue."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(
        url, connector=connector, skip_auto_headers=("User-Agent", "Accept")
    ) as session:
        talking = Talk(session, queue)
        await talking.register()
        yield talking


def _name(queue: str) -> str:
    return f"{queue}-{next(_numbers)}"


def _lease(task: Json) -> Json:
    return {name: task[name] for name in ("lease_owner", "workflow_task_attempt")}
