"""A failed run is redriven: a new run reuses what the failed one had completed."""

from __future__ import annotations

from tests.server.client import Reply
from tests.server.contract.conftest import Body, Tenant

A: Body = {"type": "schedule_activity", "activity_type": "reserve", "arguments": []}
B: Body = {"type": "schedule_activity", "activity_type": "charge", "arguments": []}
FAILED: Body = {"type": "fail_workflow", "message": "no card"}


async def report(tenant: Tenant, verb: str, **outcome: object) -> None:
    task = (await tenant.poll("activity"))["task"]
    body = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": "w-1"} | outcome
    (await tenant.work(f"activity-tasks/{task['task_id']}/{verb}", body)).expect(200)


async def fail_at_second_step(tenant: Tenant, *first: Body) -> str:
    """A run that failed because its second activity did."""
    await tenant.register()
    run_id: str = (await tenant.start("a"))["run_id"]
    for commands in ([*first, A], [B]):
        (await tenant.complete((await tenant.poll())["task"], *commands)).expect(200)
        if commands == [B]:
            await report(tenant, "fail", failure={"message": "no card", "non_retryable": True})
        else:
            await report(tenant, "complete", result="reserved")
    (await tenant.complete((await tenant.poll())["task"], FAILED)).expect(200)
    return run_id


async def redrive(tenant: Tenant, run_id: str, body: object = None) -> Reply:
    return await tenant.post(f"/api/workflows/a/runs/{run_id}/redrive", body or {})


def types(task: Body) -> list[str]:
    return [event["event_type"] for event in task["history_events"]]


async def test_a_redriven_run_begins_behind_the_last_step_that_succeeded(tenant: Tenant) -> None:
    failed = await fail_at_second_step(tenant, {"type": "record_side_effect", "result": 7})
    answer = (await redrive(tenant, failed)).expect(200).json
    assert (answer["outcome"], answer["command_status"]) == ("redriven", "accepted")
    assert (answer["redriven_run_id"], answer["reused_event_count"]) == (failed, 3)
    task = (await tenant.poll())["task"]
    assert task["run_id"] == answer["run_id"] != failed
    reused = ["WorkflowStarted", "SideEffectRecorded", "ActivityScheduled", "ActivityCompleted"]
    assert types(task) == reused
    assert [event["sequence"] for event in task["history_events"]] == [1, 2, 3, 4]
    (await tenant.complete(task, B)).expect(200)
    await report(tenant, "complete", result="charged")
    task = (await tenant.poll())["task"]
    assert types(task)[4:] == ["ActivityScheduled", "ActivityCompleted"]
    assert task["history_events"][4]["payload"]["sequence"] == 3
    (await tenant.complete(task, {"type": "complete_workflow", "result": "done"})).expect(200)
    shown = (await tenant.get("/api/workflows/a")).expect(200).json
    assert (shown["status"], shown["output"], shown["run_number"]) == ("completed", "done", 2)
    old = (await tenant.get(f"/api/workflows/a/runs/{failed}")).expect(200).json
    assert old["status"] == "failed"


async def test_steps_that_ran_beside_the_failed_one_are_repeated_with_it(tenant: Tenant) -> None:
    await tenant.register()
    failed = (await tenant.start("a"))["run_id"]
    (await tenant.complete((await tenant.poll())["task"], A, B)).expect(200)
    await report(tenant, "complete", result="reserved")
    await report(tenant, "fail", failure={"message": "no card", "non_retryable": True})
    (await tenant.complete((await tenant.poll())["task"], FAILED)).expect(200)
    (await redrive(tenant, failed)).expect(200)
    assert types((await tenant.poll())["task"]) == ["WorkflowStarted"]


async def test_a_run_whose_own_code_failed_keeps_all_its_results(tenant: Tenant) -> None:
    await tenant.register()
    failed = (await tenant.start("a"))["run_id"]
    (await tenant.complete((await tenant.poll())["task"], A)).expect(200)
    await report(tenant, "complete", result="reserved")
    (await tenant.complete((await tenant.poll())["task"], FAILED)).expect(200)
    (await redrive(tenant, failed)).expect(200)
    assert types((await tenant.poll())["task"]) == [
        "WorkflowStarted",
        "ActivityScheduled",
        "ActivityCompleted",
    ]


async def test_a_signal_that_came_after_the_reused_part_is_not_lost(tenant: Tenant) -> None:
    await tenant.register()
    failed = (await tenant.start("a"))["run_id"]
    (await tenant.complete((await tenant.poll())["task"], A)).expect(200)
    (await tenant.post("/api/workflows/a/signal/hurry", {"input": [1]})).expect(202)
    await report(tenant, "fail", failure={"message": "no", "non_retryable": True})
    (await tenant.complete((await tenant.poll())["task"], FAILED)).expect(200)
    (await redrive(tenant, failed)).expect(200)
    task = (await tenant.poll())["task"]
    (await tenant.complete(task, A)).expect(200)
    run = (await tenant.get("/api/workflows/a")).json["run_id"]
    history = (await tenant.get(f"/api/workflows/a/runs/{run}/history")).expect(200).json["events"]
    assert [event["event_type"] for event in history].count("SignalReceived") == 1


async def test_a_redrive_sent_again_under_its_request_id_is_the_same(tenant: Tenant) -> None:
    failed = await fail_at_second_step(tenant)
    first = (await redrive(tenant, failed, {"request_id": "r"})).expect(200).json
    again = (await redrive(tenant, failed, {"request_id": "r"})).expect(200).json
    assert again["run_id"] == first["run_id"]
    (await redrive(tenant, failed)).refused(409, "historical_run_command_rejected")


async def test_the_current_run_is_redriven_if_none_is_named(tenant: Tenant) -> None:
    failed = await fail_at_second_step(tenant)
    answer = (await tenant.post("/api/workflows/a/redrive", [])).expect(200).json
    assert answer["redriven_run_id"] == failed


async def test_only_the_failed_current_run_is_redriven(tenant: Tenant) -> None:
    run_id = (await tenant.start("a"))["run_id"]
    (await redrive(tenant, run_id)).refused(409, "run_not_redrivable")
    (await tenant.post("/api/workflows/a/cancel", [])).expect(200)
    (await redrive(tenant, run_id, [])).refused(409, "run_not_redrivable")
    (await redrive(tenant, "nowhere")).refused(404, "run_not_found")
