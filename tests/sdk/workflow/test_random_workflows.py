"""Random programs have the same result however often workers evict runs, die or come back."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Client, Replayer, Worker
from penstock.sdk.failures import WorkflowFailureError
from penstock.sdk.replay.replayer import History
from tests.sdk.behaviours.history_replay import Retracer
from tests.sdk.behaviours.model import ModelServer, carry_out
from tests.sdk.behaviours.programs import Interpreter, Program, give, refuse, signals_in
from tests.sdk.server_fixtures import connected, new_namespace, serving
from tests.support.effort import times
from tests.support.patience import PATIENCE_S

RETRACER = Retracer([Interpreter])
VALUES = st.integers(0, 99)


def programs(*, timed: bool) -> st.SearchStrategy[Program]:
    """Programs; `timed` ones may depend on timing."""
    leaves: list[st.SearchStrategy[Any]] = [
        st.tuples(st.just("give"), VALUES),
        st.tuples(st.just("refuse"), VALUES),
        st.tuples(st.just("local"), VALUES),
        st.tuples(st.just("local_refuse"), VALUES),
        st.tuples(st.just("sleep"), st.sampled_from([1, 5, 20])),
        st.tuples(st.just("note"), VALUES),
        st.tuples(st.just("patch"), st.sampled_from("abc")),
    ]
    if timed:
        leaves.append(st.just(("chance",)))
        kinds = st.sampled_from(["try_cancel", "wait_cancellation_completed", "abandon"])
        leaves.append(st.tuples(st.just("stop"), st.sampled_from([1, 20]), kinds))

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, min_size=1, max_size=4)
        grown: list[st.SearchStrategy[Any]] = [
            st.tuples(st.just("one_by_one"), several),
            st.tuples(st.just("together"), several),
            st.tuples(st.just("group"), several),
            st.tuples(st.just("give_up"), inner),
            st.tuples(st.just("child"), inner),
            st.tuples(
                st.just("catch"), st.tuples(st.just("together"), st.tuples(inner, st.just(("fail", 1))))
            ),
        ]
        if timed:
            grown.append(st.tuples(st.just("race"), several))
            grown.append(st.tuples(st.just("within"), st.sampled_from([1, 20]), inner))
            grown.append(st.tuples(st.just("shield"), inner))
        return st.one_of(grown)

    body = st.recursive(st.one_of(leaves), grow, max_leaves=12)
    heard = st.tuples(st.just("together"), st.tuples(st.tuples(st.just("hear"), st.integers(1, 3)), body))
    return st.one_of(body, heard).map(_plain)


def _plain(program: Any) -> Any:
    """Lists instead of tuples, as after decoding."""
    return json.loads(json.dumps(program))


def dying(seed: int, often: float) -> Callable[[], bool]:
    dice = random.Random(seed)
    return lambda: dice.random() < often


@settings(max_examples=times(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs(timed=True), st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 0.9]), st.booleans())
def test_a_worker_that_forgets_or_dies_changes_nothing_in_the_history(
    program: Program, seed: int, often: float, cancels: bool
) -> None:
    calm = carry_out(ModelServer(program, seed, cancels=cancels))
    troubled = carry_out(ModelServer(program, seed, cancels=cancels), dying(seed, often))
    assert troubled.events == calm.events
    assert _ended(troubled) == _ended(calm)


def _ended(server: ModelServer) -> Any:
    if server.end is None:
        return None
    told = {name: value for name, value in server.end.items() if name != "exception"}
    return json.dumps(told, sort_keys=True)


@settings(max_examples=times(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs(timed=True), st.integers(0, 10**6))
def test_every_beginning_of_a_history_leads_to_what_came_next(program: Program, seed: int) -> None:
    done = carry_out(ModelServer(program, seed))
    RETRACER.check(History(done.events, "of model", "model", "Interpreter", task_queue="model"))


def test_a_program_that_was_changed_is_found_out() -> None:
    """Checks that model and replayer detect differences at all."""
    done = carry_out(ModelServer(["one_by_one", [["give", 1], ["sleep", 5]]], 1))
    other = carry_out(ModelServer(["one_by_one", [["sleep", 5], ["give", 1]]], 1))
    changed = [other.events[0], *done.events[1:]]
    result = Replayer(workflows=[Interpreter]).replay(History(changed, "of model", "model", "Interpreter"))
    assert not result.fits


EXAMPLES = 6


@pytest.mark.slow
async def test_random_programs_on_a_real_server_end_alike_with_workers_that_come_and_go(
    tmp_path: Path,
) -> None:
    seed = random.randrange(10**6)
    print(f"programs by dice {seed}")
    chosen = _some_programs(seed)
    async with serving(tmp_path, DW_WORKFLOW_TASK_TIMEOUT="2", DW_ACTIVITY_TASK_TIMEOUT="3") as cluster:
        async with await connected(await new_namespace(cluster)) as client, _worker(client, 1000):
            calm = await _results(client, chosen)
        async with await connected(await new_namespace(cluster)) as client:
            coming_and_going = asyncio.ensure_future(_come_and_go(client, random.Random(seed)))
            try:
                troubled = await _results(client, chosen)
            finally:
                coming_and_going.cancel()
                await asyncio.gather(coming_and_going, return_exceptions=True)
    assert troubled == calm


def _some_programs(seed: int) -> list[Program]:
    found: list[Program] = []

    @settings(max_examples=EXAMPLES * 4, database=None, derandomize=False)
    @given(programs(timed=False))
    def look(program: Program) -> None:
        found.append(program)

    look()
    dice = random.Random(seed)
    return dice.sample(found, min(EXAMPLES, len(found)))


def _worker(client: Client, cached: int) -> Worker:
    return Worker(
        client,
        task_queue="random",
        workflows=[Interpreter],
        activities=[give, refuse],
        max_cached_workflows=cached,
    )


async def _come_and_go(client: Client, dice: random.Random) -> None:
    """Workers with short lives and a cache of two runs or none."""
    while True:
        working = asyncio.ensure_future(_worker(client, dice.choice([0, 2])).run())
        try:
            await asyncio.sleep(dice.uniform(0.05, 0.6))
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def _results(client: Client, chosen: list[Program]) -> list[Any]:
    return await asyncio.gather(*(_result(client, number, each) for number, each in enumerate(chosen)))


async def _result(client: Client, number: int, program: Program) -> Any:
    handle = await client.start_workflow(Interpreter.run, program, id=f"p{number}", task_queue="random")
    for signal in range(signals_in(program)):
        await handle.signal(Interpreter.tell, signal + 1)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await handle.result()
    except WorkflowFailureError as error:
        return f"{type(error.cause).__name__}: {error.cause}"
