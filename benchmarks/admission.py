"""What limits cost: claims and completions with no limits, with all of them, and with one of a group of many queues.

Measured at the engine over a real store, as dispatch rates are. Limits are switched between sections of one
database, so every round has all sides of each ratio.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks.hot_group import HotGroup
from benchmarks.limited_lines import LimitedLines, Limits, limited_lines
from benchmarks.processes import cpu_seconds, load_average, own_cpu_seconds
from benchmarks.samples import loads, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName, new_store
from benchmarks.why_latency import WhyLatency
from benchmarks.workloads import Say

TARGET = 0.85
"""The least that all limits together may leave of the rate."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a section is measured in."""

    queues: int
    batch: int
    at_once: int
    """How many claims wait for the store together."""
    limits: Limits


@dataclass(frozen=True, slots=True)
class Took:
    """What it took to claim, or to claim and to complete, the tasks of one section."""

    tasks: int
    seconds: float
    cpu_ms: float
    """Of this process and of the database, for each task."""
    load: float

    @property
    def per_second(self) -> float:
        return self.tasks / self.seconds


@dataclass(frozen=True, slots=True)
class Section:
    claimed: Took
    ended: Took
    """Claimed and completed, both together."""


class Admission:
    """Measure on one store after the other; then a group that three servers share, and why a task waits."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._sections: dict[Setting, list[Section]] = {}

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        ratios: list[dict[str, Any]] = []
        for store in stores:
            self._sections = defaultdict(list)
            uvloop.run(self._measure(store))
            rows += [row for setting in self._sections for row in self._rows(store, setting)]
            ratios += self._ratios(store)
        hot = HotGroup(self._ground, self._sizes, self._say).run() if StoreName.POSTGRES in stores else []
        why = WhyLatency(self._ground, self._sizes, self._say).run(stores)
        return {"rates": rows, "ratios": ratios, "hot_group": hot, "why": why}

    async def _measure(self, store: StoreName) -> None:
        alone = [Setting(1, batch, 1, Limits.NONE) for batch in self._sizes.limited_dispatches]
        queues = self._sizes.limited_queues
        many = [Setting(queues, 1, at_once, Limits.NONE) for at_once in (1, queues)]
        async with self._filled(store, 1) as one, self._filled(store, queues) as several:
            for number in range(1, self._sizes.limited_rounds + 1):
                self._say(f"admission, {store.value}: round {number}")
                await self._visit(one, alone, _turned((Limits.NONE, Limits.EVERY, Limits.SLIDING), number))
                await self._visit(several, many, _turned((Limits.NONE, Limits.GROUP), number))

    @contextlib.asynccontextmanager
    async def _filled(self, store: StoreName, queues: int) -> AsyncIterator[LimitedLines]:
        url = await asyncio.to_thread(new_store, store, self._ground)
        async with limited_lines(store, url, queues) as lines:
            most = max(self._sizes.limited_dispatches.values())
            await lines.fill(2 * most if queues == 1 else 4 + 2 * most // queues)
            yield lines

    async def _visit(
        self, lines: LimitedLines, settings: Sequence[Setting], switched: Sequence[Limits]
    ) -> None:
        for limits in switched:
            await lines.limit(limits)
            await self._section(
                lines, dataclasses.replace(settings[0], limits=limits), max(1, self._dispatches(1) // 4)
            )
            for setting in settings:
                setting = dataclasses.replace(setting, limits=limits)
                section = await self._section(lines, setting, self._dispatches(setting.batch))
                self._sections[setting].append(section)

    def _dispatches(self, batch: int) -> int:
        return self._sizes.limited_dispatches[batch]

    async def _section(self, lines: LimitedLines, setting: Setting, dispatches: int) -> Section:
        """Claim, then complete, then put as many tasks in line again; the last is not measured."""
        began, cpu = time.perf_counter(), self._cpu()
        taken = await lines.claim(setting.batch, dispatches, setting.at_once)
        claimed = self._took(len(taken), began, cpu)
        await lines.end(taken, max(setting.batch, setting.at_once))
        ended = self._took(len(taken), began, cpu)
        await lines.refill(taken)
        return Section(claimed, ended)

    def _took(self, tasks: int, began: float, cpu: float) -> Took:
        return Took(tasks, time.perf_counter() - began, (self._cpu() - cpu) * 1000 / tasks, load_average())

    def _cpu(self) -> float:
        database = self._ground.postgres
        return own_cpu_seconds() + (cpu_seconds(database.pid) if database else 0.0)

    def _rows(self, store: StoreName, setting: Setting) -> Iterator[dict[str, Any]]:
        for name, tooks in self._by_part(setting).items():
            yield {
                "store": store.value,
                "part": name,
                "limits": setting.limits.value,
                "queues": setting.queues,
                "batch": setting.batch,
                "at_once": setting.at_once,
                "per_second": spread(each.per_second for each in tooks),
                "cpu_ms": spread((each.cpu_ms for each in tooks), 3),
                "load": loads(each.load for each in tooks),
            }

    def _by_part(self, setting: Setting) -> dict[str, list[Took]]:
        sections = self._sections.get(setting, [])
        return {
            "claim": [each.claimed for each in sections],
            "claim and complete": [each.ended for each in sections],
        }

    def _ratios(self, store: StoreName) -> Iterator[dict[str, Any]]:
        for setting in self._sections:
            if setting.limits is not Limits.NONE:
                yield from self._compared(store, setting, TARGET if setting.queues == 1 else None)

    def _compared(self, store: StoreName, setting: Setting, target: float | None) -> Iterator[dict[str, Any]]:
        """Rates and CPU beside those without limits, round by round."""
        without = self._by_part(dataclasses.replace(setting, limits=Limits.NONE))
        for name, tooks in self._by_part(setting).items():
            pairs = list(zip(tooks, without[name], strict=True))
            yield {
                "store": store.value,
                "part": name,
                "limits": setting.limits.value,
                "queues": setting.queues,
                "batch": setting.batch,
                "at_once": setting.at_once,
                "rate": spread((one.per_second / other.per_second for one, other in pairs), 3),
                "cpu": spread((one.cpu_ms / other.cpu_ms for one, other in pairs), 3),
                "target": target,
            }


def _turned(limits: Sequence[Limits], number: int) -> list[Limits]:
    """Each round begins with another, so that none is always measured right after the same."""
    start = number % len(limits)
    return [*limits[start:], *limits[:start]]
