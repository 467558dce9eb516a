"""Servers and databases killed (-9) at random under load keep everything that was acknowledged."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from penstock.stores.group_commit import CommitPoint
from tests.faults.checker import check
from tests.faults.deadlines import until
from tests.faults.load import Load
from tests.faults.observations import Found, Verdict
from tests.faults.servers import Doomed, serving
from tests.support.live import migrate
from tests.support.servers import crashable_postgres, create_database

pytestmark = pytest.mark.faults

ROUNDS = 4
WORKFLOWS, ACTIVITIES = 30, 30


@pytest.fixture
def dice() -> random.Random:
    """A new seed each time; it is printed, so that a failure can be looked at again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def verdict(load: Load, found: Found, kills: int) -> None:
    record = load.record
    print(
        f"{kills} kills, {record.acknowledged} starts acknowledged, {len(record.leases)} leases seen "
        f"({sum(lease.attempt > 1 for lease in record.leases)} of a later attempt), "
        f"{record.counted} reports accepted, {sum(each.sends > 1 for each in record.reports)} sent again, "
        f"{sum(each.verdict is Verdict.REFUSED for each in record.reports)} refused"
    )
    assert check(record, found) == []


async def seen_more(load: Load, more: int) -> None:
    """Wait until the callers have got that many further answers."""
    before = load.record.acknowledged + load.record.counted
    await until(
        f"{more} more answers",
        lambda: (
            load.record.acknowledged + load.record.counted >= before + more
            or load.raise_if_a_worker_gave_up()
        ),
    )


async def test_a_server_killed_again_and_again_under_load_loses_and_doubles_nothing(
    tmp_path: Path, database_url: str, dice: random.Random
) -> None:
    doomed = Doomed(tmp_path, database_url)
    async with serving(doomed), Load([doomed.url]) as load:
        await load.put_to_work()
        for round_ in range(ROUNDS):
            starting = asyncio.create_task(
                load.start_many(f"r{round_}", workflows=WORKFLOWS, activities=ACTIVITIES)
            )
            await seen_more(load, dice.randrange(5, 60))
            if round_ % 2:
                await doomed.kill()
            else:
                doomed.die_at(dice.choice(list(CommitPoint)), dice.randrange(1, 12))
                await doomed.died()
            await doomed.start()
            await starting
        await load.start_again()
        found = await load.finished()
    verdict(load, found, doomed.kills)
    assert load.record.acknowledged == ROUNDS * (WORKFLOWS + ACTIVITIES)


async def test_clients_of_a_killed_server_go_on_with_its_two_neighbours(
    tmp_path: Path, postgres_database: str, dice: random.Random
) -> None:
    three = [Doomed(tmp_path, postgres_database, name=f"server-{n}") for n in range(3)]
    async with serving(*three), Load([each.url for each in three], workers=6) as load:
        await load.put_to_work()
        starting = asyncio.create_task(load.start_many("r", workflows=60, activities=60))
        await seen_more(load, dice.randrange(10, 60))
        await dice.choice(three).kill()
        await starting
        await load.start_again()
        found = await load.finished()
    verdict(load, found, 1)
    assert load.record.acknowledged == 120


async def test_three_servers_outlive_a_database_that_is_killed_and_comes_back(
    tmp_path: Path, dice: random.Random
) -> None:
    with crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        await asyncio.to_thread(migrate, tmp_path, url)
        three = [Doomed(tmp_path, url, name=f"server-{n}") for n in range(3)]
        async with serving(*three), Load([each.url for each in three]) as load:
            await load.put_to_work()
            for round_ in range(2):
                starting = asyncio.create_task(load.start_many(f"r{round_}", workflows=30, activities=30))
                await seen_more(load, dice.randrange(5, 60))
                await asyncio.to_thread(postgres.restart)
                await starting
            await load.start_again()
            found = await load.finished()
    verdict(load, found, 2)
    assert load.record.acknowledged == 120


async def test_a_server_that_is_asked_to_stop_under_load_finishes_its_commits(
    tmp_path: Path, database_url: str, dice: random.Random
) -> None:
    doomed = Doomed(tmp_path, database_url)
    async with serving(doomed), Load([doomed.url]) as load:
        await load.put_to_work()
        starting = asyncio.create_task(load.start_many("r", workflows=WORKFLOWS, activities=ACTIVITIES))
        await seen_more(load, dice.randrange(5, 60))
        assert await doomed.stop() == 0, doomed.last_words()
        assert '"event": "stopped"' in doomed.last_words()
        await doomed.start()
        await starting
        found = await load.finished()
    verdict(load, found, 0)
    assert load.record.acknowledged == WORKFLOWS + ACTIVITIES
