"""Workers as operators see them: registered, active, stale, draining and deregistered."""

from __future__ import annotations

import asyncio

from tests.acceptance.cluster import Cluster, Hand, Json, open_polls
from tests.support.patience import PATIENCE_S

STALE_AFTER_S, HEARTBEAT_INTERVAL_S = 60, 20
"""What a server says that was not given other settings."""
BUILDS = "/api/task-queues/q/build-ids"


async def builds(scene: Cluster) -> dict[str | None, Json]:
    listed = (await scene.get(BUILDS)).expect(200)["build_ids"]
    return {each["build_id"]: each for each in listed}


async def has_status(scene: Cluster, worker_id: str, status: str) -> bool:
    return bool((await scene.get(f"/api/workers/{worker_id}")).ok()["status"] == status)


async def test_a_registration_is_shown_as_it_was_sent(scene: Cluster) -> None:
    sent: Json = {
        "worker_id": "py-1",
        "task_queue": "q",
        "runtime": "python",
        "sdk_version": "durable-workflow-python/2.9.0",
        "build_id": "b1",
        "supported_workflow_types": ["ship", "bill"],
        "supported_activity_types": ["charge"],
        "workflow_definition_fingerprints": {"ship": "sha256:1"},
        "max_concurrent_workflow_tasks": 3,
        "max_concurrent_activity_tasks": 4,
        "task_slots": {"workflow_available": 3, "activity_available": 4},
        "process_metrics": {"process_id": 7},
    }
    answer = (await scene.post("/api/worker/register", sent, role="worker")).expect(201)
    assert (answer["stale_after_seconds"], answer["heartbeat_interval_seconds"]) == (
        STALE_AFTER_S,
        HEARTBEAT_INTERVAL_S,
    )
    shown = (await scene.get("/api/workers/py-1")).expect(200)
    assert {name: shown[name] for name in sent} == sent
    assert (shown["status"], shown["namespace"]) == ("active", scene.namespace)
    poller = (await scene.get("/api/task-queues/q")).expect(200)["pollers"][0]
    assert (poller["worker_id"], poller["is_stale"]) == ("py-1", False)
    assert (poller["available_workflow_slots"], poller["available_activity_slots"]) == (3, 4)


async def test_a_heartbeat_carries_the_free_slots(scene: Cluster) -> None:
    await scene.worker("py-1")
    beat = {"worker_id": "py-1", "task_slots": {"workflow_available": 1, "activity_available": 0}}
    answer = (await scene.post("/api/worker/heartbeat", beat, role="worker")).expect(200)
    assert (answer["worker_id"], answer["acknowledged"]) == ("py-1", True)
    assert answer["heartbeat_interval_seconds"] == HEARTBEAT_INTERVAL_S
    assert (await scene.get("/api/workers/py-1")).ok()["task_slots"] == beat["task_slots"]
    (await scene.post("/api/worker/heartbeat", {"worker_id": "nobody"}, role="worker")).expect(
        404, "worker_not_registered"
    )


async def test_workers_are_listed_by_queue_and_status(scene: Cluster) -> None:
    for name, queue in (("a", "q"), ("b", "q"), ("c", "other")):
        await scene.worker(name, queue)
    for query, expected in (
        ("", {"a", "b", "c"}),
        ("?task_queue=q", {"a", "b"}),
        ("?status=active&task_queue=other", {"c"}),
        ("?status=draining", set()),
    ):
        listed = (await scene.get(f"/api/workers{query}")).expect(200)
        assert {each["worker_id"] for each in listed["workers"]} == expected, query
        assert listed["stale_after_seconds"] == STALE_AFTER_S
    (await scene.get("/api/workers/nobody")).expect(404, "worker_not_found")
    names = [each["name"] for each in (await scene.get("/api/task-queues")).expect(200)["task_queues"]]
    assert sorted(names) == ["other", "q"]


async def test_a_worker_that_leaves_gives_its_tasks_back_at_once(scene: Cluster) -> None:
    leaver, stayer = await scene.worker("leaver"), await scene.worker("stayer")
    (await scene.start("order-1")).expect(201)
    (await scene.start_activity("charge-1")).expect(201)
    workflow, activity = await leaver.take(), await leaver.take("activity")
    left = (await scene.ask("DELETE", "/api/worker/registrations/leaver", role="worker")).expect(200)
    assert (left["worker_id"], left["outcome"], left["recovered_workflow_task_count"]) == (
        "leaver",
        "deregistered",
        1,
    )
    again = await stayer.take()
    assert (again["task_id"], again["workflow_task_attempt"]) == (workflow["task_id"], 2)
    assert (await stayer.take("activity"))["task_id"] == activity["task_id"]
    (await leaver.finish(workflow)).expect(409, "lease_owner_mismatch")
    (await leaver.poll()).expect(412, "worker_not_registered")
    (await scene.ask("DELETE", "/api/worker/registrations/leaver", role="worker")).expect(
        404, "worker_not_found"
    )


