"""How fast the SDK is, beside two others in one run: workflows, fan-out, tasks, idle latency, replay, a worker at rest.

Every system is started anew for each repetition, one after the other, so all of them meet the same neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.environments import Absent
from benchmarks.peers.managed_processes import PeerFailed
from benchmarks.samples import loads, ratio, spread
from benchmarks.sdk_readings import Measure, Reader, Reading, import_reading
from benchmarks.sdk_systems import Ours, System, dbos, scene, temporal
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.workloads import Say

Found = Mapping[tuple[str, Measure], Sequence[Reading]]


class Sdk:
    """Measure ours on the stores that were chosen, and the peers that are there."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say, *, peers: bool) -> None:
        self._ground, self._sizes, self._say, self._peers = ground, sizes, say, peers

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        systems = [Ours(store, self._ground) for store in stores] + list(self._others())
        found: dict[tuple[str, Measure], list[Reading]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            for system in systems:
                self._say(f"sdk, {system.name}: repetition {number}")
                try:
                    for reading in self._read(system):
                        found[system.name, reading.measure].append(reading)
                except PeerFailed as failure:
                    if isinstance(system, Ours):
                        raise
                    notes = "\n".join(getattr(failure, "__notes__", ()))
                    self._say(f"sdk, {system.name}: the rest of it is left out: {failure}\n{notes}")
        return {
            "systems": [{"name": system.name, "settings": system.settings} for system in systems],
            "figures": figures(found),
            "ratios": ratios(found, [s.name for s in systems if isinstance(s, Ours)]),
        }

    def _others(self) -> Iterator[System]:
        for find in (temporal, dbos) if self._peers else ():
            try:
                yield find(self._ground, self._say, install=True)
            except Absent as absent:
                self._say(f"sdk, {find.__name__}: left out: {absent}")

    def _read(self, system: System) -> Iterator[Reading]:
        yield import_reading(system, self._ground.folder)
        with scene(system, self._ground.folder) as at_work:
            yield from Reader(at_work, self._sizes.sdk, self._ground.folder).all()


def figures(found: Found) -> list[dict[str, Any]]:
    """Each measure of each system: median, least and most of its repetitions."""
    return [
        {
            "system": system,
            "measure": measure.name,
            "unit": measure.unit,
            "better": measure.better,
            "value": spread((each.value for each in readings), 3),
            "cpu_ms": {
                name: spread((each.cpu_ms[name] for each in readings), 3) for name in readings[0].cpu_ms
            },
            "load": loads(each.load for each in readings),
        }
        for (system, measure), readings in found.items()
    ]


def ratios(found: Found, ours: Sequence[str]) -> list[dict[str, Any]]:
    """Ours to each peer, by the medians of one run."""
    medians = {key: spread((each.value for each in readings), 9)["median"] for key, readings in found.items()}
    return [
        {
            "measure": measure.name,
            "better": measure.better,
            "ours": own,
            "peer": peer,
            "ratio": ratio(medians[own, measure], value),
        }
        for own in ours
        for (peer, measure), value in medians.items()
        if peer not in ours and (own, measure) in medians
    ]
