"""A history that an audit can use: who started, signalled and ended a run, and what follows from its events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.client import Client
from tests.server.contract.conftest import Body, Tenant

OPERATOR = {"type": "auth:token", "id": "operator"}
WORKER = {"type": "auth:token", "id": "worker"}
SPOOFED_HEADERS = {
    "X-Workflow-Principal-Id": "mallory",
    "X-Workflow-Principal-Type": "attacker",
    "X-Workflow-Caller-Label": "Mallory",
    "X-Forwarded-User": "mallory",
    "X-Remote-User": "mallory",
    "Authorization-Override": "Bearer mallory",
}
SPOOFED_FIELDS = {"principal": "mallory", "principal_id": "mallory", "actor": "mallory", "user": "mallory"}


async def history(tenant: Tenant, workflow_id: str, **query: object) -> list[Body]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    events: list[Body] = (
        (await tenant.get(f"/api/workflows/{workflow_id}/history?{asked}")).expect(200).json["events"]
    )
    return events


def of_type(events: list[Body], kind: str) -> Body:
    (found,) = [each for each in events if each["event_type"] == kind]
    return found


async def run_activity(tenant: Tenant, workflow_id: str, outcome: str = "complete", **policy: Any) -> None:
    """Run the first workflow task of a workflow, and the activity that it schedules."""
    await tenant.register()
    await tenant.start(workflow_id)
    task = (await tenant.poll())["task"]
    command = {"type": "schedule_activity", "activity_type": "charge", "task_queue": "orders"} | policy
    (await tenant.complete(task, command)).expect(200)
    await report(tenant, outcome)


async def report(tenant: Tenant, outcome: str) -> None:
    task = (await tenant.poll("activity"))["task"]
    body = {"lease_owner": "w-1", "activity_attempt_id": task["activity_attempt_id"]}
    body |= (
        {"result": None}
        if outcome == "complete"
        else {"failure": {"message": "declined", "type": "Declined"}}
    )
    (await tenant.work(f"activity-tasks/{task['task_id']}/{outcome}", body)).expect(200)


async def end(tenant: Tenant, command: Body) -> None:
    (await tenant.complete((await tenant.poll())["task"], command)).expect(200)


async def test_a_start_is_accepted_by_whoever_sent_it(tenant: Tenant) -> None:
    started = await tenant.start("order-1")
    accepted, began = await history(tenant, "order-1")
    assert (accepted["event_type"], began["event_type"]) == ("StartAccepted", "WorkflowStarted")
    assert accepted["principal"] == began["principal"] == OPERATOR
    assert accepted["payload"]["outcome"] == "started_new"
    command = f"{started['run_id']}-start"
    assert accepted["workflow_command_id"] == began["workflow_command_id"] == command
    assert began["payload"]["workflow_command_id"] == command
    assert "principal" not in began["payload"]


async def test_signals_cancels_and_updates_name_their_principals_and_commands(tenant: Tenant) -> None:
    await tenant.start("order-1")
    (await tenant.post("/api/workflows/order-1/signal/pay", {})).expect(202)
    (await tenant.post("/api/workflows/order-1/update/put", {})).expect(202)
    (await tenant.ask("POST", "/api/workflows/order-1/cancel", {"reason": "late"}, role="admin")).expect(200)
    events = await history(tenant, "order-1")
    assert of_type(events, "SignalReceived")["principal"] == OPERATOR
    assert of_type(events, "UpdateAccepted")["principal"] == OPERATOR
    requested, closed = of_type(events, "CancelRequested"), of_type(events, "WorkflowCancelled")
    assert requested["principal"] == closed["principal"] == {"type": "auth:token", "id": "admin"}
    assert requested["payload"]["command_type"] == "cancel"
    assert requested["workflow_command_id"] == closed["workflow_command_id"]
    assert requested["payload"]["reason"] == "late"


async def test_a_spoofed_principal_is_not_recorded(tenant: Tenant, on_store: Client) -> None:
    for target, body in (
        ("/api/workflows", {"workflow_id": "order-1", "workflow_type": "order", "task_queue": "orders"}),
        ("/api/workflows/order-1/signal/pay", {}),
        ("/api/workflows/order-1/cancel", {}),
    ):
        reply = await on_store.post(
            target,
            body | SPOOFED_FIELDS,
            role="operator",
            namespace=tenant.namespace,
            headers=SPOOFED_HEADERS,
        )
        assert reply.status < 300, reply.json
    events = await history(tenant, "order-1")
    attributed = [each["principal"] for each in events if each["principal"] is not None]
    assert len(attributed) == 5
    assert all(each == OPERATOR for each in attributed)
    assert "mallory" not in str(events).lower()


async def test_the_worker_that_ended_a_run_is_named_and_the_servers_own_events_have_no_principal(
    tenant: Tenant,
) -> None:
    await run_activity(tenant, "order-1")
    await end(tenant, {"type": "complete_workflow", "result": None})
    events = await history(tenant, "order-1")
    assert of_type(events, "WorkflowCompleted")["principal"] == WORKER
    others = {each["event_type"] for each in events if each["principal"] is None}
    assert others == {"ActivityScheduled", "ActivityStarted", "ActivityCompleted"}


async def test_an_attempt_has_the_time_at_which_it_began(tenant: Tenant) -> None:
    await run_activity(tenant, "order-1", "fail", retry_policy={"max_attempts": 2, "backoff_seconds": [0]})
    await report(tenant, "complete")
    events = await history(tenant, "order-1")
    kinds = [each["event_type"] for each in events[2:]]
    assert kinds == [
        "ActivityScheduled",
        "ActivityStarted",
        "ActivityRetryScheduled",
        "ActivityStarted",
        "ActivityCompleted",
    ]
    first, second = [each for each in events if each["event_type"] == "ActivityStarted"]
    assert [each["payload"]["attempt_number"] for each in (first, second)] == [1, 2]
    assert first["payload"]["activity_execution_id"] == second["payload"]["activity_execution_id"]
    completed = of_type(events, "ActivityCompleted")
    assert second["timestamp"] == completed["payload"]["started_at"]
    assert second["derived"] is True
    assert completed["derived"] is False


async def test_a_signal_is_applied_by_the_workflow_task_that_saw_it(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    await end(tenant, {"type": "open_condition_wait", "condition_key": "paid"})
    (await tenant.post("/api/workflows/order-1/signal/pay", {})).expect(202)
    task = (await tenant.poll())["task"]
    (await tenant.post("/api/workflows/order-1/signal/late", {})).expect(202)
    (await tenant.complete(task, {"type": "start_timer", "delay_seconds": 600})).expect(200)
    events = await history(tenant, "order-1")
    kinds = [each["event_type"] for each in events]
    assert kinds == [
        "StartAccepted",
        "WorkflowStarted",
        "ConditionWaitOpened",
        "SignalReceived",
        "SignalApplied",
        "ConditionWaitSatisfied",
        "TimerScheduled",
        "SignalReceived",
    ]
    assert of_type(events, "SignalApplied")["payload"]["signal_name"] == "pay"


@pytest.mark.parametrize(
    ("goes_on", "handled"),
    [
        ({"type": "complete_workflow", "result": None}, True),
        ({"type": "start_timer", "delay_seconds": 60}, True),
        ({"type": "fail_workflow", "message": "declined"}, False),
    ],
)
async def test_a_failure_is_handled_if_the_code_went_on(tenant: Tenant, goes_on: Body, handled: bool) -> None:
    await run_activity(tenant, "order-1", "fail")
    await end(tenant, goes_on)
    events = await history(tenant, "order-1")
    found = [each for each in events if each["event_type"] == "FailureHandled"]
    assert len(found) == handled
    for each in found:
        assert each["payload"]["failure_id"] == of_type(events, "ActivityFailed")["payload"]["failure_id"]
        assert each["payload"]["handled"] is True


async def test_a_repair_and_an_archiving_are_in_the_history_with_who_asked(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    failure = {"lease_owner": "w-1", "workflow_task_attempt": 1, "failure": {"message": "boom"}}
    (await tenant.work(f"workflow-tasks/{task['task_id']}/fail", failure)).expect(200)
    (await tenant.post("/api/workflows/order-1/repair", {})).expect(200)
    (await tenant.post("/api/workflows/order-1/terminate", {})).expect(200)
    (await tenant.ask("POST", "/api/workflows/order-1/archive", {"reason": "done"}, role="admin")).expect(200)
    events = await history(tenant, "order-1")
    kinds = [each["event_type"] for each in events]
    assert kinds == [
        "StartAccepted",
        "WorkflowStarted",
        "RepairRequested",
        "TerminateRequested",
        "WorkflowTerminated",
        "ArchiveRequested",
        "WorkflowArchived",
    ]
    assert of_type(events, "RepairRequested")["principal"] == OPERATOR
    archived = of_type(events, "WorkflowArchived")
    assert archived["principal"]["id"] == "admin"
    assert archived["payload"]["reason"] == "done"


async def test_what_happened_to_open_children_is_behind_the_close_of_their_parent(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    child = {"type": "start_child_workflow", "workflow_type": "ship", "task_queue": "elsewhere"}
    (
        await tenant.complete(
            task,
            child | {"parent_close_policy": "terminate"},
            child | {"parent_close_policy": "abandon"},
            {"type": "complete_workflow", "result": None},
        )
    ).expect(200)
    *_, closed, applied = await history(tenant, "order-1")
    assert closed["event_type"] == "WorkflowCompleted"
    assert applied["event_type"] == "ParentClosePolicyApplied"
    assert applied["payload"]["policy"] == "terminate"


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_pages_of_any_size_show_the_same_events_as_the_whole(tenant: Tenant, size: int) -> None:
    await run_activity(tenant, "order-1", "fail")
    (await tenant.post("/api/workflows/order-1/signal/pay", {})).expect(202)
    await end(tenant, {"type": "start_timer", "delay_seconds": 60})
    (await tenant.post("/api/workflows/order-1/cancel", {})).expect(200)
    whole = await history(tenant, "order-1")
    assert len({each["id"] for each in whole}) == len(whole) == 12
    paged: list[Body] = []
    token: str | None = ""
    while token is not None:
        reply = await tenant.get(f"/api/workflows/order-1/history?page_size={size}&next_page_token={token}")
        page = reply.expect(200).json
        paged, token = paged + page["events"], page["next_page_token"]
    assert paged == whole
    assert (await history(tenant, "order-1", order="desc"))[::-1] == whole


async def test_recorded_events_have_the_same_numbers_with_and_without_the_trail(tenant: Tenant) -> None:
    await run_activity(tenant, "order-1")
    plain = await history(tenant, "order-1", derived="false")
    assert [each["sequence"] for each in plain] == [1, 2, 3]
    with_trail = await history(tenant, "order-1")
    assert [each for each in with_trail if not each["derived"]] == plain


async def test_an_export_has_the_trail_in_its_timeline_and_dense_recorded_events(tenant: Tenant) -> None:
    await run_activity(tenant, "order-1", "fail")
    (await tenant.post("/api/workflows/order-1/signal/pay", {})).expect(202)
    await end(tenant, {"type": "complete_workflow", "result": None})
    run_id = (await tenant.get("/api/workflows/order-1")).json["run_id"]
    bundle = (await tenant.get(f"/api/workflows/order-1/runs/{run_id}/history/export")).expect(200).json
    sequences = [each["sequence"] for each in bundle["history_events"]]
    assert sequences == list(range(1, len(sequences) + 1))
    assert [each["event_type"] for each in bundle["timeline"]] == [
        "StartAccepted",
        "ActivityStarted",
        "SignalApplied",
        "FailureHandled",
    ]
    assert bundle["signals"][0]["applied_at"] is not None
    assert bundle["failures"][0]["handled"] is True
    assert bundle["activities"][0]["started_at"] is not None
    assert {each["type"]: each["principal"] for each in bundle["commands"]} == {
        "StartAccepted": OPERATOR,
        "SignalReceived": OPERATOR,
    }


async def test_a_described_run_has_its_signals_and_commands_with_who_sent_them(tenant: Tenant) -> None:
    await tenant.start("order-1")
    (await tenant.post("/api/workflows/order-1/signal/pay", {"input": ["x" * 1000]})).expect(202)
    (await tenant.post("/api/workflows/order-1/update/put", {})).expect(202)
    (await tenant.ask("POST", "/api/workflows/order-1/cancel", {"reason": "late"}, role="admin")).expect(200)
    (await tenant.post("/api/workflows/order-1/archive", {})).expect(200)
    described = (await tenant.get("/api/workflows/order-1")).expect(200).json
    kinds = [each["command_type"] for each in described["commands"]]
    assert (kinds[:2], sorted(kinds[2:])) == (["archive", "cancel"], ["signal", "start", "update"])
    by_kind = {each["command_type"]: each for each in described["commands"]}
    assert by_kind["cancel"]["principal"]["id"] == "admin"
    assert (by_kind["cancel"]["reason"], by_kind["cancel"]["outcome"]) == ("late", "cancelled")
    assert by_kind["start"]["principal"] == OPERATOR
    (signal,) = described["signals"]
    assert signal["signal_name"] == "pay"
    assert signal["command_id"] == by_kind["signal"]["command_id"]
    assert "x" * 1000 not in str(described["commands"])


async def test_a_run_that_the_server_started_has_no_start_command(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    (await tenant.complete(task, {"type": "continue_as_new", "queue": "orders"})).expect(200)
    described = (await tenant.get("/api/workflows/order-1")).expect(200).json
    assert described["run_number"] == 2
    assert described["commands"] == []
    (began,) = await history(tenant, "order-1")
    assert (began["event_type"], began["principal"]) == ("WorkflowStarted", None)


async def test_the_start_of_a_run_has_the_messages_that_its_workers_declare(tenant: Tenant) -> None:
    contract = {
        "queries": ["sum"],
        "signals": ["pay"],
        "updates": ["put"],
        "update_contracts": [{"name": "put", "parameters": [{"name": "item", "type": "string"}]}],
    }
    await tenant.start("order-1")
    (_, began) = await history(tenant, "order-1")
    assert "declared_updates" not in began["payload"]
    await tenant.register(supported_workflow_types=["order"], workflow_command_contracts={"order": contract})
    (_, began) = await history(tenant, "order-1")
    assert began["payload"]["declared_queries"] == ["sum"]
    assert began["payload"]["declared_signals"] == ["pay"]
    assert began["payload"]["declared_updates"] == ["put"]
    assert began["payload"]["declared_update_contracts"] == contract["update_contracts"]
