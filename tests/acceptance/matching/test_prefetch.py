"""Prefetch: many tasks may be leased, but no more run than the caps allow, and none runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core.verify.journal import LeaseStarted
from tests.acceptance.cluster import Cluster, Hand, Json, Reply, until
from tests.acceptance.witness import LimitWitness, ObservedWorker
from tests.support.dispatch_log import standing

SETTINGS = {"DW_JOURNAL": "true"}
LONG_MS, SHORT_MS = 600_000, 300
REFUSED = {404, 409}
"""A lease that is no more: the attempt was superseded, or is not known any more."""


@pytest.fixture
def witness(scene: Cluster) -> LimitWitness:
    return LimitWitness(scene)


async def ahead(hand: Hand, most: int, lease_ms: int = LONG_MS, timeout: int = 30) -> list[Json]:
    """Tasks that are claimed, but not started."""
    return await hand.some(most, timeout, claim_lease_ms=lease_ms)


async def begin_all(hand: ObservedWorker, tasks: list[Json]) -> tuple[list[Json], list[Json]]:
    """Ask for every permit at once: those that may run, and those that may not yet."""
    replies = await asyncio.gather(*(hand.begin(task) for task in tasks))
    running = [task for task, reply in zip(tasks, replies, strict=True) if reply.ok()["started"]]
    return running, [task for task in tasks if task not in running]


async def test_more_may_be_claimed_than_run_but_no_more_run_than_the_cap(witness: LimitWitness):
    """Scenario 5."""
    await witness.limit(max_active_leases=5)
    await witness.cluster.queue_up(standing("", 40))
    hands = [await witness.worker(f"w{number}") for number in range(3)]
    claimed = [await ahead(hand, 12) for hand in hands]
    assert [len(tasks) for tasks in claimed] == [12, 12, 12]
    assert all(task["must_start"] for tasks in claimed for task in tasks)
    done = 0
    while any(claimed):
        begun = await asyncio.gather(
            *(begin_all(hand, tasks) for hand, tasks in zip(hands, claimed, strict=True))
        )
        running = [(hand, task) for hand, (tasks, _) in zip(hands, begun, strict=True) for task in tasks]
        assert len(running) == min(5, 36 - done)
        for hand, task in running:
            (await hand.finish(task)).expect(200)
        done += len(running)
        claimed = [rest for _, rest in begun]
    assert await witness.peak() == 5


@pytest.mark.parametrize("scope", ["namespace", "group"])
async def test_caps_that_queues_share_wait_for_the_start_too(witness: LimitWitness, scope: str):
    group = f"group:{witness.namespace}/g"
    await (
        witness.limit_namespace if scope == "namespace" else lambda **how: witness.limit_group("g", **how)
    )(max_active_leases=3)
    hands: list[ObservedWorker] = []
    for queue in ("a", "b"):
        await witness.limit(queue, dispatch_budget_group="g")
        await witness.cluster.queue_up(standing("", 6), queue)
        hands.append(await witness.worker(f"w-{queue}", queue, (group,)))
    claimed = [await ahead(hand, 6) for hand in hands]
    begun = await asyncio.gather(
        *(begin_all(hand, tasks) for hand, tasks in zip(hands, claimed, strict=True))
    )
    assert sum(len(running) for running, _ in begun) == 3
    hand, (_, waiting) = next((hand, each) for hand, each in zip(hands, begun, strict=True) if each[1])
    held = (await hand.begin(waiting[0])).ok()
    wanted = f"namespace:{witness.namespace}" if scope == "namespace" else group
    assert (held["started"], held["poll_status"], held["reason"], held["scope"]) == (
        False,
        "throttled",
        "scope_running",
        wanted,
    )
    assert await witness.peak("a", "b") == 3


async def test_a_worker_that_does_not_prefetch_and_one_that_does_share_one_cap(witness: LimitWitness):
    """Scenario 12, in soft mode: an old configuration cannot break the cap."""
    await witness.limit(max_active_leases=3)
    await witness.cluster.queue_up(standing("", 20))
    new, old = await witness.worker("new"), await witness.worker("old")
    claimed = await ahead(new, 10)
    assert len(await old.some(10)) == 3
    running, waiting = await begin_all(new, claimed)
    assert (len(running), len(waiting)) == (0, 10)
    assert await witness.peak() == 3


async def test_a_permit_asked_for_twice_is_one_permit(witness: LimitWitness):
    await witness.limit(max_active_leases=2)
    await witness.cluster.queue_up(standing("", 4))
    hand = await witness.worker("w1")
    claimed = await ahead(hand, 4)
    for _ in range(3):
        assert (await hand.begin(claimed[0])).ok()["started"]
    assert (await hand.begin(claimed[1])).ok()["started"]
    assert not (await hand.begin(claimed[2])).ok()["started"]
    (await hand.finish(claimed[0])).expect(200)
    assert (await hand.begin(claimed[2])).ok()["started"]
    starts = [line for line in await witness.verified() if isinstance(line, LeaseStarted)]
    assert sum(line.task_id == claimed[0]["task_id"] for line in starts) == 1


async def test_a_claim_that_lapses_goes_to_another_worker_and_burns_no_attempt(witness: LimitWitness):
    """Scenarios 24 and 36: taken over once, and the old holder is refused at start and at finish."""
    await witness.limit(max_active_leases=1)
    (await witness.cluster.start_activity("only", retry_policy={"max_attempts": 1})).expect(201)
    slow, idle = await witness.worker("slow"), await witness.worker("idle")
    [lost] = await ahead(slow, 1, SHORT_MS)
    [taken] = await ahead(idle, 1)
    assert taken["task_id"] == lost["task_id"]
    assert taken["attempt_number"] == lost["attempt_number"] == 1
    assert taken["activity_attempt_id"] != lost["activity_attempt_id"]
    assert (await idle.begin(taken)).ok()["started"]
    late: list[Reply] = [await slow.begin(lost), await slow.finish(lost)]
    assert {reply.status for reply in late} <= REFUSED
    (await idle.finish(taken)).expect(200)
    described = (await witness.cluster.get("/api/activities/only")).expect(200)
    assert described["status"] == "completed"
    assert await witness.peak() == 1


async def test_a_worker_that_claims_its_own_lapsed_task_again_starts_it_by_the_newer_lease_only(
    witness: LimitWitness,
):
    """Scenario 35."""
    await witness.cluster.queue_up(standing("", 1))
    hand = await witness.worker("w1")
    [older] = await ahead(hand, 1, SHORT_MS)
    [newer] = await ahead(hand, 1)
    assert older["task_id"] == newer["task_id"]
    assert (await hand.begin(older)).status in REFUSED
    assert (await hand.begin(newer)).ok()["started"]
    (await hand.finish(newer)).expect(200)
    await witness.verified()


async def test_claims_that_lapse_hold_no_permit(witness: LimitWitness):
    await witness.limit(max_active_leases=2)
    await witness.limit_namespace(max_active_leases=2)
    await witness.cluster.queue_up(standing("", 8))
    dead, alive = await witness.worker("dead"), await witness.worker("alive")
    assert len(await ahead(dead, 8, SHORT_MS)) == 8
    tasks = [await alive.take("activity"), await alive.take("activity")]
    assert (await alive.poll("activity")).expect(200)["poll_status"] == "throttled"
    for task in tasks:
        (await alive.finish(task)).expect(200)
    assert await witness.peak() == 2


async def test_a_started_task_has_the_lease_of_one_that_runs(witness: LimitWitness):
    await witness.cluster.queue_up(standing("", 1))
    hand = await witness.worker("w1")
    [task] = await ahead(hand, 1, 5_000)
    begun = (await hand.begin(task)).ok()
    assert begun["lease_expires_at"] > task["lease_expires_at"]
    (await hand.report(task, "heartbeat")).expect(200)
    (await hand.finish(task)).expect(200)


async def test_dispatches_are_counted_when_tasks_start_not_when_they_are_claimed(witness: LimitWitness):
    await witness.limit(max_dispatches_per_minute=2, dispatch_window="sliding")
    await witness.cluster.queue_up(standing("", 5))
    hand = await witness.worker("w1")
    running, waiting = await begin_all(hand, await ahead(hand, 5))
    assert (len(running), len(waiting)) == (2, 3)
    held = (await hand.begin(waiting[0])).ok()
    assert held["reason"] == "queue_dispatches"
    assert 0 < held["retry_after_seconds"] <= 61
    await witness.verified()


async def test_a_paused_queue_hands_out_nothing_ahead_and_starts_nothing(witness: LimitWitness):
    await witness.cluster.queue_up(standing("", 5))
    hand = await witness.worker("w1")
    [task] = await ahead(hand, 1)
    (await witness.cluster.post("/api/task-queues/q/pause", {"task_queue_type": "activity"})).expect(200)
    polled = (await hand.poll("activity", claim_lease_ms=LONG_MS, max_tasks=5)).expect(200)
    assert (polled["poll_status"], polled["tasks"]) == ("throttled", [])
    held = (await hand.begin(task)).ok()
    assert (held["started"], held["reason"]) == (False, "paused")
    (await witness.cluster.post("/api/task-queues/q/resume", {"task_queue_type": "activity"})).expect(200)
    assert (await hand.begin(task)).ok()["started"]


async def test_a_rate_is_paid_once_by_a_task_that_is_claimed_and_then_started(witness: LimitWitness):
    """One a minute or so: the claim took it, so the start must not wait for the next."""
    (await witness.cluster.config(queue_rps_limit=0.01, queue_rps_burst_seconds=0)).expect(200)
    await witness.cluster.queue_up(standing("", 2))
    hand = await witness.worker("w1")
    [task] = await ahead(hand, 2)
    begun: dict[str, Any] = (await hand.begin(task)).ok().body
    assert begun["started"], begun


async def test_cancelled_while_claimed_it_is_not_started(witness: LimitWitness):
    await witness.cluster.queue_up(standing("", 1))
    hand = await witness.worker("w1")
    [task] = await ahead(hand, 1)
    (await witness.cluster.post(f"/api/activities/{task['workflow_id']}/cancel", {})).ok()
    assert (await hand.begin(task)).status == 409

    async def gone() -> bool:
        return (await witness.cluster.line())["leased_count"] == 0

    await until(gone)
    await witness.verified()


async def test_a_task_that_was_never_started_cannot_be_reported(witness: LimitWitness):
    await witness.limit(max_active_leases=0)
    await witness.cluster.queue_up(standing("", 1))
    hand = await witness.worker("w1")
    [task] = await ahead(hand, 1)
    assert not (await hand.begin(task)).ok()["started"]
    (await hand.finish(task)).expect(409, "task_not_started")
    await witness.limit(max_active_leases=1)
    assert (await hand.begin(task)).ok()["started"]
    (await hand.finish(task)).expect(200)
    assert await witness.peak() == 1


async def test_a_claim_that_is_renewed_stays_short_and_holds_no_permit(witness: LimitWitness):
    """Scenario 36: an alive worker with a busy slot keeps what it fetched ahead."""
    await witness.limit(max_active_leases=1)
    await witness.cluster.queue_up(standing("", 2))
    busy, idle = await witness.worker("busy"), await witness.worker("idle")
    [task] = await ahead(busy, 1, 5_000)
    beat = (await busy.report(task, "heartbeat")).expect(200)
    assert beat["lease_expires_at"] < (await idle.take("activity"))["lease_expires_at"]
    assert not (await busy.begin(task)).ok()["started"]
    assert await witness.peak() == 1
