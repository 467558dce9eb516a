"""How much more several servers on one PostgreSQL do, and what binds them: the cores, or what connections wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks.hot_group import watched
from benchmarks.processes import load_average
from benchmarks.samples import loads, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store
from benchmarks.work import Kind, Order, Outcome
from benchmarks.workloads import Say
from tests.support import live

SERVERS = (1, 2, 4)
CLIENTS = 4
"""Always as many, whatever the number of servers: each speaks to one of them, and has a queue of its own."""
KINDS = {
    "activities, one a request": Order(Kind.ACTIVITIES, "", 0, in_flight=50),
    "activities, 100 a request": Order(Kind.ACTIVITIES, "", 0, in_flight=200, batch=100),
    "workflows, one task a request": Order(Kind.WORKFLOWS, "", 0, in_flight=50),
}


@dataclass(frozen=True, slots=True)
class Section:
    tasks: int
    seconds: float
    cores: dict[str, float]
    """How many cores servers, database and clients kept busy."""
    waits: Counter[str]
    load: float


class SeveralServers:
    """One, two and four server processes in turn, each round on a database of its own."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground, self._sizes, self._say = ground, sizes, say

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        if StoreName.POSTGRES not in stores:
            return []
        found: dict[tuple[str, int], list[Section]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            for count in SERVERS:
                self._say(f"{count} server process{'es' if count > 1 else ''}: repetition {number}")
                for kind, section in self._read(count):
                    found[kind, count].append(section)
        return [_row(kind, count, sections, found[kind, 1]) for (kind, count), sections in found.items()]

    def _read(self, count: int) -> Iterator[tuple[str, Section]]:
        url = new_store(StoreName.POSTGRES, self._ground)
        with self._serving(url, count) as servers:
            for kind, order in KINDS.items():
                self._send(url, servers, order, max(1, self._sizes.several // 10))
                yield kind, self._send(url, servers, order, self._sizes.several * (4 if order.batch else 1))

    @contextlib.contextmanager
    def _serving(self, url: str, count: int) -> Iterator[list[Stand]]:
        wanted = [live.server(self._ground.folder, url, name=f"several-{number}") for number in range(count)]
        assert self._ground.postgres is not None
        database = self._ground.postgres.pid
        with live.running(*wanted) as servers:
            pids = {f"server {number}": each.pid for number, each in enumerate(servers)}
            yield [
                Stand(StoreName.POSTGRES, each.url, pids | {"database": database}, self._ground.crew)
                for each in servers
            ]

    def _send(self, url: str, servers: Sequence[Stand], order: Order, tasks: int) -> Section:
        outcomes, waits = uvloop.run(self._driven(url, servers, order, max(1, tasks // CLIENTS)))
        seconds = max(each.seconds for each in outcomes)
        shared = outcomes[0].cpu_seconds
        cores = {
            "servers": sum(spent for name, spent in shared.items() if name.startswith("server")) / seconds,
            "database": shared["database"] / seconds,
            "clients": sum(each.cpu_seconds["client"] for each in outcomes) / seconds,
        }
        return Section(sum(each.count for each in outcomes), seconds, cores, waits, load_average())

    async def _driven(
        self, url: str, servers: Sequence[Stand], order: Order, each: int
    ) -> tuple[list[Outcome], Counter[str]]:
        """All clients at once; the longest one, which counts the CPU of all, comes first."""
        async with watched(url) as waits:
            running = [
                servers[number % len(servers)].begin(_order(order, each, f"several-{number}"))
                for number in range(CLIENTS)
            ]
            outcomes = await asyncio.gather(*(asyncio.to_thread(one.finish) for one in running))
        return sorted(outcomes, key=lambda outcome: -outcome.seconds), waits


def _order(order: Order, count: int, queue: str) -> Order:
    return Order(order.kind, "", count, in_flight=order.in_flight, batch=order.batch, queue=queue)


def _row(kind: str, count: int, sections: Sequence[Section], one: Sequence[Section]) -> dict[str, Any]:
    waits: Counter[str] = sum((each.waits for each in sections), Counter())
    pairs = zip(sections, one, strict=False)
    return {
        "store": StoreName.POSTGRES.value,
        "name": kind,
        "servers": count,
        "per_second": spread(each.tasks / each.seconds for each in sections),
        "to_one": spread((_rate(own) / _rate(other) for own, other in pairs), 3),
        "cores": {name: spread((each.cores[name] for each in sections), 2) for name in sections[0].cores},
        "waits": {name: round(seen / waits.total(), 3) for name, seen in waits.most_common(4)},
        "load": loads(each.load for each in sections),
    }


def _rate(section: Section) -> float:
    return section.tasks / section.seconds
