"""What it costs that many activities belong to one run: a group of them beside as many standalone ones."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import uvloop

from benchmarks.samples import ratio, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, stand
from benchmarks.workflows_client import Json, Talk, talk
from benchmarks.workflows_meter import Took, in_turn, row
from benchmarks.workload_loops import ACTIVITY_TYPE, BATCH_LOOPS, LOOPS
from benchmarks.workloads import Say

PART = "fan-out"
BATCH = 50
ONE_BY_ONE, BATCHES = "one task per request", f"up to {BATCH} tasks per request"
SCHEDULE = "completion that schedules the group"
GROUP, ALONE = "activities of one group, until the run is woken", "standalone activities"
SLICES = 10
"""The first and the last such part of the reports are compared."""


class FanOut:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, store: StoreName) -> list[dict[str, Any]]:
        with stand(store, self._ground) as server:
            return list(self._rows(store, uvloop.run(self._measure(server))))

    async def _measure(self, server: Stand) -> dict[tuple[str, str], list[Took]]:
        found: dict[tuple[str, str], list[Took]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            self._say(f"workflows, {server.store.value}: fan-out, repetition {number}")
            for name, batch in ((ONE_BY_ONE, 1), (BATCHES, BATCH)):
                async with talk(server.url, f"fan-out-{number}-{batch}") as talking:
                    crew = _Crew(server, talking, batch, self._sizes.fan_out)
                    await talking.start_activities(self._sizes.fan_out)
                    found[ALONE, name].append(await crew.work_off())
                    scheduling, took = await crew.fan_out()
                    found[SCHEDULE, name].append(scheduling)
                    found[GROUP, name].append(took)
        return found

    def _rows(self, store: StoreName, found: dict[tuple[str, str], list[Took]]) -> Iterator[dict[str, Any]]:
        size = self._sizes.fan_out
        for (what, name), tooks in found.items():
            beside = found[ALONE, name] if what == GROUP else ()
            late = [] if what == SCHEDULE else [_late_to_early(took) for took in tooks]
            yield row(store, PART, f"{what}, {name}", size, tooks, beside) | {
                "late_to_early": ratio(spread(late, 3)["median"], 1) if late else None
            }


class _Crew:
    """Loops that poll for activities and report them, and one that waits for the run."""

    def __init__(self, server: Stand, talking: Talk, batch: int, count: int) -> None:
        self._server = server
        self._talking = talking
        self._batch = batch
        self._count = count

    async def work_off(self, until: Sequence[asyncio.Task[Any]] = ()) -> Took:
        """Complete as many activities as wait; done when all are reported, and what is given has ended."""
        took = Took(self._server.pids)
        all_reported = asyncio.Event()

        async def loop() -> None:
            while not all_reported.is_set():
                tasks = await self._talking.take("activity", self._batch)
                if tasks:
                    await took.step(self._talking.complete_activities(tasks), len(tasks))
                if took.done >= self._count:
                    all_reported.set()

        with took.whole():
            loops = [asyncio.create_task(loop()) for _ in range(LOOPS if self._batch == 1 else BATCH_LOOPS)]
            waiting = asyncio.create_task(all_reported.wait())
            ended, _ = await asyncio.wait([waiting, *loops], return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                each.result()
            await asyncio.gather(waiting, *until)
        for each in loops:
            each.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        return took

    async def fan_out(self) -> tuple[Took, Took]:
        """Have one run schedule the group; then complete it until the run has its next workflow task."""
        await self._talking.start()
        task = await self._talking.take_one()
        commands = list(group(self._count))
        scheduling = await in_turn(self._server, [lambda: self._talking.decide(task, commands)])
        woken = asyncio.create_task(self._talking.take_one())
        took = await self.work_off([woken])
        await self._talking.decide(woken.result(), [{"type": "complete_workflow", "result": "done"}])
        return scheduling, took


def group(size: int) -> Iterator[Json]:
    """The commands of a run whose first step is that many activities side by side."""
    for index in range(size):
        place = {
            "parallel_group_id": f"parallel-activities:1:{size}",
            "parallel_group_kind": "activity",
            "parallel_group_base_sequence": 1,
            "parallel_group_size": size,
            "parallel_group_index": index,
        }
        command: Json = {"type": "schedule_activity", "activity_type": ACTIVITY_TYPE, "arguments": ["x"]}
        yield command | place | {"parallel_group_path": [place]}


def _late_to_early(took: Took) -> float:
    """How long the last reports took, to how long the first did."""
    part = max(1, len(took.milliseconds) // SLICES)
    return sum(took.milliseconds[-part:]) / sum(took.milliseconds[:part])
