"""Operators pause, resume and reset one activity, change its options, and run it now, on each store."""

from __future__ import annotations

from tests.server.contract.conftest import Body, Tenant

RETRIED: Body = {"max_attempts": 2, "backoff_seconds": [3600]}


async def scheduled(tenant: Tenant) -> str:
    await tenant.register()
    run_id: str = (await tenant.start("a"))["run_id"]
    command = {
        "type": "schedule_activity",
        "activity_type": "charge",
        "arguments": [],
        "retry_policy": RETRIED,
    }
    (await tenant.complete((await tenant.poll())["task"], command)).expect(200)
    return f"{run_id}-a1"


async def act(tenant: Tenant, activity_id: str, verb: str, **body: object) -> str:
    answer = (await tenant.post(f"/api/activities/{activity_id}/{verb}", body)).expect(200).json
    return str(answer["outcome"])


async def report(tenant: Tenant, task: Body, verb: str, **outcome: object) -> Body:
    body = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": "w-1"} | outcome
    answer: Body = (await tenant.work(f"activity-tasks/{task['task_id']}/{verb}", body)).expect(200).json
    return answer


async def test_a_paused_activity_waits_shows_it_and_goes_on_when_resumed(tenant: Tenant) -> None:
    activity_id = await scheduled(tenant)
    running = (await tenant.poll("activity"))["task"]
    assert await act(tenant, activity_id, "pause", reason="card is checked") == "paused"
    assert (await report(tenant, running, "heartbeat"))["activity_paused"] is True
    await report(tenant, running, "fail", failure={"message": "no"})
    assert await act(tenant, activity_id, "run-now") == "due_now"
    assert (await tenant.poll("activity"))["task"] is None
    [pending] = (await tenant.get("/api/workflows/a")).json["pending_activities"]
    assert pending["pause"]["reason"] == "card is checked"
    why = (await tenant.get(f"/api/activities/{activity_id}/why")).expect(200).json
    assert "the activity was paused" in str(why)
    assert await act(tenant, activity_id, "resume") == "resumed"
    await report(tenant, (await tenant.poll("activity"))["task"], "complete", result=1)
    events = (await tenant.get("/api/workflows/a/history?derived=true")).json["events"]
    kinds = {each["event_type"] for each in events if each["derived"]}
    assert {"ActivityPauseRequested", "ActivityRunRequested", "ActivityResumeRequested"} <= kinds
    refused = await tenant.post(f"/api/activities/{activity_id}/pause", {})
    refused.refused(409, "activity_not_active")


async def test_attempts_come_back_and_options_change(tenant: Tenant) -> None:
    activity_id = await scheduled(tenant)
    await report(tenant, (await tenant.poll("activity"))["task"], "fail", failure={"message": "no"})
    assert await act(tenant, activity_id, "reset") == "reset"
    options = {"task_queue": "other", "heartbeat_timeout_ms": 1000, "start_to_close_timeout_ms": 5000}
    assert await act(tenant, activity_id, "options", **options) == "updated"
    assert await act(tenant, activity_id, "run-now") == "due_now"
    assert (await tenant.poll("activity"))["task"] is None
    await tenant.register(worker_id="w-2", task_queue="other")
    task = (await tenant.poll("activity", "other", "w-2"))["task"]
    assert (task["attempt_number"], task["task_queue"]) == (1, "other")


async def test_options_that_do_not_fit_are_refused_and_change_nothing(tenant: Tenant) -> None:
    activity_id = await scheduled(tenant)
    path = f"/api/activities/{activity_id}/options"
    (await tenant.post(path, {})).refused_fields("task_queue")
    wrong = {"heartbeat_timeout_ms": 9000, "start_to_close_timeout_ms": 5000}
    (await tenant.post(path, wrong)).refused_fields("heartbeat_timeout")
    (await tenant.post(path, {"priority": 1})).refused_fields("priority")
    (await tenant.post("/api/activities/nothing/options", {"task_queue": "x"})).refused(
        404, "activity_not_found"
    )
    await tenant.poll("activity")
    (await tenant.post(path, {"task_queue": "other"})).refused(409, "activity_running")
    (await tenant.post(f"/api/activities/{activity_id}/reset", {})).refused(409, "activity_running")
