"""One client of the public contract, without an SDK, on each store."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import Client, Reply

Body = dict[str, Any]
NUMBERS = itertools.count(1)
FIXTURES: dict[str, Body] = json.loads(Path(__file__).with_name("fixtures.json").read_text())
_TYPES = {"string": str, "number": int, "object": dict}


class Tenant:
    """A client in a namespace of its own, which speaks plain HTTP for all roles."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    async def ask(self, method: str, target: str, body: object = None, role: str = "operator") -> Reply:
        raw = b"" if body is None else json.dumps(body).encode()
        return await self._client.request(method, target, raw, role=role, namespace=self.namespace)

    async def get(self, target: str) -> Reply:
        return await self.ask("GET", target)

    async def post(self, target: str, body: object) -> Reply:
        return await self.ask("POST", target, body)

    async def work(self, path: str, body: object) -> Reply:
        return await self.ask("POST", f"/api/worker/{path}", body, role="worker")

    async def start(self, workflow_id: str, **fields: object) -> Body:
        body = {"workflow_id": workflow_id, "workflow_type": "order", "task_queue": "orders"} | fields
        answer: Body = (await self.post("/api/workflows", body)).expect(201).json
        return answer

    async def register(self, **fields: object) -> Body:
        body = {"worker_id": "w-1", "task_queue": "orders", "runtime": "worker-runtime"} | fields
        answer: Body = (await self.work("register", body)).expect(201).json
        return answer

    async def poll(self, kind: str = "workflow", queue: str = "orders", worker: str = "w-1") -> Body:
        asked = {"worker_id": worker, "task_queue": queue, "timeout_seconds": 0}
        while True:  # a claim may come back too late on a busy machine; it spends nothing
            answer: Body = (await self.work(f"{kind}-tasks/poll", asked)).expect(200).json
            if answer["poll_status"] != "unavailable":
                return answer

    async def complete(self, task: Body, *commands: Body) -> Reply:
        report = {
            "lease_owner": "w-1",
            "workflow_task_attempt": task["workflow_task_attempt"],
            "commands": commands,
        }
        return await self.work(f"workflow-tasks/{task['task_id']}/complete", report)


def check_fixture(name: str, answer: Body) -> None:
    """Check that an answer has the fields of a fixture: with this type, or else with this value."""
    for path, expected in FIXTURES[name].items():
        value: Any = answer
        for part in path.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        if isinstance(expected, str) and expected in _TYPES:
            assert type(value) is _TYPES[expected], (name, path, value)
        else:
            assert value == expected, (name, path)


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def on_store(request: pytest.FixtureRequest) -> Client:
    client: Client = request.getfixturevalue(request.param)
    return client


@pytest.fixture
async def tenant(on_store: Client) -> Tenant:
    namespace = f"tenant-{next(NUMBERS)}"
    (await on_store.post("/api/namespaces", {"name": namespace}, role="admin")).expect(201)
    return Tenant(on_store, namespace)
