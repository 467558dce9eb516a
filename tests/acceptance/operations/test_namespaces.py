"""Namespaces: created, changed, deleted and isolated."""

from __future__ import annotations

import pytest

from tests.acceptance.cluster import Cluster, Hand


@pytest.fixture
async def other(cluster: Cluster, scene: Cluster) -> Cluster:
    """A second namespace beside the scene's."""
    name = f"{scene.namespace}-other"
    (await cluster.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    return cluster.at(name)


async def test_a_namespace_is_made_described_changed_listed_and_deleted(cluster: Cluster) -> None:
    made = await cluster.post(
        "/api/namespaces", {"name": "Team.A_1-x", "description": "a team"}, role="admin"
    )
    made.expect(201)
    assert (made["name"], made["retention_days"], made["status"]) == ("team.a_1-x", 30, "active")
    assert made["external_payload_storage"] is None
    for spelled in ("team.a_1-x", "TEAM.A_1-X"):
        found = (await cluster.get(f"/api/namespaces/{spelled}")).expect(200)
        assert (found["name"], found["description"]) == ("team.a_1-x", "a team")
    changed = await cluster.ask("PUT", "/api/namespaces/Team.A_1-x", {"retention_days": 7}, role="admin")
    changed.expect(200)
    assert (changed["description"], changed["retention_days"]) == ("a team", 7)
    listed = (await cluster.get("/api/namespaces")).ok()["namespaces"]
    assert {"default", "team.a_1-x"} <= {each["name"] for each in listed}
    gone = (await cluster.ask("DELETE", "/api/namespaces/team.a_1-x", role="admin")).expect(200)
    assert gone["status"] == "deleted"
    (await cluster.get("/api/namespaces/team.a_1-x")).expect(404, "namespace_not_found")


async def test_a_namespace_keeps_where_its_large_payloads_go(cluster: Cluster, scene: Cluster) -> None:
    path = f"/api/namespaces/{scene.namespace}/external-storage"
    asked = {
        "driver": "s3",
        "enabled": False,
        "threshold_bytes": 4096,
        "config": {"bucket": "payloads", "region": "eu"},
    }
    stored = (await cluster.ask("PUT", path, asked, role="admin")).expect(200)
    assert stored["external_payload_storage"] == asked
    (await cluster.ask("PUT", path, {"driver": "ftp"}, role="admin")).expect(422, "validation_failed")
    (await cluster.ask("PUT", "/api/namespaces/nowhere/external-storage", asked, role="admin")).expect(
        404, "namespace_not_found"
    )


@pytest.mark.parametrize("name", ["", " ", "a b", "ä", "a/b", "a\n", "x" * 129, None, 7, ["a"]])
async def test_a_name_outside_the_alphabet_is_refused(cluster: Cluster, name: object) -> None:
    reply = await cluster.post("/api/namespaces", {"name": name}, role="admin")
    reply.expect(422, "validation_failed")
    assert set(reply["errors"]) == {"name"}


async def test_what_still_holds_something_is_not_deleted(cluster: Cluster, scene: Cluster) -> None:
    (await scene.start("order-1")).expect(201)
    refused = await cluster.ask("DELETE", f"/api/namespaces/{scene.namespace}", role="admin")
    refused.expect(409, "namespace_not_empty")
    (await cluster.ask("DELETE", "/api/namespaces/default", role="admin")).expect(409, "namespace_protected")
    (await cluster.ask("DELETE", "/api/namespaces/nowhere", role="admin")).expect(404, "namespace_not_found")
    assert (await scene.describe("order-1"))["status"] == "pending"


async def test_a_request_takes_its_namespace_from_the_header_then_the_query_then_the_default(
    cluster: Cluster, scene: Cluster
) -> None:
    assert scene.namespace is not None
    (await scene.start("where-am-i")).expect(201)
    query = f"/api/workflows/where-am-i?namespace={scene.namespace}"
    assert (await cluster.get(query)).expect(200)["namespace"] == scene.namespace
    shouted = cluster.at(scene.namespace.upper())
    (await shouted.get("/api/workflows/where-am-i?namespace=default")).expect(200)
    (await cluster.at("default").get(query)).expect(404, "instance_not_found")
    (await cluster.get("/api/workflows/where-am-i")).expect(404, "instance_not_found")
    (await cluster.start("in-default")).expect(201)
    assert (await cluster.at("default").describe("in-default"))["namespace"] == "default"


async def test_the_same_workflow_id_lives_in_two_namespaces(scene: Cluster, other: Cluster) -> None:
    here = (await scene.start("order-1", business_key="here")).expect(201)
    there = (await other.start("order-1", business_key="there")).expect(201)
    assert here["run_id"] != there["run_id"]
    assert (await scene.describe("order-1"))["business_key"] == "here"
    assert (await other.describe("order-1"))["business_key"] == "there"
    listed = (await scene.get("/api/workflows")).ok()["workflows"]
    assert [each["run_id"] for each in listed] == [here["run_id"]]
    (await scene.post("/api/workflows/order-1/terminate", {})).expect(200)
    assert (await other.describe("order-1"))["status"] == "pending"


async def test_a_worker_of_one_namespace_is_unknown_in_another(scene: Cluster, other: Cluster) -> None:
    await scene.worker("w-1")
    stray = Hand(other, "w-1", "q")
    (await stray.poll()).expect(412, "worker_not_registered")
    (await other.get("/api/workers/w-1")).expect(404, "worker_not_found")
    (await other.post("/api/worker/heartbeat", {"worker_id": "w-1"}, role="worker")).expect(
        404, "worker_not_registered"
    )
    (await other.ask("DELETE", "/api/worker/registrations/w-1", role="worker")).expect(
        404, "worker_not_found"
    )
    (await other.ask("DELETE", "/api/workers/w-1", role="admin")).expect(404, "worker_not_found")
    await other.worker("w-1", task_queue="elsewhere")
    assert (await scene.get("/api/workers/w-1")).ok()["task_queue"] == "q"


async def test_a_poll_is_served_from_its_own_namespace_only(scene: Cluster, other: Cluster) -> None:
    here, there = await scene.worker("w-1"), await other.worker("w-1")
    (await scene.start("order-1")).expect(201)
    (await scene.start_activity("charge-1")).expect(201)
    for kind in ("workflow", "activity"):
        assert (await there.poll(kind)).expect(200)["poll_status"] == "empty"
        assert (await here.poll(kind)).expect(200)["poll_status"] == "leased"


async def test_a_task_id_of_another_namespace_names_nothing(scene: Cluster, other: Cluster) -> None:
    here = await scene.worker("w-1")
    await other.worker("w-1")
    stray = Hand(other, "w-1", "q")
    activity = await here.schedule("order-1")
    (await scene.start("order-2")).expect(201)
    workflow = await here.take()
    for task, action, fields in (
        (workflow, "heartbeat", {}),
        (workflow, "history", {"next_history_page_token": "MA=="}),
        (workflow, "complete", {"commands": [{"type": "complete_workflow"}]}),
        (workflow, "fail", {"failure": {"message": "no"}}),
        (activity, "heartbeat", {}),
        (activity, "complete", {"result": 1}),
        (activity, "fail", {"failure": {"message": "no"}}),
    ):
        (await stray.report(task, action, **fields)).expect(404, "task_not_found")
    for kind, task in (("workflow", workflow), ("activity", activity)):
        item = {"task_id": task["task_id"], **here.lease(task), "commands": [{"type": "complete_workflow"}]}
        batch = await other.post(f"/api/worker/{kind}-tasks/batch", {"items": [item]}, role="worker")
        assert batch.expect(200)["items"][0]["reason"] == "task_not_found"
    (await here.finish(activity)).expect(200)
    (await here.finish(workflow)).expect(200)


async def test_a_run_id_of_another_namespace_names_nothing(scene: Cluster, other: Cluster) -> None:
    run = (await scene.start("order-1")).expect(201)["run_id"]
    (await other.start("order-1")).expect(201)
    path = f"/api/workflows/order-1/runs/{run}"
    (await other.get(path)).expect(404, "run_not_found")
    (await other.get(f"{path}/history")).expect(404, "run_not_found")
    (await other.post(f"{path}/cancel", {})).expect(404, "run_not_found")
    (await other.post(f"{path}/terminate", {})).expect(404, "run_not_found")
    assert (await scene.describe("order-1"))["is_terminal"] is False
    assert (await other.describe("order-1"))["is_terminal"] is False


async def test_an_activity_of_another_namespace_names_nothing(scene: Cluster, other: Cluster) -> None:
    (await scene.start_activity("charge-1")).expect(201)
    (await other.get("/api/activities/charge-1")).expect(404, "activity_not_found")
    (await other.get("/api/activities/charge-1/result")).expect(404, "activity_not_found")
    (await other.post("/api/activities/charge-1/cancel", {})).expect(404, "activity_not_found")
    assert (await other.get("/api/activities")).ok()["activities"] == []


async def test_a_page_token_of_another_namespace_shows_nothing_of_it(scene: Cluster, other: Cluster) -> None:
    for number in range(3):
        (await scene.start(f"order-{number}")).expect(201)
        (await other.start(f"other-{number}")).expect(201)
    token = (await scene.get("/api/workflows?page_size=1")).ok()["next_page_token"]
    assert token is not None
    page = (await other.get(f"/api/workflows?next_page_token={token}")).ok()
    assert all(each["namespace"] == other.namespace for each in page["workflows"])


async def test_a_poll_request_id_of_another_namespace_brings_back_nothing(
    scene: Cluster, other: Cluster
) -> None:
    here, there = await scene.worker("w-1"), await other.worker("w-1")
    (await scene.start("order-1")).expect(201)
    await here.take(poll_request_id="wf-poll-1")
    assert (await there.poll(poll_request_id="wf-poll-1")).expect(200)["poll_status"] == "empty"


async def test_draining_a_build_in_one_namespace_leaves_the_other_alone(
    scene: Cluster, other: Cluster
) -> None:
    here, there = await scene.worker("w-1", build_id="b1"), await other.worker("w-1", build_id="b1")
    (await scene.post("/api/task-queues/q/build-ids/drain", {"build_id": "b1"})).expect(200)
    (await here.poll()).expect(409, "worker_draining")
    assert (await there.poll()).expect(200)["poll_status"] == "empty"
