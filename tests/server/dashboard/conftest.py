"""A server with a clock that stands still, so that a page and the API see the same; and people who are signed in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from penstock import assembly
from penstock.settings import load
from tests.server.client import Client
from tests.server.dashboard.visitors import Visitor
from tests.support import live
from tests.support.clock import ManualClock

NOW_MS = 1_795_000_000_000
TOKENS = live.TOKENS | {"DW_VIEWER_TOKEN": "viewer-secret"}
QUEUE = "payments"


@contextlib.asynccontextmanager
async def serving(
    clock: ManualClock | None = None, url: str = "memory://", **settings: str
) -> AsyncIterator[assembly.Server]:
    """A server whose background duties do nothing."""
    loaded = load(TOKENS | {"DW_DATABASE_URL": url, "DW_WORKER_POLL_TIMEOUT": "1"} | settings)
    async with assembly.assembled(loaded, clock=clock or ManualClock(NOW_MS), duties=lambda _: []) as server:
        yield server


async def furnish(api: Client) -> None:
    """A queue with a cap, four tasks in three keys, a worker, and one lease."""
    worker: Mapping[str, Any] = {
        "worker_id": "render-1",
        "task_queue": QUEUE,
        "runtime": "python",
        "supported_activity_types": ["charge"],
        "max_concurrent_activity_tasks": 4,
    }
    (await api.post("/api/worker/register", worker, role="worker")).expect(201)
    for number, key in enumerate(("acme", "acme", "globex", "initech")):
        body = {
            "activity_id": f"charge-{number}",
            "activity_type": "charge",
            "task_queue": QUEUE,
            "fairness_key": key,
            "input": ["card 4242 4242 4242 4242"],
            "start_to_close_timeout_ms": 60_000,
        }
        (await api.post("/api/activities", body)).expect(201)
    cap = {"max_active_leases_per_queue": 1, "reason": "the bank is slow", "expires_in_seconds": 90_000}
    (await api.patch(f"/api/task-queues/{QUEUE}/limits", cap)).expect(200)
    poll = {"worker_id": "render-1", "task_queue": QUEUE, "timeout_seconds": 0}
    (await api.post("/api/worker/activity-tasks/poll", poll, role="worker")).expect(200)


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
async def server(clock: ManualClock) -> AsyncIterator[assembly.Server]:
    async with serving(clock) as running:
        yield running


@pytest.fixture
async def api(server: assembly.Server) -> Client:
    client = Client(server.application)
    await furnish(client)
    return client


@pytest.fixture
def somebody(server: assembly.Server) -> Callable[[], Visitor]:
    return lambda: Visitor(server.application)


@pytest.fixture
async def operator(somebody: Callable[[], Visitor]) -> Visitor:
    visitor = somebody()
    assert (await visitor.sign_in("operator-secret", "ops-on-call")).status == 303
    return visitor


@pytest.fixture
async def admin(somebody: Callable[[], Visitor]) -> Visitor:
    visitor = somebody()
    assert (await visitor.sign_in("admin-secret", "root")).status == 303
    return visitor


@pytest.fixture
async def viewer(somebody: Callable[[], Visitor]) -> Visitor:
    visitor = somebody()
    assert (await visitor.sign_in("viewer-secret", "audit-bot")).status == 303
    return visitor
