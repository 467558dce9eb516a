"""Tests of the checker: it finds nothing in the engine, and every mutant by name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.assembly import _nonces
from penstock.core.scheduling.polls import Poll
from penstock.core.verify.findings import Law
from penstock.core.verify.observations import ObservedFinal, StartSent
from penstock.engine.matching.dispatcher import Dispatcher
from tests.acceptance.witness import in_words
from tests.faults.engine_under_check import ACTIVITY, Player
from tests.faults.mutants import BESIDE_LIMITS, MUTANTS, Mutant

pytestmark = pytest.mark.faults

SEEDS = range(6)
STEPS = 700


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_engine_as_it_is_breaks_no_law(seed: int) -> None:
    book = await (await (await Player.at(seed)).run(STEPS)).verdict()
    assert in_words(book) == []
    for law in (Law.CAP, Law.RATE, Law.COST, Law.CLIENT_CAP, Law.LIMIT_IN_FORCE, Law.CLOSED, Law.FIFO):
        assert book.checked[law] > 0, law


async def waiting_poll_and_a_start(player: Player) -> None:
    """A worker polls an empty queue; then a task is started and everything settles."""
    dispatcher = Dispatcher(player.ctx)
    dispatcher.start()
    poll = Poll("default", "w-default-c", "c", ACTIVITY)
    waiting = asyncio.create_task(dispatcher.poll(poll, 1_500))
    while not dispatcher._queues or any(each.claiming for each in dispatcher._queues.values()):
        await asyncio.sleep(0)
    await player.start("c")
    [start] = [each for each in player.seen if isinstance(each, StartSent)]
    answer = await waiting
    await dispatcher.close()
    state = "leased" if answer.leased else "ready"
    player.rest(ObservedFinal(state, start.task_id, task_queue=start.task_queue))


async def test_a_poll_that_waits_gets_what_comes() -> None:
    player = await Player.at(0)
    await waiting_poll_and_a_start(player)
    assert in_words(await player.verdict()) == []


async def found(mutant: Mutant, patch: pytest.MonkeyPatch) -> Counter[Law]:
    total: Counter[Law] = Counter()
    for seed in SEEDS:
        player = await Player.at(seed)
        with patch.context() as here:
            mutant.commit(here)
            if Law.LOST in mutant.caught_by:
                await waiting_poll_and_a_start(player)
            else:
                await player.run(STEPS)
        total += (await player.verdict()).found
        if mutant.caught_by & set(total):
            break
    return total


@pytest.mark.parametrize("name", list(MUTANTS))
async def test_a_mutant_is_caught_by_the_name_of_its_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    total = await found(mutant, monkeypatch)
    assert mutant.caught_by & set(total), f"{name} lives: {dict(total)}"


async def weight_at_enqueue(player: Player) -> bool:
    """Caught if what waited does not go by the weight that was set meanwhile."""
    return await player.share_of_an_override() < 0.7


async def nonce_not_stored(player: Player) -> bool:
    """Caught if a nonce is taken twice."""
    register = _nonces(player.ctx)
    return [await register("key", "nonce", 1), await register("key", "nonce", 1)] != [True, False]


CHECKS = {check.__name__: check for check in (weight_at_enqueue, nonce_not_stored)}


@pytest.mark.parametrize("commit", BESIDE_LIMITS, ids=lambda each: str(each.__name__))
async def test_a_mutant_beside_limits_breaks_the_check_of_its_name(
    commit: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await CHECKS[commit.__name__](await Player.at(0))
    commit(monkeypatch)
    assert await CHECKS[commit.__name__](await Player.at(0))
