"""Leases: renewed, lost, granted again, and reported on too late. Leases last two seconds here."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

import pytest

from tests.acceptance.cluster import Cluster, Json
from tests.support.lag import Lag

LEASE = timedelta(seconds=2)
SETTINGS = {"DW_WORKFLOW_TASK_TIMEOUT": "2", "DW_ACTIVITY_TASK_TIMEOUT": "2"}
KINDS = ("workflow", "activity")
GRANTED_AGAIN_WITHIN = timedelta(seconds=2)
"""Guarantee: a lease that is not renewed is granted again within its duration plus this, by the server's clock."""


def expiry(task: Json) -> datetime:
    return datetime.fromisoformat(task["lease_expires_at"])


def granted_again_after(lost: Json, again: Json) -> timedelta:
    """From the end of one lease to the beginning of the next, as the servers wrote them down."""
    return expiry(again) - LEASE - expiry(lost)


async def started(scene: Cluster, kind: str) -> None:
    if kind == "workflow":
        (await scene.start("a-workflow")).expect(201)
    else:
        (await scene.start_activity("an-activity")).expect(201)


def attempt(task: Json) -> int:
    return int(task["attempt_number"] if "attempt_number" in task else task["workflow_task_attempt"])


async def test_a_lease_that_nobody_renews_is_granted_again_in_time(scene: Cluster) -> None:
    lazy, keen = await scene.worker("lazy"), await scene.worker("keen")

    async def lost_and_granted_again(kind: str) -> None:
        await started(scene, kind)
        lost = await lazy.take(kind)
        again = await keen.take(kind)
        assert again["task_id"] == lost["task_id"]
        assert attempt(again) == attempt(lost) + 1
        assert again["lease_owner"] == "keen"
        assert timedelta() <= granted_again_after(lost, again) <= GRANTED_AGAIN_WITHIN + lag.so_far
        (await keen.finish(again, "done")).expect(200)

    with Lag() as lag:
        await asyncio.gather(*map(lost_and_granted_again, KINDS))


async def test_a_lease_that_is_renewed_is_not_granted_again(scene: Cluster) -> None:
    holder, rival = await scene.worker("holder"), await scene.worker("rival")

    async def renewed(kind: str) -> None:
        await started(scene, kind)
        while not await is_renewed_throughout(kind):
            pass  # this machine was too busy to renew it in time

    async def is_renewed_throughout(kind: str) -> bool:
        """Whether every renewal came in time; fails if one of them was refused all the same."""
        sent_at = time.monotonic()
        task = await holder.take(kind)
        waiting = asyncio.create_task(rival.poll(kind, timeout=4))
        beat: Json = task
        while not waiting.done():
            sent_before, sent_at = sent_at, time.monotonic()
            reply = await holder.report(task, "heartbeat")
            if time.monotonic() - sent_before >= LEASE.total_seconds():
                await waiting
                return False
            beat = reply.expect(200).body
            await asyncio.wait([waiting], timeout=0.5)
        if time.monotonic() - sent_at >= LEASE.total_seconds():
            return False
        assert (await waiting)["poll_status"] == "empty"
        assert expiry(beat) - expiry(task) > LEASE
        (await holder.finish(task)).expect(200)
        return True

    await asyncio.gather(*map(renewed, KINDS))


def late_reports(task: Json) -> list[tuple[str, Json]]:
    if "activity_attempt_id" in task:
        return [("complete", {"result": 1}), ("fail", {"failure": {"message": "late"}})]
    return [
        ("complete", {"commands": [{"type": "complete_workflow"}]}),
        ("fail", {"failure": {"message": "late"}}),
        ("heartbeat", {}),
        ("history", {"next_history_page_token": "MA=="}),
    ]


