"""Live limits: in force at the next grant, persistent across restarts, expired on time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, until
from tests.acceptance.conftest import TOPOLOGIES, serving
from tests.support.dispatch_log import counts, standing
from tests.support.servers import Server

SETTINGS = {
    "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE": "4",
    "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE": "6",
    "DW_JOURNAL": "true",
}
QUEUE = "/api/task-queues/q"


async def found(hand: Hand, most: int = 100) -> list[Json]:
    """What may go now, perhaps nothing."""
    tasks = (await hand.poll("activity", max_tasks=most)).expect(200)["tasks"]
    assert isinstance(tasks, list)
    return tasks


async def change(scene: Cluster, path: str, role: str = "operator", **fields: object) -> Json:
    body = (await scene.ask("PATCH", path, fields, role=role)).expect(200).body
    assert isinstance(body, dict)
    return body


async def read(scene: Cluster, path: str) -> Json:
    body = (await scene.get(path)).expect(200).body
    assert isinstance(body, dict)
    return body


async def limits(scene: Cluster) -> Json:
    """The limits of the queue's activities, by name."""
    found: Json = (await read(scene, f"{QUEUE}/limits"))["limits"]
    return found


async def test_what_is_declared_is_told_with_where_it_comes_from(scene: Cluster):
    leases = (await limits(scene))["max_active_leases_per_queue"]
    assert leases == {
        "value": 4,
        "source": "server.admission.activity_tasks.max_active_leases_per_queue",
        "declared": 4,
        "live": None,
    }
    body = await read(scene, f"/api/namespaces/{scene.namespace}/limits")
    limit = body["activity_tasks"]["limits"]["max_active_leases"]
    assert (limit["value"], limit["declared"]) == (6, 6)
    assert body["workflow_tasks"]["limits"]["max_active_leases"]["value"] is None
    [scope] = (await read(scene, f"{QUEUE}/limits"))["scopes"]
    assert (scope["scope"], scope["max_active_leases"]) == (f"namespace:{scene.namespace}/activity", 6)


async def test_a_limit_that_is_set_holds_from_the_next_grant_and_counts_what_runs(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 20))
    running = await found(hand)
    assert len(running) == 4
    body = await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=5, reason="more")
    assert body["counts"]["remaining_active_leases"] == 1
    assert {holder["task_id"] for holder in body["holders"]} == {task["task_id"] for task in running}
    assert {holder["worker"] for holder in body["holders"]} == {"w1"}
    running += await found(hand)
    assert len(running) == 5
    await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=2)
    await hand.finish_all(running[:3])
    assert await found(hand) == []
    await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=None)
    assert len(await found(hand)) == 2


async def test_zero_closes_and_a_waiting_poll_goes_when_it_is_unset(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 3))
    await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=0)
    assert (await hand.poll("activity")).expect(200)["poll_status"] == "throttled"
    waiting = asyncio.create_task(hand.some(3))
    await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue="default")
    assert len(await waiting) == 3


async def test_a_namespace_is_limited_over_all_its_queues(scene: Cluster):
    path = f"/api/namespaces/{scene.namespace}/limits"
    body = await change(scene, path, kind="activity_tasks", max_active_leases=3)
    limit = body["activity_tasks"]["limits"]["max_active_leases"]
    assert (limit["value"], limit["declared"], limit["live"]["value"]) == (3, 6, 3)
    hands = [await scene.worker(f"w{name}", name) for name in ("q", "r")]
    for name in ("q", "r"):
        await scene.queue_up(standing("", 5), name)
    running = [await found(hand, 2) for hand in hands]
    assert sorted(len(each) for each in running) == [1, 2]
    body = await read(scene, path)
    assert body["activity_tasks"]["counts"]["active_leases"] == 3
    assert len(body["activity_tasks"]["holders"]) == 3
    for hand, tasks in zip(hands, running, strict=True):
        await hand.finish_all(tasks)
    await change(scene, path, kind="activity_tasks", max_active_leases="default")
    assert [len(await found(hand)) for hand in hands] == [3, 3]


