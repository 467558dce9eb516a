"""Polls while the database is down or hangs: they return `unavailable` before their deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock import assembly
from penstock.engine.matching import dispatcher
from penstock.engine.runtime import deadlines
from penstock.errors import Reason, Unavailable
from penstock.settings import load
from penstock.stores.sqlite.ephemeral import EphemeralStore
from tests.server.client import Client
from tests.server.conftest import SETTINGS

POLLS = ("workflow-tasks", "activity-tasks", "query-tasks", "update-validation-tasks")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A server of the test's own, which remembers neither the namespace nor the queue."""
    monkeypatch.setattr("penstock.server.auth.access.REMEMBER_MS", -1)
    async with assembly.assembled(load(SETTINGS | {"DW_DATABASE_URL": "memory://"})) as opened:
        client = Client(opened.application)
        worker = {"worker_id": "w1", "task_queue": "orders", "runtime": "python"}
        (await client.post("/api/worker/register", worker, role="worker")).expect(201)
        yield client


def poll(kind: str, **changes: object) -> tuple[str, dict[str, object]]:
    asked = {"worker_id": "w1", "task_queue": "orders", "timeout_seconds": 1} | changes
    return f"/api/worker/{kind}/poll", asked


@pytest.mark.parametrize("kind", POLLS)
async def test_a_new_poll_with_the_database_down_keeps_poll_status_and_task(
    server: Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(_self: object, _operation: object, **_: object) -> None:
        raise Unavailable(Reason.STORE_UNAVAILABLE, "The database is down.", outcome="none")

    with monkeypatch.context() as patched:
        patched.setattr(EphemeralStore, "read", down)
        patched.setattr(EphemeralStore, "transact", down)
        reply = await server.post(*poll(kind), role="worker", namespace="default")
    assert reply.status == 503
    assert reply.json["reason"] in ("store_unavailable", "query_task_queue_unavailable")
    assert (reply.json["task"], reply.json["poll_status"]) == (None, "unavailable")


@pytest.mark.parametrize("kind", POLLS)
@pytest.mark.parametrize("stuck", ["read", "transact"])
async def test_a_poll_ends_in_its_time_though_the_database_does_not_answer(
    server: Client, kind: str, stuck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_self: object, _operation: object, **_: object) -> None:
        await asyncio.Event().wait()

    for module in (deadlines, dispatcher):
        monkeypatch.setattr(module, "LOOK_GRACE_S", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(EphemeralStore, stuck, never)
        reply = await server.post(*poll(kind, timeout_seconds=0), role="worker", namespace="default")
    assert reply.status in (200, 503)
    assert (reply.json["task"], reply.json["poll_status"]) == (None, "unavailable")


async def test_a_poll_for_two_kinds_of_work_ends_in_its_time_though_the_database_does_not_answer(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_self: object, _operation: object, **_: object) -> None:
        await asyncio.Event().wait()

    for module in (deadlines, dispatcher):
        monkeypatch.setattr(module, "LOOK_GRACE_S", 0.05)
    asked = poll("workflow-tasks", timeout_seconds=0, task_kinds=["workflow", "update_validation"])
    with monkeypatch.context() as patched:
        patched.setattr(EphemeralStore, "transact", never)
        reply = await server.post(*asked, role="worker", namespace="default")
    assert (reply.json["task"], reply.json["poll_status"]) == (None, "unavailable")


async def test_a_poll_that_the_server_fails_on_keeps_poll_status_and_task(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_self: object, _operation: object, **_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(EphemeralStore, "transact", broken)
        reply = await server.post(*poll("activity-tasks"), role="worker", namespace="default")
    assert reply.status == 500
    assert (reply.json["task"], reply.json["poll_status"]) == (None, "unavailable")


async def test_a_report_with_the_database_down_names_its_task_however_long_ago_its_namespace_was_asked_for(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace is believed in, so that the refusal comes from the operation, which knows the task."""

    async def down(_self: object, _operation: object, **_: object) -> None:
        raise Unavailable(Reason.STORE_UNAVAILABLE, "The database is down.", outcome="none")

    activity = {"activity_id": "charge", "activity_type": "charge", "task_queue": "orders"}
    (await server.post("/api/activities", activity)).expect(201)
    polled = (await server.post(*poll("activity-tasks"), role="worker", namespace="default")).expect(200)
    task = polled.json["task"]
    report = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": "w1", "result": None}
    path = f"/api/worker/activity-tasks/{task['task_id']}/complete"
    with monkeypatch.context() as patched:
        patched.setattr(EphemeralStore, "read", down)
        patched.setattr(EphemeralStore, "transact", down)
        patched.setattr(EphemeralStore, "transact_all", down)
        reply = await server.post(path, report, role="worker", namespace="default")
    assert reply.status == 503
    assert reply.json["task_id"] == task["task_id"]


async def test_a_namespace_that_was_never_seen_is_not_believed_in_while_the_database_is_down(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(_self: object, _operation: object, **_: object) -> None:
        raise Unavailable(Reason.STORE_UNAVAILABLE, "The database is down.", outcome="none")

    with monkeypatch.context() as patched:
        patched.setattr(EphemeralStore, "read", down)
        reply = await server.post(*poll("activity-tasks"), role="worker", namespace="elsewhere")
    assert reply.status == 503
