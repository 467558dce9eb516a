"""How many tasks claims hand out a second: over few and many keys, small and large backlogs, with and without fairness.

Measured at the engine's claim over a real store, one claim after the other, each with its commit. Sections of some
hundred dispatches are interleaved over all cases; between them as many tasks are started as were taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks.processes import cpu_seconds, load_average, own_cpu_seconds
from benchmarks.samples import loads, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.waiting_lines import Case, WaitingLine, waiting_line
from benchmarks.workloads import Say

WARM_UP = 50
"""Dispatches after a switch that are not measured."""
TARGET = 0.9
"""The least that fairness, or a thousand times the backlog, may leave of the rate."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a section is measured in."""

    case: Case
    fair: bool
    batch: int


@dataclass(frozen=True, slots=True)
class Section:
    """What one section took."""

    dispatches: int
    seconds: float
    cpu_ms: float
    """Of this process and of the database, for each task."""
    load: float

    @property
    def per_second(self) -> float:
        return self.dispatches / self.seconds


class DispatchRates:
    """Fill, measure and compare on one store after the other; backlogs of both at once would crowd the disk."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._sections: dict[Setting, list[Section]] = {}
        self._placing: list[dict[str, Any]] = []

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        ratios: list[dict[str, Any]] = []
        for store in stores:
            self._sections = defaultdict(list)
            uvloop.run(self._measure(store))
            rows += [self._row(store, setting) for setting in self._sections]
            ratios += self._ratios(store)
        return {"rates": rows, "ratios": ratios, "placing": self._placing}

    @property
    def _cases(self) -> list[Case]:
        sizes = self._sizes
        by_keys = [Case(keys, max(sizes.rate_backlogs)) for keys in sizes.rate_keys]
        by_backlog = [Case(sizes.rate_shared, backlog) for backlog in sizes.rate_backlogs]
        return [*dict.fromkeys((*by_keys, *by_backlog)), self._switched]

    @property
    def _switched(self) -> Case:
        """Neither the smallest backlog nor the largest."""
        return Case(self._sizes.rate_shared, sorted(self._sizes.rate_backlogs)[1], switched=True)

    async def _measure(self, store: StoreName) -> None:
        async with contextlib.AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(self._filled(store, case)) for case in self._cases]
            for number in range(1, self._sizes.rate_rounds + 1):
                self._say(f"dispatch rates, {store.value}: round {number}")
                for line in lines:
                    await self._visit(line)

    @contextlib.asynccontextmanager
    async def _filled(self, store: StoreName, case: Case) -> AsyncIterator[WaitingLine]:
        self._say(f"dispatch rates, {store.value}: filling {case.name}")
        async with waiting_line(store, self._ground, case) as line:
            placing = await line.place_all()
            self._say(f"  every key found its place in {placing.claims:,} claims, {placing.seconds:.1f} s")
            self._placing.append(
                {
                    "store": store.value,
                    "keys": case.keys,
                    "backlog": case.backlog,
                    "claims": placing.claims,
                    "ms_each": round(placing.seconds * 1000 / placing.claims, 2),
                }
            )
            yield line

    async def _visit(self, line: WaitingLine) -> None:
        for fair in (True, False) if line.case.switched else (True,):
            if line.case.switched:
                await line.set_fairness(on=fair)
                await line.refill(await line.claim(WARM_UP, WARM_UP))
            for batch, dispatches in self._sizes.rate_dispatches.items():
                section = await self._section(line, batch, dispatches)
                self._sections[Setting(line.case, fair, batch)].append(section)

    async def _section(self, line: WaitingLine, batch: int, dispatches: int) -> Section:
        cpu, began = self._cpu(), time.perf_counter()
        taken = await line.claim(batch, dispatches)
        seconds, cpu = time.perf_counter() - began, self._cpu() - cpu
        await line.refill(taken)
        return Section(len(taken), seconds, cpu * 1000 / len(taken), load_average())

    def _cpu(self) -> float:
        database = self._ground.postgres
        return own_cpu_seconds() + (cpu_seconds(database.pid) if database else 0.0)

    def _row(self, store: StoreName, setting: Setting) -> dict[str, Any]:
        sections = self._sections[setting]
        return {
            "store": store.value,
            "keys": setting.case.keys,
            "backlog": setting.case.backlog,
            "fairness": "off" if not setting.fair else "on" if setting.case.switched else "on, never set",
            "batch": setting.batch,
            "per_second": spread(each.per_second for each in sections),
            "cpu_ms": spread((each.cpu_ms for each in sections), 3),
            "load": loads(each.load for each in sections),
        }

    def _ratios(self, store: StoreName) -> Iterator[dict[str, Any]]:
        sizes, shared = self._sizes, self._sizes.rate_shared
        few, most = min(sizes.rate_backlogs), max(sizes.rate_backlogs)
        for batch in sizes.rate_dispatches:
            on, off = (Setting(self._switched, fair, batch) for fair in (True, False))
            name = f"fairness on to off, {shared:,} keys, backlog {self._switched.backlog:,}"
            yield from self._compared(store, name, on, off, TARGET)
            plain = Setting(dataclasses.replace(self._switched, switched=False), True, batch)
            name = f"fairness on, never set, to off, {shared:,} keys, backlog {self._switched.backlog:,}"
            yield from self._compared(store, name, plain, off, TARGET)
            for backlog in sizes.rate_backlogs[1:]:
                large, small = (Setting(Case(shared, each), True, batch) for each in (backlog, few))
                name = f"backlog {backlog:,} to {few:,}, {shared:,} keys"
                yield from self._compared(store, name, large, small, TARGET if backlog == most else None)
            for keys in sizes.rate_keys[1:]:
                many, one = (Setting(Case(each, most), True, batch) for each in (keys, sizes.rate_keys[0]))
                name = f"{keys:,} keys to {sizes.rate_keys[0]:,}, backlog {most:,}"
                yield from self._compared(store, name, many, one, None)

    def _compared(
        self, store: StoreName, name: str, part: Setting, whole: Setting, target: float | None
    ) -> Iterator[dict[str, Any]]:
        """The ratio of rates and of CPU, round by round, so that what disturbs a round disturbs both sides."""
        pairs = list(zip(self._sections.get(part, []), self._sections.get(whole, []), strict=False))
        if pairs:
            yield {
                "store": store.value,
                "name": name,
                "batch": part.batch,
                "rate": spread((one.per_second / other.per_second for one, other in pairs), 3),
                "cpu": spread((one.cpu_ms / other.cpu_ms for one, other in pairs), 3),
                "target": target,
            }