async def test_a_group_counts_the_dispatches_of_all_its_queues(scene: Cluster):
    hands = [await scene.worker(f"w{name}", name) for name in ("q", "r")]
    for name in ("q", "r"):
        await change(scene, f"/api/task-queues/{name}/limits", dispatch_budget_group="stripe")
        await scene.queue_up(standing("", 5), name)
    group = "/api/budget-groups/stripe"
    await change(scene, group, max_dispatches_per_minute=3, dispatch_window="sliding")
    given = [task for hand in hands for task in await found(hand, 2)]
    assert len(given) == 3
    body = await read(scene, group)
    assert sorted(each["task_queue"] for each in body["task_queues"]) == ["q", "r"]
    assert body["all"]["counts"]["dispatches_this_minute"] == 3
    assert body["all"]["counts"]["remaining_dispatches"] == 0
    await change(scene, group, max_dispatches_per_minute=4)
    assert sum([len(await found(hand, 2)) for hand in hands]) == 1


async def test_a_limit_for_a_while_ends_by_itself(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 5))
    body = await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=0, expires_in_seconds=2)
    live = body["limits"]["max_active_leases_per_queue"]["live"]
    ends_at, set_at = (datetime.fromisoformat(live[name]) for name in ("ends_at", "updated_at"))
    assert 1 <= (ends_at - set_at).total_seconds() <= 2
    assert len(await hand.some(5)) == 4
    after = (await limits(scene))["max_active_leases_per_queue"]
    assert (after["value"], after["live"]) == (4, None)
    assert (await scene.read_config())["max_running"] is None


@pytest.mark.parametrize("what", ["queue", "namespace", "group"])
async def test_a_pause_holds_back_what_waits_and_its_end_lets_it_go(scene: Cluster, what: str):
    path = {
        "queue": QUEUE,
        "namespace": f"/api/namespaces/{scene.namespace}",
        "group": "/api/budget-groups/stripe",
    }[what]
    await change(scene, f"{QUEUE}/limits", dispatch_budget_group="stripe")
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 4))
    [running] = await found(hand, 1)
    (await scene.post(f"{path}/pause", {"reason": "stuck"})).expect(200)
    assert (await hand.poll("activity")).expect(200)["poll_status"] == "throttled"
    (await hand.finish(running)).expect(200)
    assert await found(hand) == []
    waiting = asyncio.create_task(hand.some(10))
    (await scene.post(f"{path}/resume", {})).expect(200)
    assert len(await waiting) == 3


async def test_a_pause_for_a_while_ends_by_itself(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 1))
    (await scene.post(f"{QUEUE}/pause", {"expires_in_seconds": 1})).expect(200)
    assert len(await hand.some(1)) == 1


async def test_a_key_is_paused_while_others_go(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("a", 2) + standing("b", 2))
    (await scene.post(f"{QUEUE}/keys/a/pause", {"reason": "abuse"})).expect(200)
    assert counts(await found(hand)) == {"b": 2}
    (await scene.post(f"{QUEUE}/keys/a/resume", {})).expect(200)
    assert counts(await found(hand)) == {"a": 2}


async def test_of_many_changes_on_one_version_one_wins(scene: Cluster):
    path = f"/api/namespaces/{scene.namespace}/limits"
    rivals = await asyncio.gather(
        *(
            scene.ask("PATCH", path, {"max_active_leases": number, "if_version": 0})
            for number in range(100, 106)
        )
    )
    assert sorted(each.status for each in rivals) == [200] + [409] * 5
    [lost, *_] = [each for each in rivals if each.status == 409]
    assert (lost.reason, lost["current_version"]) == ("config_version_conflict", 1)
    changes = (await read(scene, f"{path}/history"))["changes"]
    assert [(each["version"], each["setting"]) for each in changes] == [(1, "max_active_leases")]


