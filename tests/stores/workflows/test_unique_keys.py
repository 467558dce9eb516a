"""Unique keys on both stores: starts that are committed together, and starts that race on two servers."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.model import Blob, RunId
from penstock.core.starts.unique_starts import Debounce, UniqueStart, UniqueUntil
from penstock.engine.context import EngineContext
from penstock.engine.operations import namespaces
from penstock.engine.workflows import starts
from penstock.engine.workflows.starts import StartOutcome, StartResult
from penstock.ports.store import Store
from tests.engine.support.scene import a_start
from tests.stores.workflows import test_id_policies as of_ids
from tests.stores.workflows.test_id_policies import a_house, close

servers = of_ids.servers

AT_ONCE = 12
DEBOUNCED = UniqueStart("k", UniqueUntil.STARTED, debounce=Debounce(60_000, 600_000))


async def start(ctx: EngineContext, number: int, unique: UniqueStart) -> StartResult:
    request = a_start(f"w{number}", unique=unique, input=Blob(f"input-{number}"), delay_ms=60_000)
    return await starts.start_workflow(ctx, request)


@pytest.fixture
async def ctx(store: Store) -> EngineContext:
    made = a_house(store)
    await namespaces.ensure(made, "default")
    return made


async def test_of_the_starts_of_one_batch_one_takes_the_key(ctx: EngineContext):
    for wave in range(2):
        requests = [a_start(f"w{wave}-{number}", unique=UniqueStart("k")) for number in range(AT_ONCE)]
        found = await ctx.store.transact_all([starts.workflow_start(ctx, each) for each in requests])
        results = [each for each in found if isinstance(each, StartResult)]
        assert len(results) == AT_ONCE
        assert [each.outcome for each in results].count(StartOutcome.STARTED_NEW) == 1
        [run_id] = {each.run.run_id for each in results}
        await close(ctx, run_id)


async def test_starts_that_race_on_two_servers_make_one_run_with_the_last_input(
    servers: list[EngineContext],
):
    """Each start reports what it did under the lock of the key, so the last to be committed gave the input."""
    results = await asyncio.gather(
        *(start(servers[number % 2], number, DEBOUNCED) for number in range(AT_ONCE)),
        *(start(servers[number % 2], number, UniqueStart("other")) for number in range(100, 100 + AT_ONCE)),
    )
    outcomes = [each.outcome for each in results[:AT_ONCE]]
    assert outcomes.count(StartOutcome.STARTED_NEW) == 1
    assert outcomes.count(StartOutcome.DEBOUNCED) == AT_ONCE - 1
    [run_id] = {each.run.run_id for each in results[:AT_ONCE]}
    assert len({each.run.run_id for each in results[AT_ONCE:]}) == 1
    last = await start(servers[0], 99, DEBOUNCED)
    assert last.run.run_id == run_id
    run = await servers[1].store.read(lambda tx: tx.runs.get(RunId(run_id)))
    assert run is not None
    assert run.input == Blob("input-99")
