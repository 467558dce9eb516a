"""Caps under concurrency over HTTP, verified from the journal and from observations of workers, not by sampling."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.core.verify.journal import LeaseEnded, LeaseGranted
from tests.acceptance.cluster import Cluster, Hand, Json, open_polls
from tests.acceptance.witness import LimitWitness, Load, peak, running
from tests.support.dispatch_log import standing

SETTINGS = {"DW_JOURNAL": "true"}


@pytest.fixture
def witness(scene: Cluster) -> LimitWitness:
    return LimitWitness(scene)


async def found(hand: Hand, most: int = 100) -> list[Json]:
    """What may go now, perhaps nothing."""
    tasks = (await hand.poll("activity", max_tasks=most)).expect(200)["tasks"]
    assert isinstance(tasks, list)
    return tasks


async def test_a_cap_of_the_cluster_is_reached_and_never_passed(witness: LimitWitness):
    """Scenario 1."""
    await witness.limit_cluster(max_active_leases=20)
    try:
        await witness.cluster.queue_up(standing("", 200))
        hands = [await witness.worker(f"w{number}") for number in range(4)]
        load = Load(200, holds=20)
        await load.run(*hands)
        assert len(load.done) == 200
        assert await witness.peak() == 20
    finally:
        await witness.limit_cluster(max_active_leases=None)


async def test_under_a_cap_of_one_tasks_go_strictly_one_after_the_other(witness: LimitWitness):
    """Scenario 2."""
    await witness.limit(max_active_leases=1)
    await witness.cluster.queue_up(standing("", 60))
    load = Load(60)
    await load.run(*[await witness.worker(f"w{number}") for number in range(10)], pollers=1)
    assert await witness.peak() == 1


async def test_a_cap_of_a_queue_counts_what_is_leased_by_all_workers(witness: LimitWitness):
    """Scenario 4."""
    await witness.limit(max_active_leases=5)
    await witness.cluster.queue_up(standing("", 100))
    load = Load(100, holds=5)
    await load.run(*[await witness.worker(f"w{number}") for number in range(3)], at_once=4)
    assert await witness.peak() == 5


async def test_caps_of_queues_and_of_what_they_share_hold_together(witness: LimitWitness):
    """Scenario 6."""
    caps = {"stripe": 3, "email": 10, "reports": 2}
    await witness.limit_namespace(max_active_leases=15)
    for queue, cap in caps.items():
        await witness.limit(queue, max_active_leases=cap)
        await witness.cluster.queue_up(standing("", 20), queue)
    load = Load(60, holds=15)
    await asyncio.gather(
        load.run(*[await witness.worker(f"{queue}-{n}", queue) for queue in caps for n in range(2)])
    )
    lines = await witness.verified()
    assert {queue: peak(lines, {(witness.namespace, queue)}) for queue in caps} == caps
    assert peak(lines, {(witness.namespace, queue) for queue in caps}) == 15


@pytest.mark.parametrize("wider", ["namespace", "cluster", "group"])
async def test_the_least_of_all_caps_binds(witness: LimitWitness, wider: str):
    """Scenario 7."""
    await witness.limit(max_active_leases=10, dispatch_budget_group="g")

    async def limit(cap: int | None) -> None:
        match wider:
            case "namespace":
                await witness.limit_namespace(max_active_leases=cap)
            case "cluster":
                await witness.limit_cluster(max_active_leases=cap)
            case _:
                await witness.limit_group("g", max_active_leases=cap)

    await limit(4)
    try:
        await witness.cluster.queue_up(standing("", 30))
        hand = await witness.worker("w1")
        assert len(await found(hand)) == 4
        assert (await hand.poll("activity")).expect(200)["poll_status"] == "throttled"
        assert await witness.peak() == 4
    finally:
        await limit(None)


async def test_a_cap_of_zero_closes_one_queue_and_a_new_cap_wakes_the_polls_that_wait(witness: LimitWitness):
    """Scenario 9."""
    await witness.limit("closed", max_active_leases=0)
    await witness.cluster.queue_up(standing("", 9), "closed")
    await witness.cluster.queue_up(standing("", 9), "other")
    closed, other = await witness.worker("w1", "closed"), await witness.worker("w2", "other")
    assert (await closed.poll("activity")).expect(200)["poll_status"] == "throttled"
    assert len(await found(other)) == 9
    waiting = asyncio.create_task(closed.some(9, server=witness.cluster.first))
    await open_polls(witness.cluster, 1)
    await witness.limit("closed", max_active_leases=3)
    assert len(await waiting) == 3
    assert await witness.peak("closed") == 3


async def test_a_cap_that_is_lowered_kills_nobody_and_lets_nobody_in_until_fewer_run(witness: LimitWitness):
    """Scenario 10."""
    await witness.limit(max_active_leases=10)
    await witness.cluster.queue_up(standing("", 30))
    hand = await witness.worker("w1")
    tasks = await hand.some(30)
    assert len(tasks) == 10
    await witness.limit(max_active_leases=3)
    for left in range(9, 2, -1):
        (await hand.finish(tasks.pop())).expect(200)
        assert len(tasks) == left
        assert await found(hand) == []
    (await hand.finish(tasks.pop())).expect(200)
    assert len(await found(hand)) == 1
    for task in tasks:
        (await hand.finish(task)).expect(200)
    await witness.verified()


async def test_a_cap_that_is_raised_lets_the_difference_go_at_once(witness: LimitWitness):
    """Scenario 11."""
    await witness.limit(max_active_leases=3)
    await witness.cluster.queue_up(standing("", 30))
    hand = await witness.worker("w1")
    assert len(await hand.some(30)) == 3
    waiting = asyncio.create_task(hand.some(30, server=witness.cluster.first))
    await open_polls(witness.cluster, 1)
    await witness.limit(max_active_leases=10)
    assert len(await waiting) == 7
    assert await witness.peak() == 10


async def test_a_worker_that_knows_of_no_cap_cannot_break_it(witness: LimitWitness):
    """Scenario 12: caps are the servers', whatever a worker says of its slots."""
    await witness.limit(max_active_leases=2)
    await witness.cluster.queue_up(standing("", 20))
    greedy = await witness.worker("old", max_concurrent_activity_tasks=1000)
    assert len(await greedy.some(100)) == 2
    assert await found(greedy) == []
    assert await witness.peak() == 2