async def test_the_journal_is_read_page_by_page_and_by_admins_only(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 3))
    tasks = await found(hand)
    await hand.finish_all(tasks)
    (await scene.get("/api/system/journal")).expect(403, "forbidden")
    lines: list[Json] = []
    after: int | None = 0
    while after is not None:
        path = f"/api/system/journal?after={after}&limit=2"
        page = (await scene.get(path, role="admin")).expect(200)
        lines += page["lines"]
        after = page["next_after"]
    of_leases = [each for each in lines if each["event"] in ("granted", "started", "renewed", "ended")]
    mine = [each for each in of_leases if each["task_id"] in {task["task_id"] for task in tasks}]
    assert [each["event"] for each in mine] == ["granted"] * 3 + ["ended"] * 3
    assert [each["seq"] for each in lines] == sorted({each["seq"] for each in lines})
    assert mine[0]["scopes"][0]["scope"] == f"queue:{scene.namespace}/q/activity"


@pytest.fixture(params=list(TOPOLOGIES))
async def own_cluster(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A cluster of the test's own, whose servers it may stop."""
    folder = tmp_path_factory.mktemp("restarted")
    async with serving(request.param, folder, postgres, SETTINGS) as made:
        yield made


async def test_a_restart_with_other_declared_limits_leaves_the_live_ones_in_force(own_cluster: Cluster):
    scene = own_cluster.at("default")
    await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=2, reason="slow database")
    await change(scene, "/api/budget-groups/stripe", max_active_leases=7)
    (await scene.post("/api/namespaces/default/pause", {"expires_in_seconds": 3600})).expect(200)
    before = [await read(scene, path) for path in (f"{QUEUE}/limits", "/api/budget-groups/stripe")]
    for server in scene.servers:
        server.stop()
        server.environment = {
            **server.environment,
            "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE": "9",
            "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE": "3",
        }
    for server in scene.servers:
        server.start()
    queue, group = [await read(scene, path) for path in (f"{QUEUE}/limits", "/api/budget-groups/stripe")]
    assert group == before[1]
    assert queue["version"] == before[0]["version"]
    leases = queue["limits"]["max_active_leases_per_queue"]
    assert leases == before[0]["limits"]["max_active_leases_per_queue"] | {"declared": 9}
    assert leases["value"] == 2
    body = await read(scene, "/api/namespaces/default/limits")
    assert body["all"]["limits"]["paused"]["value"] is True
    assert body["activity_tasks"]["limits"]["max_active_leases"]["value"] == 3
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 5))
    assert await found(hand) == []
    (await scene.post("/api/namespaces/default/resume", {})).expect(200)
    assert len(await found(hand)) == 2
    await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=None)
    assert len(await found(hand)) == 1, "the namespace declares three"


async def test_a_limit_set_at_one_server_holds_at_every_other_at_once(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 12))
    for number, server in enumerate(scene.servers):
        await change(scene, f"{QUEUE}/limits", max_active_leases_per_queue=number + 1)
        reply = await hand.poll("activity", max_tasks=100, server=server)
        assert len(reply.expect(200)["tasks"]) == 1


async def test_a_group_shared_by_all_namespaces_counts_them_together(scene: Cluster):
    other = scene.at(f"{scene.namespace}-too")
    (await scene.post("/api/namespaces", {"name": other.namespace}, role="admin")).expect(201)
    group = f"/api/budget-groups/shared-{scene.namespace}"
    name = group.rpartition("/")[2]
    hands = []
    for each in (scene, other):
        await change(each, f"{QUEUE}/limits", dispatch_budget_group=name)
        await each.queue_up(standing("", 4))
        hands.append(await each.worker("w1"))
    await change(scene, group, role="admin", scope="global", max_active_leases=3)
    assert [len(await found(hand)) for hand in hands] == [3, 0]
    body = await read(other, f"{group}?scope=global")
    assert {each["namespace"] for each in body["task_queues"]} == {scene.namespace, other.namespace}
    assert {each["namespace"] for each in body["all"]["holders"]} == {scene.namespace}
    listed = (await read(other, "/api/budget-groups"))["budget_groups"]
    assert (name, "global") in [(each["budget_group"], each["scope"]) for each in listed]

    async def goes_on() -> bool:
        return len(await found(hands[1])) > 0

    await change(scene, group, role="admin", scope="global", max_active_leases=None)
    await until(goes_on)
