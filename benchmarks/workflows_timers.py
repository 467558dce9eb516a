"""What timers cost while they sleep: a server that has nothing to do, beside none of them and beside many."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.crowds import TABLES, grow_postgres, grow_sqlite
from benchmarks.processes import cpu_of, load_average
from benchmarks.samples import loads, ratio, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.workflows_client import talk
from benchmarks.workloads import Say

DELAY_SECONDS = 30 * 24 * 3600
SETTLE_SECONDS = 3.0
"""A server that has just started looks at everything once."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A server that was left alone for a while."""

    start_seconds: float
    cpu_percent: Mapping[str, float]
    """Of one core, by process."""
    memory_mib: float
    load: float


class SleepingTimers:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, store: StoreName) -> list[dict[str, Any]]:
        databases = {count: self._sleeping(store, count) for count in (0, self._sizes.timers)}
        found: dict[int, list[Idle]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            for count, url in databases.items():
                self._say(f"workflows, {store.value}: {count:,} sleeping timers, repetition {number}")
                found[count].append(self._left_alone(store, url))
        return [_row(store, count, idles, found[0]) for count, idles in found.items()]

    def _sleeping(self, store: StoreName, count: int) -> str:
        """The URL of a database with so many runs that sleep: one that was started, and copies of it."""
        url = new_store(store, self._ground)
        with serving(store, self._ground, url) as server:
            if count:
                uvloop.run(sleep_one(server))
        tables = (*TABLES, "timers")
        if count and store is StoreName.SQLITE:
            grow_sqlite(Path(url.removeprefix("sqlite:///")), count - 1, tables=tables)
        elif count:
            grow_postgres(url, count - 1, tables=tables)
        return url

    def _left_alone(self, store: StoreName, url: str) -> Idle:
        began = time.perf_counter()
        with serving(store, self._ground, url) as server:
            started = time.perf_counter() - began
            time.sleep(min(SETTLE_SECONDS, self._sizes.idle_seconds))
            began, before = time.perf_counter(), cpu_of(server.pids)
            time.sleep(self._sizes.idle_seconds)
            seconds, after = time.perf_counter() - began, cpu_of(server.pids)
            return Idle(
                started,
                {name: (after[name] - before[name]) / seconds * 100 for name in before},
                _resident_mib(server.pids["server"]),
                load_average(),
            )


async def sleep_one(server: Stand) -> None:
    """A run that sleeps for a month."""
    async with talk(server.url) as talking:
        await talking.start()
        task = await talking.take_one()
        await talking.decide(task, [{"type": "start_timer", "delay_seconds": DELAY_SECONDS}])


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _row(store: StoreName, count: int, idles: Sequence[Idle], beside: Sequence[Idle]) -> dict[str, Any]:
    def total(idle: Idle) -> float:
        return sum(idle.cpu_percent.values())

    def median(values: Sequence[float]) -> float:
        return spread(values, 6)["median"]

    return {
        "store": store.value,
        "timers": count,
        "cpu_percent": {
            name: spread((idle.cpu_percent[name] for idle in idles), 3) for name in idles[0].cpu_percent
        },
        "memory_mib": spread(idle.memory_mib for idle in idles),
        "start_seconds": spread((idle.start_seconds for idle in idles), 2),
        "ratios": {
            "cpu": ratio(median([total(idle) for idle in idles]), median([total(idle) for idle in beside])),
            "memory": ratio(
                median([idle.memory_mib for idle in idles]), median([idle.memory_mib for idle in beside])
            ),
            "start": ratio(
                median([idle.start_seconds for idle in idles]),
                median([idle.start_seconds for idle in beside]),
            ),
        },
        "load": loads(idle.load for idle in idles),
    }