async def test_an_administrator_may_remove_a_worker(scene: Cluster) -> None:
    worker = await scene.worker("py-1")
    removed = (await scene.ask("DELETE", "/api/workers/py-1", role="admin")).expect(200)
    assert (removed["worker_id"], removed["outcome"]) == ("py-1", "deregistered")
    (await worker.poll()).expect(412, "worker_not_registered")


async def test_a_poll_under_another_build_than_the_registered_one_is_refused(scene: Cluster) -> None:
    worker = await scene.worker("py-1", build_id="b1")
    refused = (await worker.poll(build_id="b2")).expect(409, "build_id_mismatch")
    assert (refused["registered_build_id"], refused["requested_build_id"]) == ("b1", "b2")
    (await worker.poll(build_id="b1")).expect(200)
    unversioned = await scene.worker("py-2")
    (await unversioned.poll(build_id="b2")).expect(200)


async def test_a_draining_build_finishes_what_it_holds_and_gets_nothing_new(scene: Cluster) -> None:
    old, new = await scene.worker("old", build_id="b1"), await scene.worker("new", build_id="b2")
    (await scene.start("order-1")).expect(201)
    held = await old.take()
    drained = (await scene.post(f"{BUILDS}/drain", {"build_id": "b1"})).expect(200)
    assert (drained["build_id"], drained["drain_intent"]) == ("b1", "draining")
    again = (await scene.post(f"{BUILDS}/drain", {"build_id": "b1"})).expect(200)
    assert again["drained_at"] == drained["drained_at"] is not None
    for kind in ("workflow", "activity"):
        refused = (await old.poll(kind)).expect(409, "worker_draining")
        assert (refused["poll_status"], refused["task"]) == ("draining", None)
    (await old.report(held, "heartbeat")).expect(200)
    (await old.decide(held, {"type": "schedule_activity", "activity_type": "charge"})).expect(200)
    assert (await new.take("activity"))["activity_type"] == "charge"
    assert (await scene.get("/api/workers/old")).ok()["status"] == "draining"
    shown = await builds(scene)
    assert (shown["b1"]["rollout_status"], shown["b1"]["draining_worker_count"]) == ("draining", 1)
    assert (shown["b2"]["rollout_status"], shown["b2"]["active_worker_count"]) == ("active", 1)
    resumed = (await scene.post(f"{BUILDS}/resume", {"build_id": "b1"})).expect(200)
    assert (resumed["drain_intent"], resumed["drained_at"]) == ("active", None)
    (await old.poll()).expect(200)
    assert (await scene.get("/api/workers/old")).ok()["status"] == "active"


async def test_draining_a_build_ends_the_long_polls_of_its_workers(scene: Cluster) -> None:
    worker = await scene.worker("old", build_id="b1")
    waiting = asyncio.create_task(worker.poll(timeout=40, server=scene.first))
    await open_polls(scene, 1)
    (await scene.post(f"{BUILDS}/drain", {"build_id": "b1"}, server=scene.last)).expect(200)
    (await asyncio.wait_for(waiting, PATIENCE_S)).expect(409, "worker_draining")


async def test_the_unversioned_cohort_is_drained_by_null_or_blank(scene: Cluster) -> None:
    worker = await scene.worker("plain")
    for blank in (None, " "):
        drained = (await scene.post(f"{BUILDS}/drain", {"build_id": blank})).expect(200)
        assert drained["build_id"] is None
        (await worker.poll()).expect(409, "worker_draining")
        (await scene.post(f"{BUILDS}/resume", {"build_id": blank})).expect(200)
        (await worker.poll()).expect(200)
    (await scene.post(f"{BUILDS}/drain", {})).expect(422, "validation_failed")


async def test_a_worker_that_registers_into_a_draining_build_is_draining(scene: Cluster) -> None:
    (await scene.post(f"{BUILDS}/drain", {"build_id": "b1"})).expect(200)
    assert (await builds(scene))["b1"]["rollout_status"] == "draining"
    worker = await scene.worker("late", build_id="b1")
    assert (await scene.get("/api/workers/late")).ok()["status"] == "draining"
    (await worker.poll()).expect(409, "worker_draining")


