"""Whether a long history costs more: polls, appends and pages of runs with few, more and many events.

One run is driven to its length through HTTP and copied while no server is up, so that each step is measured on many
runs and not on one that grows meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.crowds import grow_postgres, grow_sqlite
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.workflows_client import FIRST_PAGE, SIDE_EFFECT, WAIT, Json, Talk, talk
from benchmarks.workflows_meter import Took, in_turn, row
from benchmarks.workloads import Say

PART = "history"
COMMANDS_MAX = 1000
FEW = 3
"""Side effects in the completion that is measured; with the wait before and after, six events."""
POLL, APPEND = f"poll, first page of {FIRST_PAGE}", f"completion of {FEW + 1} commands"
TASK_PAGE, PAGE = "page of 1,000 for a worker", "page of 1,000 for an operator"
FIRST, LAST = f"{PAGE}, the first", f"{PAGE}, the last"
PAGE_EVENTS = 1000
PAGED_RUNS = 5


class Histories:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, store: StoreName) -> list[dict[str, Any]]:
        found: dict[int, dict[str, list[Took]]] = {}
        with contextlib.ExitStack() as stack:
            stands = {
                events: stack.enter_context(serving(store, self._ground, self._grown(store, events), LEASES))
                for events in self._sizes.history_events
            }
            # The first round warms up.
            for number in range(self._sizes.repetitions + 1):
                self._say(f"workflows, {store.value}: histories, repetition {number}")
                for events, stand in stands.items():
                    tooks = uvloop.run(_measure(stand, events, self._sizes.history_runs))
                    for what, took in tooks.items() if number else ():
                        found.setdefault(events, {}).setdefault(what, []).append(took)
        return list(self._rows(store, found))

    def _rows(
        self, store: StoreName, found: Mapping[int, Mapping[str, Sequence[Took]]]
    ) -> Iterator[dict[str, Any]]:
        least, page, *_ = self._sizes.history_events
        beside = {POLL: found[page][POLL], APPEND: found[least][APPEND], LAST: found[max(found)][FIRST]}
        for events, by_kind in found.items():
            for what, tooks in by_kind.items():
                if what != LAST or events == max(found):
                    yield row(store, PART, what, events, tooks, beside.get(what, ()))

    def _grown(self, store: StoreName, events: int) -> str:
        """The URL of a database with runs of so many events, each with a workflow task that waits."""
        self._say(f"workflows, {store.value}: filling histories of {events:,} events")
        url = new_store(store, self._ground)
        with serving(store, self._ground, url) as stand:
            uvloop.run(prepare(stand, events))
        copies = self._sizes.history_runs - 1
        if store is StoreName.SQLITE:
            grow_sqlite(Path(url.removeprefix("sqlite:///")), copies)
        else:
            grow_postgres(url, copies)
        return url


LEASES = {"DW_WORKFLOW_TASK_TIMEOUT": "3600", "DW_WORKER_STALE_AFTER_SECONDS": "3600"}
"""All tasks are leased before the first of them is completed."""


async def prepare(stand: Stand, events: int) -> None:
    """Start a run and give it so many events, the last of them a signal."""
    async with talk(stand.url) as talking:
        workflow_id = await talking.start()
        recorded = 0
        while recorded < events:
            task = await talking.take_one()
            # The completion also records that the wait is over, if there was one, and that the next is open.
            around = 2 + (recorded > 0)
            room = events - int(task["last_history_sequence"]) - around
            effects = max(0, min(COMMANDS_MAX - 1, room))
            await talking.decide(task, [SIDE_EFFECT] * effects + [WAIT])
            await talking.signal(workflow_id)
            recorded = int(task["last_history_sequence"]) + effects + around


async def _measure(stand: Stand, events: int, runs: int) -> dict[str, Took]:
    """Take the tasks of all runs, read, append; then tell the runs something, so that their tasks wait again."""
    found: dict[str, Took] = {}
    async with talk(stand.url) as talking:
        tasks: list[Json] = []

        async def take() -> None:
            tasks.append(await talking.take_one())

        found[POLL] = await in_turn(stand, [take] * runs)
        names = [str(task["workflow_id"]) for task in tasks]
        if events > FIRST_PAGE:
            found[TASK_PAGE] = await _task_pages(stand, talking, tasks[:PAGED_RUNS])
            found |= await _pages(stand, talking, names, events)
        commands = [SIDE_EFFECT] * FEW + [WAIT]
        found[APPEND] = await in_turn(stand, [partial(talking.decide, task, commands) for task in tasks])
        for name in names:
            await talking.signal(name)
    return found


async def _task_pages(stand: Stand, talking: Talk, tasks: Sequence[Json]) -> Took:
    took = Took(stand.pids)
    with took.whole():
        for task in tasks:
            token: str | None = task["next_history_page_token"]
            while token is not None:
                token = await took.step(talking.task_page(task, token))
    return took


async def _pages(stand: Stand, talking: Talk, runs: Sequence[str], events: int) -> dict[str, Took]:
    """The histories of some runs, page after page; and of all runs the first page, and the last full one."""
    took, tokens = Took(stand.pids), [""]
    with took.whole():
        for workflow_id in runs[:PAGED_RUNS]:
            tokens = [""]
            while True:
                token = await took.step(talking.history_page(workflow_id, tokens[-1]))
                if token is None:
                    break
                tokens.append(token)
    last = tokens[max(0, events // PAGE_EVENTS - 1)]
    ends = {
        what: await in_turn(stand, [partial(talking.history_page, run, token) for run in runs])
        for what, token in ((FIRST, ""), (LAST, last))
    }
    return {PAGE: took} | ends
