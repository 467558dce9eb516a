"""Random programs on the public SDK, with messages while they run; every history is replayed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from durable_workflow import WorkflowHandle
from durable_workflow.errors import (
    QueryFailed,
    ServerError,
    SignalFailed,
    UpdateFailed,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
)

from tests.acceptance.cluster import Cluster
from tests.acceptance.sdk.flow_gates import next_task_held
from tests.acceptance.sdk.flow_runner import Flows, both_stores, flowing
from tests.acceptance.sdk.flows_random import program

PROGRAMS = 8
BREATH_SECONDS = 0.2
pytestmark = both_stores
ENDS = (WorkflowFailed, WorkflowCancelled, WorkflowTerminated)


@pytest.fixture(scope="module")
async def flows(cluster: Cluster) -> AsyncIterator[Flows]:
    async with flowing(cluster) as made:
        yield made


async def talk(handle: WorkflowHandle, dice: random.Random) -> None:
    """Say one word after the other, one way or another, until nobody listens any more."""
    for number in itertools.count():
        await asyncio.sleep(BREATH_SECONDS * dice.random())
        try:
            match dice.randint(0, 6):
                case 0:
                    await handle.update("tell", [number], wait_for="completed", wait_timeout_seconds=30)
                case 1:
                    await handle.update("tell", [number], wait_for="accepted")
                case 2:
                    await handle.query("heard")
                case 3:
                    async with next_task_held(handle.workflow_id):
                        await handle.signal("hear", [f"{number} early"])
                        await handle.signal("hear", [f"{number} late"])
                case _:
                    await handle.signal("hear", [number])
        except (SignalFailed, UpdateFailed, QueryFailed, ServerError):
            if (await handle.describe()).status not in ("pending", "running", "waiting"):
                return


async def live(flows: Flows, seed: int) -> Any:
    """A program from its start to its end, whatever that is."""
    dice = random.Random(seed)
    written = program(dice)
    handle = await flows.start("program", written, [])
    talking = asyncio.create_task(talk(handle, dice))
    try:
        if dice.randint(0, 9) == 0:
            with contextlib.suppress(ServerError):
                await getattr(handle, dice.choice(["cancel", "terminate"]))(reason="enough")
        ended = await flows.result(handle)
    except ENDS as end:
        ended = end
    except AssertionError as problem:
        raise AssertionError(f"seed {seed}: {written}\n{problem}") from problem
    finally:
        talking.cancel()
        await asyncio.wait([talking])
    try:
        pasts = await flows.replayed(handle)
    except AssertionError as problem:
        raise AssertionError(f"seed {seed}: {written}\n{problem}") from problem
    words = list(ended[1]) if isinstance(ended, list) else []
    assert len(set(words)) == len(words), f"seed {seed}: a word was heard twice in {len(pasts)} runs: {words}"
    return ended


@pytest.mark.parametrize("first_seed", [0])
async def test_random_programs_end_and_replay(flows: Flows, first_seed: int) -> None:
    seeds = range(first_seed, first_seed + PROGRAMS)
    ends = await asyncio.gather(*(live(flows, seed) for seed in seeds), return_exceptions=True)
    problems = [end for end in ends if isinstance(end, BaseException) and not isinstance(end, ENDS)]
    assert not problems, "\n\n".join(str(problem) for problem in problems)
