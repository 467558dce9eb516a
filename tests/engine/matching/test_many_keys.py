"""More new keys than one claim tags: each is served once before any is served twice."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.core.model import TaskKind, TaskPriority
from penstock.core.scheduling.fairness import TAGGED_AT_ONCE_MAX
from penstock.core.scheduling.polls import Granted, Retry
from tests.engine.support.scene import Scene, a_poll
from tests.support.claims import leased_of

KEYS = 3 * TAGGED_AT_ONCE_MAX + 32


async def enqueue(scene: Scene, key: str, times: int, level: int = 3) -> None:
    for number in range(times):
        await scene.start_activity(f"{key}-{level}-{number}", priority=TaskPriority(level=level, key=key))


async def take(scene: Scene, count: int, together: int) -> list[tuple[int, str]]:
    """Dispatches in order, claimed `batch` at a time."""
    taken: list[tuple[int, str]] = []
    while len(taken) < count:
        [verdict] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=min(together, count - len(taken))))
        assert isinstance(verdict, Granted | Retry)
        taken += [(each.task.level, each.task.key) for each in leased_of(verdict)]
    return taken


@pytest.mark.parametrize("together", [7, 100, 2 * KEYS])
async def test_every_key_is_served_once_before_any_is_served_twice(scene: Scene, together: int):
    await scene.register()
    for number in range(KEYS):
        await enqueue(scene, f"key-{number:04}", 2)
    first = await take(scene, KEYS, together)
    assert Counter(first).most_common(1)[0][1] == 1
    assert Counter(await take(scene, KEYS, together)) == Counter(first)


async def test_a_key_that_comes_while_others_are_still_to_be_placed_is_served_within_one_round(scene: Scene):
    await scene.register()
    for number in range(KEYS):
        await enqueue(scene, f"key-{number:04}", 2)
    await take(scene, 20, 10)
    await enqueue(scene, "late", 1)
    assert (3, "late") in await take(scene, KEYS + 1, 10)


async def test_no_lower_level_goes_while_keys_of_a_higher_one_are_still_to_be_placed(scene: Scene):
    await scene.register()
    await enqueue(scene, "low", 1, level=5)
    for number in range(KEYS):
        await enqueue(scene, f"key-{number:04}", 1, level=1)
    order = await take(scene, KEYS + 1, 2 * KEYS)
    assert order[-1] == (5, "low")
