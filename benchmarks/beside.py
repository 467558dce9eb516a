"""Whether work costs more beside what does not concern it: closed workflows, timers that sleep, polls that wait.

Two servers of one store, one beside none of it and one beside much, do the same work in turn, through HTTP.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.client_processes import ROOT
from benchmarks.crowds import TABLES, grow_postgres, grow_sqlite
from benchmarks.processes import TICKS_PER_SECOND
from benchmarks.samples import loads, rates, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.work import Kind, Order, Outcome
from benchmarks.workflows_crowds import grow
from benchmarks.workflows_lists import close_one
from benchmarks.workflows_timers import sleep_one
from benchmarks.workloads import Say

IN_FLIGHT = 20
WARM_UP = 20
KINDS = {Kind.ACTIVITIES: "activities", Kind.WORKFLOWS: "workflows"}


@dataclass(frozen=True, slots=True)
class Crowd:
    """What is beside the work, and how it comes to be there."""

    name: str
    size: Callable[[Sizes], int]
    begin: Callable[[Stand], None] | None = None
    """One of it, while a server is up."""
    copy: Callable[[StoreName, str, int], None] | None = None
    """So many more, while no server is."""
    joined: Callable[[Stand, int], contextlib.AbstractContextManager[None]] | None = None
    """All of it, while the work is measured."""


class Beside:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground, self._sizes, self._say = ground, sizes, say

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        return [row for store in stores for crowd in CROWDS for row in self._compare(store, crowd)]

    def _compare(self, store: StoreName, crowd: Crowd) -> Iterator[dict[str, Any]]:
        size = crowd.size(self._sizes)
        self._say(f"beside {size:,} {crowd.name}, {store.value}: filling")
        found: dict[tuple[Kind, bool], list[Outcome]] = defaultdict(list)
        with (
            serving(store, self._ground, new_store(store, self._ground)) as alone,
            serving(store, self._ground, self._filled(store, crowd, size)) as crowded,
        ):
            for kind in KINDS:
                for server in (alone, crowded):
                    server.send(Order(kind, "", WARM_UP))
            for number in range(1, self._sizes.beside_rounds + 1):
                self._say(f"beside {size:,} {crowd.name}, {store.value}: round {number}")
                for kind in KINDS:
                    found[kind, False].append(self._work(alone, kind))
                with crowd.joined(crowded, size) if crowd.joined else contextlib.nullcontext():
                    for kind in KINDS:
                        found[kind, True].append(self._work(crowded, kind))
        for kind, name in KINDS.items():
            yield _row(store, crowd, size, name, found[kind, True], found[kind, False])

    def _filled(self, store: StoreName, crowd: Crowd, size: int) -> str:
        url = new_store(store, self._ground)
        if crowd.begin is not None and crowd.copy is not None:
            with serving(store, self._ground, url) as server:
                crowd.begin(server)
            crowd.copy(store, url, size - 1)
        return url

    def _work(self, server: Stand, kind: Kind) -> Outcome:
        return server.send(Order(kind, "", self._sizes.beside_tasks, in_flight=IN_FLIGHT, queue="beside"))


def _row(
    store: StoreName, crowd: Crowd, size: int, what: str, beside: list[Outcome], alone: list[Outcome]
) -> dict[str, Any]:
    pairs = list(zip(beside, alone, strict=True))
    return {
        "store": store.value,
        "crowd": crowd.name,
        "name": what,
        "size": size,
        "per_second": {"alone": rates(alone), "beside": rates(beside)},
        "rate": spread((_rate(one) / _rate(other) for one, other in pairs), 3),
        "cpu": spread((_cpu(one) / _cpu(other) for one, other in pairs), 3),
        "load": loads(each.load for each in (*beside, *alone)),
    }


def _rate(outcome: Outcome) -> float:
    return outcome.count / outcome.seconds


def _cpu(outcome: Outcome) -> float:
    """Of server and database, for each; at least the least that the kernel counts."""
    spent = sum(seconds for name, seconds in outcome.cpu_seconds.items() if name != "client")
    return max(spent, 1 / TICKS_PER_SECOND) / outcome.count


def _close_one(server: Stand) -> None:
    uvloop.run(close_one(server))


def _copy_closed(store: StoreName, url: str, count: int) -> None:
    grow(url, count)


def _sleep_one(server: Stand) -> None:
    uvloop.run(sleep_one(server))


def _copy_asleep(store: StoreName, url: str, count: int) -> None:
    tables = (*TABLES, "timers")
    if store is StoreName.SQLITE:
        grow_sqlite(Path(url.removeprefix("sqlite:///")), count, tables=tables)
    else:
        grow_postgres(url, count, tables=tables)


@contextlib.contextmanager
def _polled(server: Stand, count: int) -> Iterator[None]:
    command = (sys.executable, "-m", "benchmarks.idle_pollers", server.url, str(count))
    pollers = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert pollers.stdout is not None
        assert pollers.stdout.readline() == b"ready\n", "the idle pollers did not come up"
        yield
    finally:
        pollers.kill()
        pollers.communicate()


CROWDS = (
    Crowd("closed workflows", lambda sizes: sizes.listed[1], begin=_close_one, copy=_copy_closed),
    Crowd("sleeping timers", lambda sizes: sizes.timers, begin=_sleep_one, copy=_copy_asleep),
    Crowd("idle pollers", lambda sizes: sizes.idle_pollers, joined=_polled),
)
