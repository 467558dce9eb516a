"""Cancellation with time to clean up, as clients and workers in other languages see it."""

from __future__ import annotations

import pytest

from tests.server.client import Reply
from tests.server.contract.conftest import Body, Tenant
from tests.server.contract.test_audit import of_type

REQUEST = "/api/workflows/order-1/request-cancellation"
CHARGE: Body = {"type": "schedule_activity", "activity_type": "charge", "arguments": []}


async def a_run(tenant: Tenant) -> Body:
    """A run that waits for an activity, with a worker that can deliver cancellations."""
    await tenant.register(capabilities=["cooperative_cancellation"])
    started = await tenant.start("order-1")
    (await tenant.complete((await tenant.poll())["task"], CHARGE)).expect(200)
    return started


async def ask(tenant: Tenant, **fields: object) -> Body:
    answer: Body = (await tenant.post(REQUEST, fields)).expect(200).json
    return answer


async def deliver(tenant: Tenant, task: Body, **fields: object) -> Reply:
    report = {
        "lease_owner": "w-1",
        "workflow_task_attempt": task["workflow_task_attempt"],
        "request_id": task["cancellation_request"]["request_id"],
        "sequence": 1,
        "call_kind": "activity",
    }
    return await tenant.work(f"workflow-tasks/{task['task_id']}/deliver-cancellation", report | fields)


async def test_a_request_names_its_deadline_and_stands_for_all_later_ones(tenant: Tenant) -> None:
    started = await a_run(tenant)
    first = await ask(tenant, reason="enough", cleanup_timeout_seconds=30)
    assert (first["accepted"], first["duplicate"], first["run_id"]) == (True, False, started["run_id"])
    request = first["cancellation_request"]
    assert set(request) == {
        "request_id",
        "requested_at",
        "cleanup_deadline_at",
        "history_refresh_page_token",
    }
    again = (await tenant.post(REQUEST, [])).expect(200).json
    assert (again["duplicate"], again["cancellation_request"]) == (True, request)
    named = f"/api/workflows/order-1/runs/{started['run_id']}/request-cancellation"
    assert (await tenant.post(named, {})).expect(200).json["duplicate"] is True


async def test_a_described_run_has_its_request_and_who_sent_it(tenant: Tenant) -> None:
    await a_run(tenant)
    request = (await ask(tenant, reason="enough"))["cancellation_request"]
    described = (await tenant.get("/api/workflows/order-1")).json
    assert described["cancellation_request"]["request_id"] == request["request_id"]
    assert described["cancellation_request"]["delivered"] is False
    (command, _) = described["commands"]
    assert (command["command_type"], command["reason"]) == ("request_cancellation", "enough")
    assert command["principal"] == {"type": "auth:token", "id": "operator"}
    await deliver(tenant, (await tenant.poll())["task"])
    described = (await tenant.get("/api/workflows/order-1")).json
    assert described["cancellation_request"]["delivered"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"cleanup_timeout_seconds": 0},
        {"cleanup_timeout_seconds": 3601},
        {"cleanup_timeout_seconds": 1.5},
        {"cleanup_timeout_seconds": "60"},
        {"reason": "x" * 1001},
        {"reason": 7},
    ],
)
async def test_a_request_out_of_bounds_is_refused_and_changes_nothing(tenant: Tenant, fields: Body) -> None:
    await a_run(tenant)
    (await tenant.post(REQUEST, fields)).expect(422, "validation_failed")
    assert "cancellation_request" not in (await tenant.get("/api/workflows/order-1")).json


async def test_a_workflow_that_does_not_exist_has_no_cancellation(tenant: Tenant) -> None:
    (await tenant.post("/api/workflows/nowhere/request-cancellation", {})).expect(404, "instance_not_found")


async def test_the_task_and_its_heartbeat_show_the_request_until_it_is_delivered(tenant: Tenant) -> None:
    await a_run(tenant)
    request = (await ask(tenant))["cancellation_request"]
    task = (await tenant.poll())["task"]
    assert task["cancellation_request"] == request
    lease = {"lease_owner": "w-1", "workflow_task_attempt": task["workflow_task_attempt"]}
    path = f"workflow-tasks/{task['task_id']}"
    assert (await tenant.work(f"{path}/heartbeat", lease)).json["cancellation_request"] == request
    delivered = (await deliver(tenant, task)).expect(200).json
    assert (delivered["delivered"], delivered["duplicate"], delivered["sequence_span"]) == (True, False, 1)
    assert "cancellation_request" not in (await tenant.work(f"{path}/heartbeat", lease)).json
    page = {"next_history_page_token": request["history_refresh_page_token"]}
    events = (await tenant.work(f"{path}/history", lease | page)).expect(200).json["history_events"]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    payload = of_type(events, "CooperativeCancellationDelivered")["payload"]
    assert (payload["workflow_command_id"], payload["sequence"]) == (request["request_id"], 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"call_kind": "service_operation"},
        {"sequence": 0},
        {"sequence_span": 2},
        {"call_kind": "parallel", "sequence_span": 1001},
        {"call_kind": "selection_handle"},
        {"operation_sequence": 1},
        {"operation_sequence_span": 2},
    ],
)
async def test_a_delivery_that_describes_no_call_is_refused(tenant: Tenant, fields: Body) -> None:
    await a_run(tenant)
    await ask(tenant)
    task = (await tenant.poll())["task"]
    (await deliver(tenant, task, **fields)).expect(422, "validation_failed")


async def test_the_status_of_an_activity_task_renews_nothing(tenant: Tenant) -> None:
    await a_run(tenant)
    task = (await tenant.poll("activity"))["task"]
    lease = {"lease_owner": "w-1", "activity_attempt_id": task["activity_attempt_id"]}
    path = f"activity-tasks/{task['task_id']}/status"
    status = (await tenant.work(path, lease)).expect(200).json
    assert (status["can_continue"], status["cancel_requested"], status["reason"]) == (True, False, None)
    assert (status["heartbeat_recorded"], status["lease_expires_at"]) == (False, task["lease_expires_at"])
    assert status["deadlines"] == task["deadlines"]
    await ask(tenant)
    await deliver(tenant, (await tenant.poll())["task"])
    status = (await tenant.work(path, lease)).expect(200, "activity_cancelled").json
    assert (status["can_continue"], status["cancel_requested"]) == (False, True)
    other = lease | {"activity_attempt_id": "9.other"}
    (await tenant.work(path, other)).expect(404, "attempt_not_found")


async def test_a_cancellation_policy_that_there_is_not_is_refused(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    reply = await tenant.complete(task, CHARGE | {"cancellation_policy": "perhaps"})
    reply.expect(422, "validation_failed")
