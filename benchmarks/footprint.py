"""What it takes to be there: imports, a server until it is ready, and the memory of what waits or is open."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peer_stage import stage
from benchmarks.peer_systems import ours
from benchmarks.process_trees import cpu_seconds_of_trees, memory
from benchmarks.processes import load_average
from benchmarks.samples import loads, spread
from benchmarks.sdk_systems import surroundings
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName, new_store, serving
from benchmarks.workloads import Say

IMPORTS = {
    "Python alone": "pass",
    "a client's modules": "from penstock import Client",
    "a worker's modules": "from penstock import Client, Worker, activity, workflow",
    "an app's modules": "from penstock import Penstock",
    "the server's modules": "import penstock.server.app, penstock.assembly",
}
SETTLE_SECONDS_MAX = 2.0
KIB = 1024.0
Reading = tuple[str, str, str, float]
"""A store, what was read, its unit and the value."""


class Footprint:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground, self._sizes, self._say = ground, sizes, say

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            self._say(f"footprint: repetition {number}")
            for *about, value in self._read(stores):
                store, name, unit = about
                found[store, name, unit].append((value, load_average()))
        return [
            {
                "store": store,
                "name": name,
                "unit": unit,
                "value": spread((value for value, _ in readings), 3),
                "load": loads(load for _, load in readings),
            }
            for (store, name, unit), readings in found.items()
        ]

    def _read(self, stores: Sequence[StoreName]) -> Iterator[Reading]:
        for name, code in IMPORTS.items():
            yield "", f"import of {name}", "ms", self._import_ms(code)
        for store in stores:
            for reading in (self._ready, self._waiting, self._open):
                for name, (unit, value) in reading(store).items():
                    yield store.value, name, unit, value

    def _import_ms(self, code: str) -> float:
        """The best of two: the first may have to compile."""
        options: Mapping[str, Any] = {"env": surroundings(self._ground.folder), "check": True}
        best = float("inf")
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run((sys.executable, "-c", code), **options)
            best = min(best, time.perf_counter() - began)
        return best * 1000

    def _ready(self, store: StoreName) -> dict[str, tuple[str, float]]:
        """A server on a database that has its schema."""
        url = new_store(store, self._ground)
        with serving(store, self._ground, url):
            pass
        began = time.perf_counter()
        with serving(store, self._ground, url) as server:
            ready = (time.perf_counter() - began) * 1000
            pid = server.pids["server"]
            used = cpu_seconds_of_trees((pid,)) * 1000
            self._settle()
            return {
                "server: start to ready": ("ms", ready),
                "server: CPU until ready": ("ms", used),
                "server: memory when ready (PSS)": ("MiB", memory(pid).pss),
            }

    def _waiting(self, store: StoreName) -> dict[str, tuple[str, float]]:
        count = self._sizes.footprint_waiting
        with stage(ours(store, self._ground), self._ground.folder) as at_work:
            assert at_work.server_pid is not None
            at_work.client.ask("fill", max(1, count // 10))  # what is allocated once is no part of it
            self._settle()
            before = memory(at_work.server_pid).pss
            at_work.client.ask("fill", count)
            self._settle()
            grown = memory(at_work.server_pid).pss - before
        return {f"server: memory for each of {count:,} waiting tasks": ("KiB", grown * KIB / count)}

    def _open(self, store: StoreName) -> dict[str, tuple[str, float]]:
        count = self._sizes.footprint_open
        with stage(ours(store, self._ground), self._ground.folder) as at_work:
            assert at_work.server_pid is not None
            at_work.first_task_seconds()
            at_work.client.ask("open", max(1, count // 10))
            self._settle()
            pids = {"server": at_work.server_pid, "worker": at_work.worker_pid}
            before = {name: memory(pid).pss for name, pid in pids.items()}
            at_work.client.ask("open", count)
            self._settle()
            grown = {name: memory(pid).pss - before[name] for name, pid in pids.items()}
        return {
            f"{name}: memory for each of {count:,} open workflows": ("KiB", value * KIB / count)
            for name, value in grown.items()
        }

    def _settle(self) -> None:
        time.sleep(min(SETTLE_SECONDS_MAX, self._sizes.idle_seconds))