async def test_fifty_workers_that_ask_at_one_instant_get_as_many_as_the_cap_says(witness: LimitWitness):
    """Scenario 14."""
    await witness.limit(max_active_leases=7)
    hands = [await witness.worker(f"w{number}") for number in range(50)]
    await witness.cluster.queue_up(standing("", 60))
    given = await asyncio.gather(*(found(hand, 1) for hand in hands))
    assert sum(map(len, given)) == 7
    assert await witness.peak() == 7


async def test_however_leases_end_no_permit_is_lost(witness: LimitWitness):
    """Scenario 15: failed, retried, cancelled and completed, all under a cap of two."""
    await witness.limit(max_active_leases=2)
    await witness.limit_namespace(max_active_leases=2)
    total = 48
    for number in range(total):
        retry: Json = {"retry_policy": {"max_attempts": 2, "backoff_seconds": [0]}} if number % 4 == 1 else {}
        (await witness.cluster.start_activity(f"task-{number:03}", **retry)).expect(201)
    hand = await witness.worker("w1")
    ended: Counter[str] = Counter()
    while ended.total() < total:
        for task in await hand.some(2):
            number = int(task["workflow_id"].partition("-")[2]) if task["workflow_id"] else 0
            match number % 4:
                case 0:
                    (await hand.finish(task)).expect(200)
                    ended["completed"] += 1
                case 1:
                    (await hand.report(task, "fail", failure={"message": "no"})).expect(200)
                    ended["failed"] += task["attempt_number"] == 2
                case 2:
                    path = f"/api/activities/{task['workflow_id']}/cancel"
                    (await witness.cluster.post(path, {})).ok()
                    assert (await hand.finish(task)).status == 409
                    ended["cancelled"] += 1
                case _:
                    failure = {"message": "no", "non_retryable": True}
                    (await hand.report(task, "fail", failure=failure)).expect(200)
                    ended["refused"] += 1
    assert ended == dict.fromkeys(("completed", "failed", "cancelled", "refused"), total // 4)
    await witness.cluster.queue_up(standing("", 5))
    assert len(await found(hand)) == 2
    assert await witness.peak() == 2
    counts = (await witness.cluster.get(f"/api/namespaces/{witness.namespace}/limits")).expect(200)["all"][
        "counts"
    ]
    assert (counts["active_leases"], counts["remaining_active_leases"]) == (2, 0)


async def test_a_finish_that_is_sent_twice_frees_one_permit(witness: LimitWitness):
    """Scenario 42."""
    await witness.limit_namespace(max_active_leases=2)
    await witness.cluster.queue_up(standing("", 10))
    hand = await witness.worker("w1")
    first, _ = await hand.some(10)
    (await hand.finish(first)).expect(200)
    (await hand.finish(first)).expect(200)
    assert len(await found(hand)) == 1
    ends = [line for line in await witness.verified() if isinstance(line, LeaseEnded)]
    assert Counter(line.task_id for line in ends)[first["task_id"]] == 1


async def test_a_finish_after_a_cancel_changes_nothing_and_the_permit_is_freed_once(witness: LimitWitness):
    """Scenario 43."""
    await witness.limit_namespace(max_active_leases=2)
    await witness.cluster.queue_up(standing("", 10))
    hand = await witness.worker("w1")
    first, _ = await hand.some(10)
    (await witness.cluster.post(f"/api/activities/{first['workflow_id']}/cancel", {})).ok()
    assert (await hand.finish(first)).status == 409
    described = (await witness.cluster.get(f"/api/activities/{first['workflow_id']}")).expect(200)
    assert described["status"] == "cancelled"
    assert len(await found(hand)) == 1
    assert await witness.peak() == 2


async def test_a_fan_out_stays_within_the_cap_and_its_workflow_goes_on_once(witness: LimitWitness):
    """Scenario 68."""
    await witness.limit(max_active_leases=5)
    (await witness.cluster.start("fan-out")).expect(201)
    hand = await witness.worker("w1")
    activities = [{"type": "schedule_activity", "activity_type": "greet", "arguments": []}] * 100
    (await hand.decide(await hand.take(), *activities)).expect(200)
    load = Load(100, holds=5)
    await load.run(hand, await witness.worker("w2"))
    assert await witness.peak() == 5
    (await hand.finish(await hand.take(), "all")).expect(200)
    types = Counter(await witness.cluster.event_types("fan-out"))
    assert (types["ActivityCompleted"], types["WorkflowCompleted"]) == (100, 1)


async def test_queues_of_one_group_share_its_cap(witness: LimitWitness):
    group = f"group:{witness.namespace}/openai"
    await witness.limit_group("openai", max_active_leases=3)
    for queue in ("a", "b"):
        await witness.limit(queue, dispatch_budget_group="openai")
        await witness.cluster.queue_up(standing("", 30), queue)
    hands = [await witness.worker(f"{queue}-{n}", queue, (group,)) for queue in ("a", "b") for n in range(3)]
    load = Load(60, holds=3)
    await load.run(*hands, pollers=4)
    lines = await witness.verified()
    assert peak(lines, {(witness.namespace, "a"), (witness.namespace, "b")}) == 3


async def test_a_group_of_all_namespaces_has_one_cap(witness: LimitWitness, cluster: Cluster):
    other = f"{witness.namespace}-other"
    (await cluster.post("/api/namespaces", {"name": other}, role="admin")).expect(201)
    second = LimitWitness(cluster.at(other), witness.log)
    group = f"shared-by-{witness.namespace}"
    await witness.limit_shared_group(group, max_active_leases=4)
    hands: list[Hand] = []
    for each in (witness, second):
        await each.limit(dispatch_budget_group=group)
        await each.cluster.queue_up(standing("", 30))
        hands += [await each.worker(f"w{number}", groups=(f"group:*/{group}",)) for number in range(2)]
    load = Load(60, holds=4)
    await load.run(*hands, pollers=4)
    assert await witness.peak("q", namespaces=[witness.namespace, other]) == 4


async def test_leases_that_were_there_before_the_cap_count(witness: LimitWitness):
    await witness.cluster.queue_up(standing("", 30))
    hand = await witness.worker("w1")
    tasks = await hand.some(6)
    await witness.limit_namespace(max_active_leases=4)
    assert await found(hand) == []
    for task in tasks[:3]:
        (await hand.finish(task)).expect(200)
    assert len(await found(hand)) == 1
    await witness.verified()


async def test_an_end_in_one_queue_wakes_the_polls_of_another_queue_of_the_group(witness: LimitWitness):
    await witness.limit_group("g", max_active_leases=1)
    for queue in ("a", "b"):
        await witness.limit(queue, dispatch_budget_group="g")
        await witness.cluster.queue_up(standing("", 1), queue)
    first, second = await witness.worker("w1", "a"), await witness.worker("w2", "b")
    task = await first.take("activity")
    waiting = asyncio.create_task(second.take("activity", server=witness.cluster.first))
    await open_polls(witness.cluster, 1)
    (await first.finish(task)).expect(200)
    (await second.finish(await waiting)).expect(200)
    assert await witness.peak("a", "b") == 1


async def test_a_cap_changed_again_and_again_under_load_is_the_one_in_force(witness: LimitWitness):
    await witness.limit(max_active_leases=4)
    await witness.cluster.queue_up(standing("", 150))
    load = Load(150)
    working = asyncio.create_task(
        load.run(*[await witness.worker(f"w{number}") for number in range(4)], pollers=4)
    )
    for cap in (1, 6, 2, 0, 5, 3):
        await witness.limit(max_active_leases=cap)
    await witness.limit(max_active_leases=8)
    await working
    assert await witness.peak() <= 8


async def test_every_grant_names_the_limits_that_it_was_decided_with(witness: LimitWitness):
    await witness.limit_namespace(max_active_leases=9)
    await witness.limit(max_active_leases=2, dispatch_budget_group="g")
    await witness.limit_group("g", max_active_leases=7)
    await witness.cluster.queue_up(standing("", 1))
    task = await (await witness.worker("w1")).take("activity")
    [line] = [
        line
        for line in await witness.verified()
        if isinstance(line, LeaseGranted) and line.task_id == task["task_id"]
    ]
    caps = {each.scope: each.max_active_leases for each in line.scopes}
    assert caps == {
        f"queue:{witness.namespace}/q/activity": 2,
        f"namespace:{witness.namespace}": 9,
        f"group:{witness.namespace}/g": 7,
    }
    assert list(running([line], {(witness.namespace, "q")})) == [1]
