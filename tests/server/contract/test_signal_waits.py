"""Waits for one signal by its name, as workers in other languages open them."""

from __future__ import annotations

from penstock.core import payload_codec
from penstock.core.model import Blob
from tests.server.contract.conftest import Body, Tenant
from tests.server.contract.test_audit import end, history, of_type

WAIT: Body = {"type": "open_signal_wait", "signal_name": "approval"}


async def signal(tenant: Tenant, name: str, *values: object) -> None:
    (await tenant.post(f"/api/workflows/order-1/signal/{name}", {"input": list(values)})).expect(202)


async def waiting(tenant: Tenant, **fields: object) -> None:
    await tenant.register()
    await tenant.start("order-1")
    await end(tenant, WAIT | fields)


def kinds(events: list[Body]) -> list[str]:
    return [each["event_type"] for each in events]


async def test_a_signal_of_that_name_ends_the_wait_and_another_does_not(tenant: Tenant) -> None:
    await waiting(tenant)
    described = (await tenant.get("/api/workflows/order-1")).json
    assert (described["wait_kind"], described["wait_reason"]) == ("signal", "Waiting for signal approval")
    debugged = (await tenant.get("/api/workflows/order-1/debug")).expect(200).json
    (wait,) = debugged["waits"]
    assert (wait["kind"], wait["target_name"]) == ("signal", "approval")
    assert (debugged["tasks"], debugged["activities"], debugged["timers"]) == ([], [], [])
    await signal(tenant, "other")
    assert (await tenant.poll())["task"] is None
    await signal(tenant, "approval", "yes")
    task = (await tenant.poll())["task"]
    *_, received, applied = task["history_events"]
    assert (received["event_type"], applied["event_type"]) == ("SignalReceived", "SignalApplied")
    opened = of_type(task["history_events"], "SignalWaitOpened")["payload"]
    assert (opened["signal_name"], opened["sequence"]) == ("approval", 1)
    assert applied["payload"]["sequence"] == 1
    assert applied["payload"]["signal_wait_id"] == received["payload"]["signal_wait_id"]
    assert applied["payload"]["signal_wait_id"] == opened["signal_wait_id"]
    assert payload_codec.decode(Blob(applied["payload"]["value"])) == "yes"
    assert payload_codec.decode(Blob(applied["payload"]["arguments"])) == ["yes"]
    (await tenant.complete(task, {"type": "complete_workflow", "result": None})).expect(200)
    assert (await tenant.get("/api/workflows/order-1")).json["status"] == "completed"


async def test_signals_that_came_before_the_wait_are_taken_in_order(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    await end(tenant, {"type": "start_timer", "delay_seconds": 3600})
    for value in (1, 2):
        await signal(tenant, "approval", value)
    task = None
    (await tenant.post("/api/workflows/order-1/update/go", {})).expect(202)
    task = (await tenant.poll())["task"]
    update = {"type": "complete_update", "update_id": task["workflow_update_id"], "result": None}
    (await tenant.complete(task, update)).expect(200)
    taken: list[object] = []
    while (task := (await tenant.poll())["task"]) is not None and len(taken) < 3:
        taken = [
            payload_codec.decode(Blob(each["payload"]["value"]))
            for each in task["history_events"]
            if each["event_type"] == "SignalApplied"
        ]
        (await tenant.complete(task, WAIT)).expect(200)
    assert taken == [1, 2]
    await signal(tenant, "approval", 3)
    applied = [each for each in await history(tenant, "order-1") if each["event_type"] == "SignalApplied"]
    assert [each["derived"] for each in applied] == [False, False, False]
    assert [payload_codec.decode(Blob(each["payload"]["value"])) for each in applied] == [1, 2, 3]


async def test_a_signal_that_comes_while_the_wait_is_being_opened_ends_it(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    await signal(tenant, "approval", "early")
    (await tenant.complete(task, WAIT)).expect(200)
    task = (await tenant.poll())["task"]
    assert kinds(task["history_events"]) == [
        "WorkflowStarted", "SignalWaitOpened", "SignalReceived", "SignalApplied",
    ]  # fmt: skip


async def test_a_wait_that_is_opened_again_by_the_same_code_stays_open(tenant: Tenant) -> None:
    await waiting(tenant)
    (await tenant.post("/api/workflows/order-1/update/go", {})).expect(202)
    task = (await tenant.poll())["task"]
    update = {"type": "complete_update", "update_id": task["workflow_update_id"], "result": None}
    (await tenant.complete(task, update)).expect(200)
    await end(tenant, WAIT)
    assert kinds(await history(tenant, "order-1")).count("SignalWaitOpened") == 1
    await signal(tenant, "approval")
    assert "SignalApplied" in kinds((await tenant.poll())["task"]["history_events"])


async def test_the_timer_of_a_wait_is_cancelled_when_its_signal_came(tenant: Tenant) -> None:
    await waiting(tenant, timeout_seconds=3600)
    timer = of_type(await history(tenant, "order-1"), "TimerScheduled")["payload"]
    assert (timer["timer_kind"], timer["signal_name"]) == ("signal_timeout", "approval")
    assert (await tenant.get("/api/workflows/order-1")).json["open_timers"] == 1
    await signal(tenant, "approval")
    await end(tenant, {"type": "start_timer", "delay_seconds": 60})
    events = await history(tenant, "order-1")
    assert kinds(events)[-2:] == ["TimerCancelled", "TimerScheduled"]
    assert (await tenant.get("/api/workflows/order-1")).json["open_timers"] == 1


async def test_a_wait_for_a_signal_is_explained(tenant: Tenant) -> None:
    await waiting(tenant)
    why = (await tenant.get("/api/workflows/order-1/why")).expect(200).json
    assert "waits for the signal approval" in str(why)


async def test_a_signal_wait_in_a_group_is_refused_with_a_reason(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    path = [
        {
            "parallel_group_id": "parallel-calls:1:1",
            "parallel_group_kind": "mixed",
            "parallel_group_base_sequence": 1,
            "parallel_group_size": 1,
            "parallel_group_index": 0,
        }
    ]
    reply = await tenant.complete(task, WAIT | {"parallel_group_path": path})
    reply.expect(422, "validation_failed")
    assert "awaited alone" in str(reply.json["errors"])
