"""Stale workers. Here a worker is stale two seconds after its last heartbeat."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from tests.acceptance.cluster import Cluster, open_polls, until
from tests.acceptance.matching.test_workers import builds, has_status

SETTINGS = {"DW_WORKER_STALE_AFTER_SECONDS": "2"}
STALE_AFTER = timedelta(seconds=2)


async def test_a_silent_worker_is_shown_as_stale_and_comes_back_by_polling(scene: Cluster) -> None:
    worker = await scene.worker("py-1")
    await until(lambda: has_status(scene, "py-1", "stale"))
    queue = (await scene.get("/api/task-queues/q")).ok()
    assert (queue["stats"]["pollers"]["active_count"], queue["stats"]["pollers"]["stale_count"]) == (0, 1)
    assert queue["pollers"][0]["is_stale"] is True
    listed = (await scene.get("/api/workers?status=stale")).ok()["workers"]
    assert [each["worker_id"] for each in listed] == ["py-1"]
    assert (await builds(scene))[None]["rollout_status"] == "stale_only"
    (await worker.poll()).expect(200)
    assert (await scene.get("/api/workers/py-1")).ok()["status"] == "active"


async def test_an_open_long_poll_is_a_heartbeat_of_its_worker(scene: Cluster) -> None:
    worker = await scene.worker("py-1")

    async def last_heartbeat() -> datetime:
        return datetime.fromisoformat((await scene.get("/api/workers/py-1")).ok()["last_heartbeat_at"])

    waiting = asyncio.create_task(worker.poll(timeout=40, server=scene.first))
    await open_polls(scene, 1)
    opened = await last_heartbeat()

    async def outlived_its_silence() -> bool:
        return await last_heartbeat() > opened + STALE_AFTER

    await until(outlived_its_silence)
    assert not waiting.done()
    (await scene.start("order-1")).expect(201)
    assert (await waiting)["poll_status"] == "leased"
