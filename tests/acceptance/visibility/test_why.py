"""Explanations of waits over HTTP, on every topology."""

from __future__ import annotations

from typing import Any

from tests.acceptance.cluster import Cluster, Hand, Json


async def why(scene: Cluster, activity_id: str) -> Json:
    found = (await scene.get(f"/api/activities/{activity_id}/why")).expect(200).body
    assert isinstance(found, dict)
    return found


async def kind(scene: Cluster, activity_id: str) -> str | None:
    binding = (await why(scene, activity_id))["binding"]
    return None if binding is None else str(binding["kind"])


async def limits(scene: Cluster, **fields: Any) -> None:
    (await scene.ask("PATCH", "/api/task-queues/q/limits", fields)).expect(200)


async def given(hand: Hand) -> list[Json]:
    """What a poll that does not wait is given."""
    tasks = (await hand.poll("activity", max_tasks=1)).expect(200)["tasks"]
    assert isinstance(tasks, list)
    return tasks


async def test_doing_what_would_free_a_task_gets_it_leased_by_the_next_poll(scene: Cluster):
    """One wait after another: no worker, a pause, a closed gate, a full one, and its turn."""
    (await scene.post("/api/task-queues/q/pause", {"reason": "not yet"})).expect(200)
    await limits(scene, max_active_leases_per_queue=0)
    (await scene.start_activity("first")).expect(201)
    (await scene.start_activity("charge-1")).expect(201)
    assert await kind(scene, "charge-1") == "no_worker_for_type"
    hand = await scene.worker("w1")
    assert await kind(scene, "charge-1") == "paused"
    assert await given(hand) == []
    (await scene.post("/api/task-queues/q/resume", {})).expect(200)
    found = await why(scene, "charge-1")
    assert (found["binding"]["kind"], found["binding"]["frees"][0]["to"]) == ("active_leases", 1)
    assert await given(hand) == []
    await limits(scene, max_active_leases_per_queue=found["binding"]["frees"][0]["to"])
    found = await why(scene, "charge-1")
    assert (found["binding"]["kind"], found["position"]["ahead"]) == ("behind_own_key", 1)
    [first] = await given(hand)
    found = await why(scene, "charge-1")
    assert (found["binding"]["kind"], found["binding"]["used"]) == ("active_leases", 1)
    assert [each["workflow_id"] for each in found["binding"]["holders"]] == ["first"]
    assert await given(hand) == []
    (await hand.finish(first)).expect(200)
    assert await kind(scene, "charge-1") is None
    [second] = await given(hand)
    assert second["workflow_id"] == "charge-1"
    assert await kind(scene, "charge-1") == "leased"
    (await hand.finish(second)).expect(200)
    found = await why(scene, "charge-1")
    assert (found["binding"]["kind"], found["waits"]) == ("not_waiting", False)


async def test_a_budget_group_that_is_used_up_says_when_it_opens(scene: Cluster):
    await limits(scene, dispatch_budget_group="downstream")
    (await scene.ask("PATCH", "/api/budget-groups/downstream", {"max_dispatches_per_minute": 0})).expect(200)
    hand = await scene.worker("w1")
    (await scene.start_activity("charge-1")).expect(201)
    found = await why(scene, "charge-1")
    assert found["binding"]["kind"] == "dispatches_per_minute"
    assert "the budget group downstream has used 0 of its 0 dispatches" in found["summary"]
    assert found["expected_start"]["unknown_because"] is not None
    (await scene.ask("PATCH", "/api/budget-groups/downstream", {"max_dispatches_per_minute": 1})).expect(200)
    [_] = await given(hand)


async def test_a_workflow_that_waits_for_an_activity_and_then_for_a_timer(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    command = {"type": "schedule_activity", "activity_type": "greet", "arguments": []}
    (await hand.decide(task, command)).expect(200)
    found = (await scene.get("/api/workflows/order-1/why")).expect(200)
    assert found["binding"]["kind"] == "waiting_for_activity"
    assert [each["binding"] for each in found["activities"]] == [None]
    (await hand.finish(await hand.take("activity"))).expect(200)
    (await hand.decide(await hand.take(), {"type": "start_timer", "delay_seconds": 600})).expect(200)
    found = (await scene.get("/api/workflows/order-1/why")).expect(200)
    assert (found["binding"]["kind"], len(found["timers"])) == ("timer", 1)


async def test_a_run_whose_code_fails_is_blocked_and_says_by_what(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    (await hand.report(task, "fail", failure={"message": "no such branch"})).expect(200)
    found = (await scene.get("/api/workflows/order-1/why")).expect(200)
    assert found["binding"]["kind"] == "blocked_run"
    assert "no such branch" in found["summary"]


async def test_why_does_not_offer_to_wait_for_a_run_beyond_a_structural_limit(scene: Cluster):
    """`wait 5 s` was offered for a run that can never go on."""
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    timers = [{"type": "start_timer", "delay_seconds": 600}] * 2_001
    reply = await hand.report(task, "complete", commands=timers, concurrent=True)
    refused = reply.expect(422, "structural_limit_exceeded")
    failure = {"type": "structural_limit_exceeded", "message": refused["message"]}
    (await hand.report(task, "fail", failure=failure)).expect(200)
    found = (await scene.get("/api/workflows/order-1/why")).expect(200)
    bound = found["binding"]
    assert bound["opens_at"] is None, "nothing to wait for"
    assert (bound["kind"], bound["max"], bound["opens_at"]) == ("structural_limit", 2_000, None)
    frees = [(each["action"], each["manual"]) for each in bound["frees"]]
    assert frees == [("fix_workflow", True), ("raise_setting", True), ("end_run", False)]
    assert bound["frees"][1]["setting"] == "DW_MAX_PENDING_TIMERS"
    (await scene.ask("POST", "/api/workflows/order-1/terminate", {})).expect(200)
    assert (await scene.get("/api/workflows/order-1/why")).expect(200)["binding"]["kind"] == "not_waiting"


async def test_position_by_level_and_key(scene: Cluster):
    await scene.worker("w1")
    await scene.queue_up([{"fairness_key": f"k{number % 3}", "priority": 1} for number in range(6)])
    await scene.queue_up([{"fairness_key": f"k{number % 3}"} for number in range(30)])
    (await scene.start_activity("charge-1", fairness_key="k0")).expect(201)
    found = await why(scene, "charge-1")
    place = found["position"]
    assert found["binding"]["kind"] == "priority"
    assert place["ahead_by_priority"] == [{"priority": 1, "priority_key": 1, "tasks": 6}]
    assert place["ahead_of_own_key"] == 10
    assert place["ahead_of_other_keys"] == 20
    assert place["ahead"] == 36