async def test_new_starts_are_pinned_to_the_promoted_build(scene: Cluster) -> None:
    old, new = await scene.worker("old", build_id="b1"), await scene.worker("new", build_id="b2")
    first = (await scene.post(f"{BUILDS}/promote", {"build_id": "b1"})).expect(200)
    assert (first["new_start_selected"], first["promoted_at"] is None) == (True, False)
    second = (await scene.post(f"{BUILDS}/promote", {"build_id": "b2"})).expect(200)
    assert second["new_start_selected"] is True
    shown = await builds(scene)
    assert (shown["b1"]["new_start_selected"], shown["b1"]["rolled_back_at"] is None) == (False, False)
    (await scene.start("order-1")).expect(201)
    assert (await scene.describe("order-1"))["compatibility"] == "b2"
    assert (await old.poll()).expect(200)["poll_status"] == "empty"
    task = await new.take()
    (await new.decide(task, {"type": "schedule_activity", "activity_type": "charge"})).expect(200)
    assert (await old.poll("activity")).expect(200)["poll_status"] == "empty"
    await new.take("activity")
    (await scene.start("order-2", build_id="b1")).expect(201)
    assert (await new.poll()).expect(200)["poll_status"] == "empty"
    assert (await old.take())["compatibility"] == "b1"


async def test_a_worker_gets_only_the_types_it_named(scene: Cluster) -> None:
    shipper = await scene.worker(
        "shipper", supported_workflow_types=["ship"], supported_activity_types=["pack"]
    )
    anyone = await scene.worker("anyone")
    (await scene.start("order-1", "bill")).expect(201)
    (await scene.start_activity("charge-1", "charge")).expect(201)
    for kind in ("workflow", "activity"):
        assert (await shipper.poll(kind)).expect(200)["poll_status"] == "empty"
    (await scene.start("order-2", "ship")).expect(201)
    (await scene.start_activity("pack-2", "pack")).expect(201)
    assert (await shipper.take())["workflow_type"] == "ship"
    assert (await shipper.take("activity"))["activity_type"] == "pack"
    assert (await anyone.take())["workflow_type"] == "bill"
    assert (await anyone.take("activity"))["activity_type"] == "charge"


async def test_an_unregistered_worker_may_not_poll(scene: Cluster) -> None:
    stranger = Hand(scene, "nobody", "q")
    for kind in ("workflow", "activity"):
        refused = (await stranger.poll(kind)).expect(412, "worker_not_registered")
        assert refused["worker_id"] == "nobody"


async def test_a_registration_is_renewed_under_the_same_id(scene: Cluster) -> None:
    await scene.worker("py-1", workflow_definition_fingerprints={"ship": "1", "bill": "1"})
    await scene.worker(
        "py-1",
        supported_workflow_types=["ship", "bill"],
        workflow_definition_fingerprints={"ship": "1"},
        sdk_version="2",
    )
    shown = (await scene.get("/api/workers/py-1")).ok()
    assert (shown["sdk_version"], shown["workflow_definition_fingerprints"]) == (
        "2",
        {"ship": "1", "bill": "1"},
    )
    (await scene.post(f"{BUILDS}/drain", {"build_id": None})).expect(200)
    await scene.worker("py-1", workflow_definition_fingerprints={"ship": "2"})


async def test_two_definitions_in_one_build_are_shown_as_a_conflict(scene: Cluster) -> None:
    await scene.worker("py-1", build_id="b1", workflow_definition_fingerprints={"ship": "1"})
    await scene.worker("py-2", build_id="b1", workflow_definition_fingerprints={"ship": "2"})
    (cohort,) = (await builds(scene)).values()
    assert cohort["total_worker_count"] == 2
    assert [each["workflow_type"] for each in cohort["workflow_definition_fingerprint_conflicts"]] == ["ship"]


async def test_an_unknown_queue_is_described_as_empty(scene: Cluster) -> None:
    queue = (await scene.get("/api/task-queues/nothing-here")).expect(200)
    assert (queue["pollers"], queue["current_leases"]) == ([], [])
    assert queue["stats"]["approximate_backlog_count"] == 0
    assert (await scene.get("/api/task-queues/nothing-here/build-ids")).expect(200)["build_ids"] == []
