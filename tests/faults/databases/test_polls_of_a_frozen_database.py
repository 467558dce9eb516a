"""PostgreSQL freezes during polls: they end before their deadline, and undelivered grants are refunded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from penstock.core.verify.check import check
from penstock.core.verify.findings import Law
from penstock.wire.operations.journal import read_journal
from tests.acceptance.cluster import Cluster, Hand, Json, Reply
from tests.faults.deadlines import until
from tests.support.dispatch_log import standing
from tests.support.lag import Lag
from tests.support.live import migrate, running, server
from tests.support.servers import CrashablePostgres, crashable_postgres, create_database, drop_database

pytestmark = pytest.mark.faults

TASKS = 7
COST = 300
FREEZES = 4
LATE_S_MAX = 4.0
"""The grace and the slack of a poll, and some."""


@pytest.fixture
async def frozen(tmp_path: Path) -> AsyncIterator[tuple[Cluster, CrashablePostgres]]:
    with crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        migrate(tmp_path, url)
        with running(server(tmp_path, url, settings={"DW_JOURNAL": "true"})) as servers:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                yield Cluster(servers, session), postgres
        await drop_database(postgres.server, url)


async def section(scene: Cluster) -> Json:
    found: Json = (await scene.get("/api/task-queues/q")).expect(200)["admission"]["activity_tasks"]
    return found


async def spent(scene: Cluster) -> tuple[int, int]:
    """Dispatches of the queue, and cost of its group, that count now."""
    found = await section(scene)
    [cost] = [cap["used"] for cap in found["caps"] if cap["limit"] == "cost_per_minute"]
    return found["server_dispatch_count_this_minute"], cost


async def poll_while_frozen(hand: Hand, postgres: CrashablePostgres) -> tuple[Reply, float]:
    """A poll of one second that is sent when the database has just stopped; it goes on when the poll is answered."""
    postgres.pause()
    began = time.monotonic()
    try:
        with Lag() as lag:
            reply = await hand.poll_once("activity", 1)
            ended = time.monotonic()
            return reply, ended - began - lag.between(began, ended)
    finally:
        postgres.resume()


async def test_polls_that_a_freeze_outlasts_say_unavailable_and_spend_nothing(
    frozen: tuple[Cluster, CrashablePostgres],
):
    scene, postgres = frozen
    hand = await scene.worker("w1")
    of_queue = {"dispatch_budget_group": "bank", "max_dispatches_per_minute": TASKS}
    (await scene.ask("PATCH", "/api/task-queues/q/limits", of_queue)).expect(200)
    of_group = {"max_cost_per_minute": TASKS * COST}
    (await scene.ask("PATCH", "/api/budget-groups/bank", of_group)).expect(200)
    await scene.queue_up(standing("", TASKS, cost_estimate=COST))
    (await hand.poll_once("workflow")).expect(200)
    for _ in range(FREEZES):
        await spent(scene)
        reply, took_s = await poll_while_frozen(hand, postgres)
        assert (reply["task"], reply["poll_status"]) == (None, "unavailable"), reply.status
        assert took_s < 1 + LATE_S_MAX

        async def refunded() -> bool:
            found = await section(scene)
            return found["ready_count"] == TASKS and await spent(scene) == (0, 0)

        await until("what was not delivered is refunded", refunded)
    tasks = await hand.drain(TASKS)
    assert len(tasks) == TASKS
    book, _ = check(read_journal(await journal(scene), "journal"))
    assert book.findings == []
    assert book.found[Law.DELIVERED] == 0


async def journal(scene: Cluster) -> list[bytes]:
    found = (await scene.get("/api/system/journal?limit=1000", role="admin")).expect(200)
    return [json.dumps(line).encode() + b"\n" for line in found["lines"]]


async def test_a_poll_on_a_queue_new_to_the_server_ends_in_its_time_though_the_database_stands_still(
    frozen: tuple[Cluster, CrashablePostgres],
):
    scene, postgres = frozen
    hands = [await scene.worker(f"w{number}", f"new-{number}") for number in range(3)]
    postgres.pause()
    began = time.monotonic()
    with Lag() as lag:
        try:
            replies = await asyncio.gather(*(hand.poll_once("activity", 2) for hand in hands))
        finally:
            postgres.resume()
        ended = time.monotonic()
    assert ended - began - lag.between(began, ended) < 2 + LATE_S_MAX
    assert [(each["task"], each["poll_status"]) for each in replies] == [(None, "unavailable")] * 3