async def test_a_late_report_changes_nothing_and_says_so(scene: Cluster) -> None:
    lazy, keen = await scene.worker("lazy"), await scene.worker("keen")
    probe = await scene.worker("probe", "elsewhere")

    async def late(kind: str, waits_again: set[str], held_by_another: str) -> None:
        await started(scene, kind)
        lost = await lazy.take(kind)
        (await probe.poll(kind, timeout=3)).expect(200)
        for action, fields in late_reports(lost):
            refused = await lazy.report(lost, action, **fields)
            assert refused.status == 409
            assert refused.reason in waits_again
        again = await keen.take(kind)
        for action, fields in late_reports(lost):
            refused = (await lazy.report(lost, action, **fields)).expect(409, held_by_another)
            assert refused["task_id"] == lost["task_id"]
        (await keen.finish(again, "by the rightful holder")).expect(200)

    await asyncio.gather(
        late("workflow", {"task_not_leased", "lease_expired"}, "lease_owner_mismatch"),
        late("activity", {"stale_attempt", "lease_expired"}, "stale_attempt"),
    )
    assert (await scene.describe("a-workflow"))["output"] == "by the rightful holder"
    result = (await scene.get("/api/activities/an-activity/result")).ok()["result"]
    assert result == "by the rightful holder"


async def test_a_late_heartbeat_of_an_activity_says_that_it_may_not_go_on(scene: Cluster) -> None:
    lazy, keen = await scene.worker("lazy"), await scene.worker("keen")
    await started(scene, "activity")
    lost = await lazy.take("activity")
    again = await keen.take("activity")
    beat = (await lazy.report(lost, "heartbeat")).expect(200, "stale_attempt")
    assert (beat["can_continue"], beat["heartbeat_recorded"], beat["cancel_requested"]) == (False,) * 3
    (await keen.finish(again)).expect(200)


