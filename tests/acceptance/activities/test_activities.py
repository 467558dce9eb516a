"""Activities: attempts, backoff, the four timeouts, and standalone activities."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

import pytest

from tests.acceptance.cluster import Cluster, Json, until, value


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def run_of(scene: Cluster, workflow_id: str, event_type: str) -> Json:
    """The payload of the newest event of a type, once it is there."""

    async def there() -> bool:
        return event_type in await scene.event_types(workflow_id)

    await until(there)
    found = [event for event in await scene.events(workflow_id) if event["event_type"] == event_type]
    return dict(found[-1]["payload"])


# --- attempts ---


async def test_a_failed_attempt_is_followed_by_another_after_its_back_off(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    policy = {"max_attempts": 3, "backoff_seconds": [1, 0]}
    first = await worker.schedule("order-1", retry_policy=policy)
    assert first["retry_policy"]["max_attempts"] == 3
    reported_at = time.monotonic()
    failed = await worker.report(first, "fail", failure={"message": "try later", "type": "Busy"})
    failed.expect(200)
    assert (failed["outcome"], failed["next_task_id"]) == ("failed", first["task_id"])
    waits = await run_of(scene, "order-1", "ActivityRetryScheduled")
    assert (waits["retry_backoff_seconds"], waits["retry_after_attempt"]) == (1, 1)
    second = await worker.take("activity")
    assert time.monotonic() - reported_at > 0.99
    assert (second["attempt_number"], second["task_id"]) == (2, first["task_id"])
    assert second["activity_execution_id"] == first["activity_execution_id"]
    assert second["activity_attempt_id"] != first["activity_attempt_id"]
    (await worker.report(second, "fail", failure={"message": "again", "type": "Busy"})).expect(200)
    third = await worker.take("activity")
    (await worker.finish(third, "at last")).expect(200)
    task = await worker.take()
    done = [event for event in task["history_events"] if event["event_type"] == "ActivityCompleted"]
    assert value({"blob": done[0]["payload"]["result"]}) == "at last"
    assert (await scene.event_types("order-1")).count("ActivityRetryScheduled") == 2


@pytest.mark.parametrize(
    ("policy", "failure"),
    [
        (None, {"message": "no policy: one attempt"}),
        ({"max_attempts": 1}, {"message": "the only attempt"}),
        ({"max_attempts": 5}, {"message": "said so", "non_retryable": True}),
        ({"max_attempts": 5}, {"message": "said so otherwise", "retryable": False}),
        (
            {"max_attempts": 5, "non_retryable_error_types": ["Fatal"]},
            {"message": "by type", "type": "Fatal"},
        ),
        (
            {"max_attempts": 5, "non_retryable_error_types": ["Fatal"]},
            {"message": "by class", "class": "Fatal"},
        ),
    ],
)
async def test_a_failure_that_another_attempt_would_not_cure_is_final(
    scene: Cluster, policy: Json | None, failure: Json
) -> None:
    worker = await scene.worker("w-1")
    task = await worker.schedule("order-1", retry_policy=policy)
    (await worker.report(task, "fail", failure=failure)).expect(200)
    told = await run_of(scene, "order-1", "ActivityFailed")
    assert told["message"] == failure["message"]
    assert told["exception_type"] == failure.get("type")
    woken = await worker.take()
    assert woken["history_events"][-1]["event_type"] == "ActivityFailed"
    assert (await worker.poll("activity")).expect(200)["poll_status"] == "empty"


async def test_the_last_attempt_that_fails_ends_the_activity(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    task = await worker.schedule("order-1", retry_policy={"max_attempts": 2})
    (await worker.report(task, "fail", failure={"message": "one"})).expect(200)
    task = await worker.take("activity")
    (await worker.report(task, "fail", failure={"message": "two"})).expect(200)
    told = await run_of(scene, "order-1", "ActivityFailed")
    assert (told["message"], told["activity"]["attempt_count"]) == ("two", 2)


async def test_a_heartbeat_renews_and_keeps_its_details(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start_activity("charge-1", heartbeat_timeout_seconds=30)).expect(201)
    task = await worker.take("activity")
    beat = await worker.report(task, "heartbeat", details={"row": 7}, current=7, total=9, message="on it")
    beat.expect(200)
    assert (beat["can_continue"], beat["cancel_requested"], beat["heartbeat_recorded"]) == (True, False, True)
    assert moment(beat["lease_expires_at"]) >= moment(task["lease_expires_at"])
    shown = (await scene.get("/api/activities/charge-1")).ok()
    assert shown["last_heartbeat_at"] == beat["last_heartbeat_at"]


# --- the four clocks ---


async def test_an_activity_that_outlives_a_clock_has_timed_out(scene: Cluster) -> None:
    async def outlived(clock: str, leased: bool) -> None:
        name = f"{clock}-{leased}"
        worker = await scene.worker(name, name)
        (await scene.start(name, task_queue=name)).expect(201)
        command = {"type": "schedule_activity", "activity_type": "charge", f"{clock}_timeout": 1}
        (await worker.decide(await worker.take(), command)).expect(200)
        task = await worker.take("activity") if leased else None
        last = (await worker.take())["history_events"][-1]
        assert (last["event_type"], last["payload"]["timeout_kind"]) == ("ActivityTimedOut", clock)
        assert last["payload"]["failure_category"] == "timeout"
        if task is not None:
            (await worker.finish(task)).expect(409, "stale_attempt")
        else:
            assert (await worker.poll("activity")).expect(200)["poll_status"] == "empty"

    await asyncio.gather(
        outlived("schedule_to_start", leased=False),
        outlived("start_to_close", leased=True),
        outlived("schedule_to_close", leased=True),
        outlived("schedule_to_close", leased=False),
        outlived("heartbeat", leased=True),
    )


async def test_an_attempt_that_timed_out_is_retried_as_a_failed_one(scene: Cluster) -> None:
    async def retried(clock: str) -> None:
        worker = await scene.worker(clock, clock)
        policy = {"max_attempts": 2}
        timeout: Json = {f"{clock}_timeout": 1}
        first = await worker.schedule(clock, retry_policy=policy, **timeout)
        second = await worker.take("activity")
        assert (second["task_id"], second["attempt_number"]) == (first["task_id"], 2)
        (await worker.finish(first)).expect(409, "stale_attempt")
        (await worker.finish(second)).expect(200)

    await asyncio.gather(retried("start_to_close"), retried("heartbeat"))


async def test_heartbeats_keep_an_activity_alive_beyond_its_heartbeat_timeout(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    task = await worker.schedule("order-1", heartbeat_timeout=2)
    begun = moment((await worker.report(task, "heartbeat")).expect(200)["last_heartbeat_at"])

    async def beaten_long_enough() -> bool:
        beat = (await worker.report(task, "heartbeat")).expect(200)
        return moment(beat["last_heartbeat_at"]) - begun > timedelta(seconds=3)

    await until(beaten_long_enough)
    (await worker.finish(task)).expect(200)


# --- standing alone ---


async def test_a_standalone_activity_runs_from_start_to_result(scene: Cluster) -> None:
    started = await scene.start_activity("charge-1", "charge", input=[42], business_key="acme")
    started.expect(201)
    assert (started["activity_id"], started["activity_type"], started["status"]) == (
        "charge-1",
        "charge",
        "pending",
    )
    assert started["outcome"] == "started_new"
    pending = (await scene.get("/api/activities/charge-1/result")).expect(200)
    assert (pending["is_terminal"], pending["result"], pending["failure"]) == (False, None, None)
    worker = await scene.worker("w-1")
    task = await worker.take("activity")
    assert (task["workflow_id"], value(task["arguments"])) == ("charge-1", [42])
    assert (await scene.get("/api/activities/charge-1")).ok()["status"] == "running"
    (await worker.finish(task, {"paid": True})).expect(200)
    shown = (await scene.get("/api/activities/charge-1")).expect(200)
    assert (shown["status"], shown["activity_status"], shown["attempt_count"]) == (
        "completed",
        "completed",
        1,
    )
    assert value(shown["result"]) == {"paid": True}
    result = (await scene.get("/api/activities/charge-1/result")).expect(200)
    assert (result["is_terminal"], result["result"]) == (True, {"paid": True})
    assert (await worker.poll()).expect(200)["poll_status"] == "empty"


async def test_a_standalone_activity_that_fails_says_why(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    policy = {"max_attempts": 2, "backoff_seconds": [0]}
    (await scene.start_activity("charge-1", retry_policy=policy)).expect(201)
    for number in (1, 2):
        task = await worker.take("activity")
        assert task["attempt_number"] == number
        failure = {"message": "card declined", "type": "Declined"}
        (await worker.report(task, "fail", failure=failure)).expect(200)
    result = (await scene.get("/api/activities/charge-1/result")).expect(200)
    assert (result["status"], result["result"]) == ("failed", None)
    assert result["failure"]["message"] == "card declined"


async def test_a_standalone_activity_that_nobody_takes_times_out(scene: Cluster) -> None:
    async def untaken(clock: str) -> None:
        timeout: Json = {f"{clock}_timeout_seconds": 1}
        (await scene.start_activity(clock, **timeout)).expect(201)

        async def closed() -> bool:
            return bool((await scene.get(f"/api/activities/{clock}")).ok()["is_terminal"])

        await until(closed)
        shown = (await scene.get(f"/api/activities/{clock}")).ok()
        assert (shown["status"], shown["closed_reason"]) == ("failed", "timed_out")

    await asyncio.gather(untaken("schedule_to_start"), untaken("schedule_to_close"))


async def test_a_cancelled_activity_is_told_so_by_its_heartbeat(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start_activity("charge-1")).expect(201)
    task = await worker.take("activity")
    cancelled = await scene.post("/api/activities/charge-1/cancel", {"reason": "not needed"})
    assert cancelled.expect(200)["status"] == "cancelled"
    beat = (await worker.report(task, "heartbeat")).expect(200, "run_cancelled")
    assert (beat["cancel_requested"], beat["can_continue"]) == (True, False)
    (await worker.finish(task)).expect(409, "run_cancelled")
    (await scene.post("/api/activities/charge-1/cancel", {})).expect(409, "run_not_active")
    (await scene.post("/api/workflows/charge-1/cancel", {})).expect(409, "run_not_active")


async def test_an_activity_that_waits_can_be_cancelled_through_the_workflow_route(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start_activity("charge-1")).expect(201)
    (await scene.post("/api/workflows/charge-1/cancel", {})).expect(200)
    assert (await worker.poll("activity")).expect(200)["poll_status"] == "empty"
    assert (await scene.get("/api/activities/charge-1")).ok()["status"] == "cancelled"


async def test_the_id_of_a_workflow_names_no_activity_and_ends_nothing(scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    for path in ("/api/activities/order-1", "/api/activities/order-1/result"):
        (await scene.get(path)).expect(404, "activity_not_found")
    (await scene.post("/api/activities/order-1/cancel", {})).expect(404, "activity_not_found")
    assert (await scene.describe("order-1"))["is_terminal"] is False
    (await scene.start_activity("order-1")).expect(409, "instance_already_started")
    (await scene.start_activity("order-1", duplicate_policy="use-existing")).expect(
        409, "instance_already_started"
    )


async def test_a_second_start_of_an_activity_is_refused_or_returns_the_first(scene: Cluster) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = (await scene.start_activity("charge-1", more=key)).expect(201)
    (await scene.start_activity("charge-1")).expect(409, "instance_already_started")
    same = (await scene.start_activity("charge-1", duplicate_policy="use-existing")).expect(200)
    again = (await scene.start_activity("charge-1", more=key)).expect(200)
    assert again["deduplicated"] is True
    assert first["workflow_run_id"] == same["workflow_run_id"] == again["workflow_run_id"]


async def test_activities_are_listed_apart_from_workflows(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    for number in range(5):
        (await scene.start_activity(f"charge-{number}")).expect(201)
    (await worker.finish(await worker.take("activity"))).expect(200)
    first = (await scene.get("/api/activities?page_size=3")).expect(200)
    assert first["activity_count"] == 3
    token = first["next_page_token"]
    rest = (await scene.get(f"/api/activities?page_size=3&next_page_token={token}")).expect(200)
    assert rest["next_page_token"] is None
    listed = [each["activity_id"] for each in first["activities"] + rest["activities"]]
    assert listed == [f"charge-{number}" for number in reversed(range(5))]
    done = (await scene.get("/api/activities?status=completed")).ok()["activities"]
    assert [each["activity_id"] for each in done] == ["charge-0"]
    workflows = (await scene.get("/api/workflows")).ok()["workflows"]
    assert [each["workflow_id"] for each in workflows] == ["order-1"]


async def test_a_batch_of_activities_has_an_outcome_for_each_item(scene: Cluster) -> None:
    items = [
        {"activity_type": "charge", "task_queue": "q", "activity_id": "a-1"},
        {"activity_type": "charge", "task_queue": "q", "activity_id": "a-1"},
        {"activity_type": "charge"},
    ]
    batch = (await scene.post("/api/activities/batch", {"items": items})).expect(200)
    outcomes = sorted((item["http_status"], item.get("reason")) for item in batch["items"][:2])
    assert outcomes == [(201, None), (409, "instance_already_started")]
    assert (batch["items"][2]["http_status"], batch["items"][2]["reason"]) == (422, "validation_failed")
    assert (batch["accepted"], batch["refused"]) == (1, 2)


async def test_a_cancel_that_is_sent_again_under_its_id_is_answered_as_the_first_time(scene: Cluster) -> None:
    (await scene.start_activity("charge-1")).expect(201)
    path, body = "/api/activities/charge-1/cancel", {"reason": "no longer wanted", "request_id": "c-1"}
    first = (await scene.post(path, body)).expect(200)
    again = (await scene.post(path, body)).expect(200)
    assert (first["outcome"], again["outcome"]) == ("cancelled", "cancelled")
    (await scene.post(path, {"request_id": "c-2"})).expect(409, "run_not_active")
