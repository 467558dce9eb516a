"""Permits of dead workers: released within the lease, granted to one worker each, and counted correctly."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator

import asyncpg
import pytest

from penstock.core.verify.journal import LeaseEnded
from tests.acceptance.cluster import Cluster, until
from tests.acceptance.conftest import serving
from tests.acceptance.witness import LimitWitness
from tests.support.dispatch_log import standing
from tests.support.servers import Server

SETTINGS = {"DW_JOURNAL": "true", "DW_ACTIVITY_TASK_TIMEOUT": "2", "DW_WORKFLOW_TASK_TIMEOUT": "2"}


@pytest.fixture
def witness(scene: Cluster) -> LimitWitness:
    return LimitWitness(scene)


async def test_permits_of_a_dead_worker_are_back_within_the_lease(witness: LimitWitness):
    """Scenarios 31 and 33."""
    await witness.limit(max_active_leases=6)
    await witness.limit_namespace(max_active_leases=6)
    await witness.cluster.queue_up(standing("", 6))
    dead, alive = await witness.worker("dead"), await witness.worker("alive")
    lost = await dead.some(6)
    assert len(lost) == 6
    finished: set[str] = set()
    while len(finished) < 6:  # a lease may end before its report on a busy machine: then the task comes again
        for task in await alive.some(6):
            if (await alive.finish(task)).status == 200:
                finished.add(task["task_id"])
    assert finished == {task["task_id"] for task in lost}
    assert await witness.peak() == 6


async def test_work_of_the_dead_that_is_to_fail_fails_or_is_retried_within_the_lease(witness: LimitWitness):
    """Scenario 32, on the wire; what is not to fail is delivered again, and the cap is free for it."""
    await witness.limit(max_active_leases=3)
    scene, retry = witness.cluster, {"max_attempts": 2}
    (await scene.start_activity("once", on_lost_lease="fail")).expect(201)
    (await scene.start_activity("again", on_lost_lease="fail", retry_policy=retry)).expect(201)
    (await scene.start_activity("anew", on_lost_lease="redeliver")).expect(201)
    dead, alive = await witness.worker("dead"), await witness.worker("alive")
    lost = {task["task_id"] for task in await dead.some(3)}
    assert len(lost) == 3
    numbers: list[int] = []
    while len(numbers) < 2:  # each is finished at once, because its lease is short
        for task in await alive.some(3):
            (await alive.finish(task, "done")).expect(200)
            numbers.append(task["attempt_number"])
    assert numbers == [2, 2]
    ended = {
        name: (await scene.get(f"/api/activities/{name}/result?wait_seconds=30")).expect(200)
        for name in ("once", "again", "anew")
    }
    assert [ended[name]["status"] for name in ended] == ["failed", "completed", "completed"]
    assert ended["once"]["failure"]["exception_type"] == "WORKER_CRASHED"
    described = (await scene.get("/api/activities/once")).expect(200)
    assert (described["worker_deaths"], described["is_quarantined"]) == (1, False)
    told = [
        line for line in await witness.verified() if isinstance(line, LeaseEnded) and line.task_id in lost
    ]
    ends = sorted(line.how for line in told)
    assert ends == ["completed", "completed", "expired", "expired", "expired"]
    refused = await scene.start_activity("odd", on_lost_lease="resurrect")
    assert "on_lost_lease" in refused.expect(422, "validation_failed")["errors"]


async def test_of_a_worker_that_stood_still_and_the_one_that_took_over_one_is_heard(witness: LimitWitness):
    """Scenario 34."""
    await witness.limit(max_active_leases=1)
    await witness.cluster.queue_up(standing("", 1))
    frozen, other = await witness.worker("frozen"), await witness.worker("other")
    stale = await frozen.take("activity")
    taken = await other.take("activity")
    late = await frozen.finish(stale, "late")
    late.expect(409, "stale_attempt")
    (await other.finish(taken, "in time")).expect(200)
    assert (await frozen.finish(stale, "later")).status == 409
    ends = [
        line.how
        for line in await witness.verified()
        if isinstance(line, LeaseEnded) and line.task_id == stale["task_id"]
    ]
    assert ends == ["expired", "completed"]


async def test_a_worker_that_leases_its_own_lost_task_again_is_heard_by_the_newer_token(
    witness: LimitWitness,
):
    """Scenario 35."""
    await witness.limit_namespace(max_active_leases=1)
    await witness.cluster.queue_up(standing("", 1))
    hand = await witness.worker("w1")
    older = await hand.take("activity")
    while True:  # on a busy machine the newer lease may end too, before it is reported
        newer = await hand.take("activity")
        assert older["task_id"] == newer["task_id"]
        refused, heard = await hand.finish(older), await hand.finish(newer)
        assert refused.status == 409
        if heard.status == 200:
            break
        older = newer
    assert refused.reason == "stale_attempt"
    assert await witness.peak() == 1


async def test_a_worker_that_says_goodbye_returns_its_permits_at_once(witness: LimitWitness):
    """Scenario 45, as far as the server goes."""
    await witness.limit(max_active_leases=4)
    await witness.cluster.queue_up(standing("", 4))
    leaving, staying = await witness.worker("leaving"), await witness.worker("staying")
    tasks = await leaving.some(4)
    (await leaving.finish(tasks[0])).expect(200)
    path = f"/api/worker/registrations/{leaving.worker_id}"
    (await witness.cluster.ask("DELETE", path, role="worker")).expect(200)
    returned = await staying.some(4, timeout=0)
    assert {task["task_id"] for task in returned} == {task["task_id"] for task in tasks[1:]}
    await witness.verified()


@pytest.fixture(params=["sqlite", "postgres"])
async def own_cluster(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A cluster of the test's own, whose server it may stop."""
    long = SETTINGS | {"DW_ACTIVITY_TASK_TIMEOUT": "600"}
    async with serving(request.param, tmp_path_factory.mktemp("corrupted"), postgres, long) as made:
        yield made.at("default")


async def corrupt(url: str, statement: str) -> None:
    """Do what no server does: change what a scope counts."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        with connection:
            connection.execute(statement)
        connection.close()
        return
    database = await asyncpg.connect(url)
    await database.execute(statement)
    await database.close()


@pytest.mark.parametrize("wrong_by", [-3, 5])
async def test_counts_changed_by_hand_are_put_right_and_an_alarm_is_logged(
    own_cluster: Cluster, wrong_by: int
):
    """Scenario 16."""
    witness, server = LimitWitness(own_cluster), own_cluster.first
    await witness.limit_namespace(max_active_leases=4)
    await own_cluster.queue_up(standing("", 20))
    hand = await witness.worker("w1")
    tasks = await hand.some(20)
    assert len(tasks) == 4
    server.stop()
    url = server.environment["DW_DATABASE_URL"]
    await corrupt(url, f"UPDATE scopes SET granted = granted + {wrong_by} WHERE name = 'namespace:default'")
    await asyncio.to_thread(server.start)

    async def told() -> bool:
        return "a scope's counter was wrong and has been corrected" in server.log.read_text()

    await until(told)
    path = "/api/namespaces/default/limits"
    counts = (await own_cluster.get(path)).expect(200)["all"]["counts"]
    assert (counts["active_leases"], counts["remaining_active_leases"]) == (4, 0)
    (await hand.finish(tasks[0])).expect(200)
    assert len(await hand.some(20)) == 1
    assert await witness.peak() == 4