async def test_an_old_attempt_of_the_same_worker_is_told_the_current_one(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    await started(scene, "workflow")
    lost = await worker.take()
    again = await worker.take()
    refused = (await worker.finish(lost)).expect(409, "workflow_task_attempt_mismatch")
    assert (refused["current_attempt"], refused["workflow_task_attempt"]) == (2, 1)
    (await worker.finish(again)).expect(200)


async def test_a_report_for_a_lease_of_another_worker_is_refused(scene: Cluster) -> None:
    holder, thief = await scene.worker("holder"), await scene.worker("thief")
    for kind in KINDS:
        await started(scene, kind)
        task = await holder.take(kind)
        refused = (await thief.finish(task)).expect(409, "lease_owner_mismatch")
        assert refused["lease_owner"] == "holder"
        (await holder.finish(task)).expect(200)


async def test_an_attempt_that_never_was_is_not_found(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start_activity("a-1")).expect(201)
    task = await worker.take("activity")
    for invented in ("9.nothing", "nonsense", task["activity_attempt_id"] + "x"):
        forged = task | {"activity_attempt_id": invented}
        for action, fields in [*late_reports(task), ("heartbeat", {})]:
            (await worker.report(forged, action, **fields)).expect(404, "attempt_not_found")
    (await worker.finish(task)).expect(200)
    for kind in KINDS:
        nothing = task | {"task_id": "no-such-task"}
        if kind == "workflow":
            nothing = {"task_id": "no-such-task", "workflow_task_attempt": 1}
        (await worker.finish(nothing)).expect(404, "task_not_found")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_repeated_report_gets_the_same_receipt(scene: Cluster, kind: str) -> None:
    worker = await scene.worker("w-1")
    await started(scene, kind)
    task = await worker.take(kind)
    first = (await worker.finish(task, "once")).expect(200)
    for _ in range(3):
        again = (await worker.finish(task, "once")).expect(200)
        assert again["already_accepted"] is True
        for field in ("task_id", "outcome", "recorded", "reason"):
            assert again[field] == first[field]
    other = (await worker.finish(task, "twice")).expect(409, "completion_conflict")
    assert other["accepted_outcome"] == "completed"


async def test_a_repeated_report_that_scheduled_work_schedules_it_once(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    await started(scene, "workflow")
    task = await worker.take()
    command = {"type": "schedule_activity", "activity_type": "charge"}
    replies = await asyncio.gather(*(worker.decide(task, command) for _ in range(5)))
    assert [reply.status for reply in replies] == [200] * 5
    assert sum(not reply["already_accepted"] for reply in replies) == 1
    assert (await scene.event_types("a-workflow")).count("ActivityScheduled") == 1
    batch = (await worker.poll("activity", max_tasks=10)).expect(200)
    assert len(batch["tasks"]) == 1


async def test_a_batch_of_reports_has_an_outcome_for_each_item(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    for number in range(3):
        (await scene.start(f"order-{number}")).expect(201)
        (await scene.start_activity(f"charge-{number}")).expect(201)
    for kind, done in (
        ("workflow", {"commands": [{"type": "complete_workflow"}]}),
        ("activity", {"result": 1}),
    ):
        tasks = (await worker.poll(kind, max_tasks=3)).expect(200)["tasks"]
        items: list[Json] = [
            {"task_id": tasks[0]["task_id"], **worker.lease(tasks[0]), **done},
            {
                "task_id": tasks[1]["task_id"],
                "action": "fail",
                **worker.lease(tasks[1]),
                "failure": {"message": "no"},
            },
            {"task_id": "no-such-task", **worker.lease(tasks[2]), **done},
            {"task_id": tasks[2]["task_id"], **worker.lease(tasks[2]), "lease_owner": "thief", **done},
            {"task_id": tasks[2]["task_id"]},
            {"task_id": tasks[2]["task_id"], "action": "explode"},
        ]
        path = f"/api/worker/{kind}-tasks/batch"
        batch = (await scene.post(path, {"items": items}, role="worker")).expect(200)
        assert (batch["accepted"], batch["refused"]) == (2, 4)
        assert [
            (item["http_status"], item.get("outcome"), item.get("reason")) for item in batch["items"][:2]
        ] == [
            (200, "completed", None),
            (200, "failed", None),
        ]
        assert [(item["http_status"], item["reason"]) for item in batch["items"][2:]] == [
            (404, "task_not_found"),
            (409, "lease_owner_mismatch"),
            (422, "validation_failed"),
            (422, "validation_failed"),
        ]
        again = (await scene.post(path, {"items": items[:1]}, role="worker")).expect(200)["items"][0]
        assert (again["http_status"], again["already_accepted"]) == (200, True)


async def test_what_a_worker_hands_back_is_given_to_another_at_once_and_costs_no_attempt(
    scene: Cluster,
) -> None:
    worker, other = await scene.worker("w-1"), await scene.worker("w-2")
    (await scene.start("order-1")).expect(201)
    (await scene.start_activity("charge-1")).expect(201)
    for kind, number in (("workflow", "workflow_task_attempt"), ("activity", "attempt_number")):
        task = await worker.take(kind)
        item = {"task_id": task["task_id"], "action": "hand_back", **worker.lease(task)}
        path = f"/api/worker/{kind}-tasks/batch"
        for repeated in (False, True):
            answer = (await scene.post(path, {"items": [item]}, role="worker")).expect(200)
            [told] = answer["items"]
            assert (told["http_status"], told["outcome"], told["next_task_id"] or task["task_id"]) == (
                200,
                "handed_back",
                task["task_id"],
            )
            assert told["already_accepted"] is repeated
        assert answer["server_capabilities"]["task_batches"]["hand_back"] is True
        again = await other.take(kind)
        assert again["task_id"] == task["task_id"]
        assert again[number] == (1 if kind == "activity" else 2)
        thief = {"items": [{**item, **other.lease(again), "lease_owner": "thief"}]}
        [refused] = (await scene.post(path, thief, role="worker")).expect(200)["items"]
        assert refused["reason"] == "lease_owner_mismatch"


async def test_a_poll_repeated_after_its_lease_was_lost_polls_anew(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    await started(scene, "workflow")
    await worker.take(poll_request_id="p-1")
    again = await worker.take(poll_request_id="p-2")
    assert again["workflow_task_attempt"] == 2
    assert (await worker.poll(poll_request_id="p-1")).expect(200)["poll_status"] == "empty"
