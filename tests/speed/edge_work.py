"""The application in process, without a socket, and tasks that pass through all of it: start, poll, complete."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from penstock import assembly
from penstock.settings import load
from tests.support import asgi, live

QUEUE, WORKER, TYPE = "speed", "speed-worker", "Nothing"
SLOTS = 1000


class EdgeWork:
    def __init__(self, application: asgi.App) -> None:
        self._application = application
        self._numbers = itertools.count(1)

    async def task(self) -> None:
        """One standalone task, three requests."""
        await self.start()
        task = await self.poll()
        report = {name: task[name] for name in ("activity_attempt_id", "lease_owner")}
        await self._post("worker", f"worker/activity-tasks/{task['task_id']}/complete", result=None, **report)

    async def start(self) -> None:
        name = f"speed-{next(self._numbers)}"
        await self._post("operator", "activities", activity_id=name, activity_type=TYPE, task_queue=QUEUE)

    async def poll(self) -> Any:
        """The task that waits."""
        wish = {"worker_id": WORKER, "task_queue": QUEUE, "max_tasks": 1}
        [task] = (await self._post("worker", "worker/activity-tasks/poll", **wish))["tasks"]
        return task

    async def start_workflow(self) -> None:
        name = f"speed-{next(self._numbers)}"
        await self._post(
            "operator", "workflows", workflow_id=name, workflow_type=TYPE, task_queue=QUEUE, input=[]
        )

    async def poll_workflow_task(self) -> Any:
        """The workflow task that waits."""
        return (await self._post("worker", "worker/workflow-tasks/poll", worker_id=WORKER, task_queue=QUEUE))[
            "task"
        ]

    async def register(self) -> None:
        kinds = ("activity", "workflow")
        types: dict[str, Any] = {f"supported_{kind}_types": [TYPE] for kind in kinds}
        types |= {f"max_concurrent_{kind}_tasks": SLOTS for kind in kinds}
        await self._post(
            "worker", "worker/register", worker_id=WORKER, task_queue=QUEUE, runtime="external", **types
        )

    async def _post(self, role: str, path: str, **body: Any) -> Any:
        raw = json.dumps(body).encode()
        about = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(raw))}
        given = live.headers(role) | about
        headers = [(name.lower(), value) for name, value in given.items()]
        answer = await asgi.call(self._application, "POST", f"/api/{path}", headers=headers, chunks=[raw])
        assert answer.status < 300, answer.raw
        return answer.json


@contextlib.asynccontextmanager
async def edge_work() -> AsyncIterator[EdgeWork]:
    """On a store in memory: what a database costs is watched elsewhere."""
    settings = load(live.TOKENS | {"DW_DATABASE_URL": "memory://"})
    async with assembly.assembled(settings) as server:
        work = EdgeWork(server.application)
        await work.register()
        yield work
