"""Ours and its peers in one run: the same workloads for all of them, repetition by repetition, one after the other.

Every system is started anew for every repetition, so all of them meet the same neighbours and none an old database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peer_measures import Measure, Workload
from benchmarks.peer_readings import Reader, Reading
from benchmarks.peer_stage import stage
from benchmarks.peer_systems import PEERS, System, ours
from benchmarks.peers.environments import Absent
from benchmarks.peers.managed_processes import PeerFailed
from benchmarks.samples import loads, spread
from benchmarks.stands import Ground, StoreName
from benchmarks.workloads import Say

OURS = tuple(f"penstock, {store.value}" for store in StoreName)
SYSTEMS = (*OURS, *PEERS)
Found = Mapping[tuple[str, Measure], Sequence[Reading]]


class SideBySide:
    """Measure ours on the stores that were chosen, and the peers that are there."""

    def __init__(
        self,
        ground: Ground,
        say: Say,
        *,
        quick: bool,
        repetitions: int,
        systems: Collection[str],
        workloads: Collection[Workload],
    ) -> None:
        self._ground, self._say, self._quick, self._repetitions = ground, say, quick, repetitions
        self._systems, self._workloads = systems, workloads
        self._missing: list[dict[str, str]] = []

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        systems = [system for system in self._chosen(stores) if self._works(system)]
        found: dict[tuple[str, Measure], list[Reading]] = defaultdict(list)
        for number in range(1, self._repetitions + 1):
            for system in systems:
                self._say(f"peers, {system.name}: repetition {number} of {self._repetitions}")
                for reading in self._read(system):
                    found[system.name, reading.measure].append(reading)
        return {
            "systems": [{"system": system.name, "settings": system.settings} for system in systems],
            "missing": self._missing,
            "figures": figures(found),
        }

    def _chosen(self, stores: Sequence[StoreName]) -> Iterator[System]:
        for store in stores:
            if f"penstock, {store.value}" in self._systems:
                yield ours(store, self._ground)
        for name, find in PEERS.items():
            if name in self._systems:
                try:
                    yield find(self._ground, self._say, install=not self._quick)
                except Absent as absent:
                    self._leave_out(name, str(absent))

    def _works(self, system: System) -> bool:
        """Have each worker run one task, so that everything is compiled; a peer that cannot is left out."""
        if self._quick:
            return True
        try:
            with stage(system, self._ground.folder) as at_work:
                at_work.first_task_seconds()
        except PeerFailed as failure:
            self._failed(system, failure)
            return False
        return True

    def _read(self, system: System) -> Iterator[Reading]:
        counts = system.counts.least() if self._quick else system.counts
        idle_seconds = 0.1 if self._quick else system.idle_seconds
        try:
            with stage(system, self._ground.folder) as at_work:
                yield from Reader(at_work, counts, self._workloads, idle_seconds).all()
        except PeerFailed as failure:
            self._failed(system, failure)

    def _failed(self, system: System, failure: PeerFailed) -> None:
        if system.is_ours:
            raise failure
        self._leave_out(system.name, f"the rest of it: {failure}")
        self._say("\n".join(getattr(failure, "__notes__", ())))

    def _leave_out(self, name: str, why: str) -> None:
        self._missing.append({"system": name, "why": why})
        self._say(f"peers, {name}: left out: {why}")


def figures(found: Found) -> list[dict[str, Any]]:
    """Each measure of each system: median, least and most of its repetitions."""
    return [_figure(system, measure, readings) for (system, measure), readings in found.items()]


def _figure(system: str, measure: Measure, readings: Sequence[Reading]) -> dict[str, Any]:
    others = [each.others_percent for each in readings if each.others_percent is not None]
    return {
        "system": system,
        "measure": measure.key,
        "about": measure.about,
        "unit": measure.unit,
        "better": measure.better,
        "repetitions": len(readings),
        "value": spread((each.value for each in readings), 3),
        "cpu_ms": {name: spread((each.cpu_ms[name] for each in readings), 3) for name in readings[0].cpu_ms},
        "others_percent": spread(others) if others else None,
        "load": loads(each.load for each in readings),
    }
