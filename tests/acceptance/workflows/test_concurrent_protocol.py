"""Concurrent runs over HTTP: what a worker of the asyncio SDK sends and receives."""

from __future__ import annotations

from typing import Any

from tests.acceptance.cluster import Cluster, Hand, Json, until, value

CHARGE: Json = {"type": "schedule_activity", "activity_type": "greet", "arguments": []}
COMPLETE: Json = {"type": "complete_workflow", "result": "done"}


async def step(worker: Hand, task: Json, *commands: Json, **more: Any) -> Json:
    reply = await worker.report(task, "complete", commands=list(commands), concurrent=True, **more)
    return reply.expect(200).body


def types(task: Json) -> list[str]:
    return [event["event_type"] for event in task["history_events"]]


async def test_many_steps_are_open_at_once_and_each_end_is_an_activation(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1", capabilities=["concurrent_steps"])
    await step(
        worker,
        await worker.take(),
        CHARGE | {"summary": "the first", "start_to_close_timeout_ms": 1_500},
        {"type": "start_timer", "delay_seconds": 1, "delay_ms": 20},
    )
    task = await worker.take()
    assert types(task) == [
        "WorkflowStarted",
        "WorkflowTaskCompleted",
        "ActivityScheduled",
        "TimerScheduled",
        "TimerFired",
    ]
    scheduled = task["history_events"][2]["payload"]
    assert (scheduled["summary"], scheduled["activity"]["retry_policy"]["start_to_close_timeout_ms"]) == (
        "the first",
        1_500,
    )
    await step(worker, task)
    (await worker.finish(await worker.take("activity"), "hello")).expect(200)
    task = await worker.take()
    assert task["history_events"][5]["payload"] == {"seen_through": 5}
    await step(worker, task, COMPLETE)
    assert (await scene.describe("order-1"))["status"] == "completed"


async def test_a_worker_that_keeps_a_run_is_sent_what_is_new_and_may_ask_for_all(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1")
    await step(worker, await worker.take(), CHARGE, cached=True)
    (await scene.post("/api/workflows/order-1/signal/go", {"input": []})).ok()
    task = await worker.take()
    assert (types(task), task["history_from_sequence"]) == (["SignalReceived"], 4)
    assert task["next_history_page_token"] is None
    page = (await worker.report(task, "history", next_history_page_token="MA==")).expect(200)
    assert [event["sequence"] for event in page["history_events"]] == [1, 2, 3, 4]
    await step(worker, task)
    (await scene.post("/api/workflows/order-1/signal/go", {"input": []})).ok()
    assert "history_from_sequence" not in await worker.take()


async def test_the_code_is_asked_to_end_and_does(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1")
    await step(worker, await worker.take(), CHARGE)
    activity = await worker.take("activity")
    asked = (await scene.post("/api/workflows/order-1/cancel", {"reason": "enough"})).expect(200)
    assert (asked["outcome"], asked["status"], asked["command_status"]) == (
        "cancel_requested",
        "waiting",
        "accepted",
    )
    again = (await scene.post("/api/workflows/order-1/cancel", {})).expect(200)
    assert again["outcome"] == "cancel_requested"
    task = await worker.take()
    assert types(task)[-1] == "CancelRequested"
    await step(worker, task, {"type": "cancel_step", "step_sequence": 1})
    beat = (await worker.report(activity, "heartbeat")).ok()
    assert (beat["cancel_requested"], beat["can_continue"]) == (True, False)
    (await scene.post("/api/workflows/order-1/signal/go", {"input": []})).ok()
    await step(worker, await worker.take(), {"type": "cancel_workflow", "reason": "enough"})
    closed = await scene.describe("order-1")
    assert (closed["status"], closed["closed_reason"]) == ("cancelled", "cancelled")


async def test_code_that_does_not_end_in_the_time_it_was_given_is_closed(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1")
    await step(worker, await worker.take(), CHARGE)
    path = "/api/workflows/order-1/request-cancellation"
    asked = (await scene.post(path, {"cleanup_timeout_seconds": 1})).expect(200)
    task = await worker.take()
    assert (types(task)[-1], "cancellation_request" in task) == ("CancelRequested", False)

    async def closed() -> bool:
        return (await scene.describe("order-1"))["status"] == "cancelled"

    await until(closed)
    last = (await scene.events("order-1"))[-1]
    deadline = asked["cancellation_request"]["cleanup_deadline_at"]
    assert (last["event_type"], last["payload"]["cleanup_deadline_at"]) == ("WorkflowCancelled", deadline)


async def test_runs_signal_and_cancel_each_other_and_learn_what_became_of_it(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-2")).expect(201)
    await step(worker, await worker.take())
    (await scene.start("order-1")).expect(201)
    signal = {"type": "signal_external_workflow", "signal_name": "go", "arguments": ["now"]}
    await step(
        worker,
        await worker.take(),
        signal | {"workflow_id": "order-2"},
        signal | {"workflow_id": "nobody"},
        {"type": "cancel_external_workflow", "workflow_id": "order-2"},
    )

    async def answered() -> bool:
        found = await scene.event_types("order-1")
        return sum(kind in ("ExternalRequestDelivered", "ExternalRequestFailed") for kind in found) == 3

    await until(answered)
    events = await scene.events("order-1")
    failed = [each["payload"] for each in events if each["type"] == "ExternalRequestFailed"]
    assert [(each["sequence"], each["exception_type"]) for each in failed] == [(2, "WorkflowNotFound")]
    told = await scene.events("order-2")
    assert sorted(each["type"] for each in told[-2:]) == ["CancelRequested", "SignalReceived"]
    [heard] = [each["payload"] for each in told if each["type"] == "SignalReceived"]
    assert value({"codec": "avro", "blob": heard["arguments"]}) == ["now"]


async def test_an_update_is_heard_and_answered_in_plain_tasks(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1")
    await step(worker, await worker.take())
    asked = (await scene.post("/api/workflows/order-1/update/approve", {"wait_for": "accepted"})).expect(202)
    task = await worker.take()
    assert (types(task)[-1], task["workflow_update_id"]) == ("UpdateAccepted", None)
    await step(worker, task, {"type": "complete_update", "update_id": asked["update_id"], "result": 7})
    assert (await scene.event_types("order-1"))[-2:] == ["WorkflowTaskCompleted", "UpdateCompleted"]


async def test_commands_of_the_other_manner_are_refused_by_name(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1")
    task = await worker.take()
    refused = (await worker.decide(task, {"type": "cancel_step", "step_sequence": 1})).expect(
        422, "validation_failed"
    )
    assert "commands.0.type" in refused["errors"]
    (await worker.report(task, "complete", commands=[])).expect(422, "validation_failed")
    wait = {"type": "open_condition_wait"}
    refused = (await worker.report(task, "complete", commands=[wait], concurrent=True)).expect(
        422, "validation_failed"
    )
    assert "commands.0.type" in refused["errors"]
    elsewhere = {"type": "cancel_external_workflow", "workflow_id": "x", "namespace": "another"}
    refused = (await worker.report(task, "complete", commands=[elsewhere], concurrent=True)).expect(
        422, "validation_failed"
    )
    assert "commands.0.namespace" in refused["errors"]


async def test_an_activity_learns_what_the_attempt_before_it_told_and_its_failure_keeps_its_cause(
    scene: Cluster,
) -> None:
    worker = await scene.worker("w-1")
    policy = {"max_attempts": 2_147_483_647, "backoff_ms": [60_000]}
    (await scene.start_activity("charge-1", retry_policy=policy)).expect(201)
    first = await worker.take("activity")
    assert (first["heartbeat_details"], first["workflow_type"]) == (None, "penstock.activity")
    assert first["scheduled_at"] <= first["started_at"]
    (await worker.report(first, "heartbeat", details={"at": 3})).ok()
    failure = {"message": "boom", "type": "Broken", "next_retry_delay_seconds": 0}
    (await worker.report(first, "fail", failure=failure)).expect(200)
    second = await worker.take("activity")
    assert (second["heartbeat_details"], second["attempt_number"]) == ({"at": 3}, 2)
    failure = {"message": "boom", "non_retryable": True, "cause": {"message": "why", "type": "Deep"}}
    (await worker.report(second, "fail", failure=failure)).expect(200)
    ended = (await scene.get("/api/activities/charge-1/result?wait_seconds=5")).expect(200)
    assert ended["failure"]["exception"]["cause"] == {"message": "why", "type": "Deep"}


async def test_a_standalone_activity_starts_later_or_expires(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start_activity("later-1", start_delay_ms=50)).expect(201)
    late = "2020-01-01T00:00:00Z"
    (await scene.start_activity("late-1", "sleep", task_queue="nobody", good_until=late)).expect(201)
    waiting = (await scene.get("/api/activities/later-1/result")).expect(200)
    assert (waiting["is_terminal"], waiting["wait_timed_out"]) == (False, True)
    (await worker.finish(await worker.take("activity"), "hello")).expect(200)
    ended = (await scene.get("/api/activities/later-1/result?wait_seconds=30")).expect(200)
    assert (ended["result"], ended["wait_timed_out"]) == ("hello", False)
    expired = (await scene.get("/api/activities/late-1/result?wait_seconds=30")).expect(200)
    assert (expired["closed_reason"], expired["failure"]["timeout_kind"]) == (
        "timed_out",
        "schedule_to_start",
    )
    (await scene.start_activity("odd-1", good_until="tomorrow")).expect(422, "validation_failed")
