"""Whether a long history costs more: polls, appends and pages of runs with few, more and many events.

One run is driven to its length through HTTP and copied while no server is up, so that each step is measured on many
runs and not on one that grows meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
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
PAGED_RUNS = 5


class Histories:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, store: StoreName) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Took]] = {}
        for events in self._sizes.history_events:
            self._say(f"workflows, {store.value}: histories of {events:,} events")
            url = self._grown(store, events)
            with serving(store, self._ground, url, LEASES) as stand:
                found[events] = uvloop.run(_measure(stand, self._sizes.history_runs))
        least, page, *_ = self._sizes.history_events
        beside = {POLL: page, APPEND: least}
        rows = [
            row(store, PART, what, events, [took], [found[beside[what]][what]] if what in beside else [])
            for events, tooks in found.items()
            for what, took in tooks.items()
            if what != LAST
        ]
        longest = found[max(found)]
        rows.append(row(store, PART, LAST, max(found), [longest[LAST]], [longest[FIRST]]))
        return rows

    def _grown(self, store: StoreName, events: int) -> str:
        """The URL of a database with runs of so many events, each with a workflow task that waits."""
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


async def _measure(stand: Stand, runs: int) -> dict[str, Took]:
    found: dict[str, Took] = {}
    async with talk(stand.url) as talking:
        tasks: list[Json] = []

        async def take() -> None:
            tasks.append(await talking.take_one())

        found[POLL] = await in_turn(stand, [take] * runs)
        if any(task["next_history_page_token"] for task in tasks):
            found[TASK_PAGE] = await _task_pages(stand, talking, tasks[:PAGED_RUNS])
            found |= await _pages(stand, talking, [str(task["workflow_id"]) for task in tasks])
        commands = [SIDE_EFFECT] * FEW + [WAIT]
        found[APPEND] = await in_turn(stand, [partial(talking.decide, task, commands) for task in tasks])
    return found


async def _task_pages(stand: Stand, talking: Talk, tasks: Sequence[Json]) -> Took:
    took = Took(stand.pids)
    with took.whole():
        for task in tasks:
            token: str | None = task["next_history_page_token"]
            while token is not None:
                token = await took.step(talking.task_page(task, token))
    return took


async def _pages(stand: Stand, talking: Talk, runs: Sequence[str]) -> dict[str, Took]:
    """The histories of some runs, page after page; and of all runs the first page, and the last full one."""
    took, last = Took(stand.pids), ""
    with took.whole():
        for workflow_id in runs[:PAGED_RUNS]:
            token: str | None = ""
            while token is not None:
                before, (_, token) = token, await took.step(talking.history_page(workflow_id, token))
                last = before
    ends = {
        what: await in_turn(stand, [partial(talking.history_page, run, token) for run in runs])
        for what, token in ((FIRST, ""), (LAST, last))
    }
    return {PAGE: took} | ends
