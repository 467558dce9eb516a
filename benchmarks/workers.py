"""A worker program from its start to its first task, and what it costs while it has nothing to do, beside others.

Every worker is started anew for each repetition, one after the other, so all of them meet the same neighbours.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.client_processes import ROOT
from benchmarks.peers.environments import Absent
from benchmarks.peers.managed_processes import PeerFailed, started
from benchmarks.peers.marks import VARIABLE, marks
from benchmarks.process_trees import cpu_seconds_of_trees, memory, tree
from benchmarks.processes import load_average
from benchmarks.samples import loads, ratio, spread
from benchmarks.sdk_systems import surroundings
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.worker_systems import PEERS, Command, Kind, Place, System, ours
from benchmarks.workloads import Say

SEND_SECONDS_MAX = 60.0
FIRST_TASK_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.005
SETTLE_SECONDS_MAX = 3.0
"""What a worker does once, after its first task, is not what it does all the time."""
COMPARED = ("first_task_ms", "first_task_cpu_ms", "cpu_percent", "server_cpu_percent", "pss_mib", "rss_mib")
MEASURES = (*COMPARED, "processes")
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reading:
    """One worker, once. CPU is that of one core; memory and processes are those of the whole tree."""

    first_task_ms: float
    first_task_cpu_ms: float
    """What it used until then: this depends least on the neighbours."""
    cpu_percent: float
    server_cpu_percent: float
    pss_mib: float
    rss_mib: float
    processes: int
    load: float = field(default_factory=load_average)


Found = Mapping[tuple[str, Kind], Sequence[Reading]]


class Workers:
    """Measure ours on the stores that were chosen, and the peers that are there."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say, *, peers: bool) -> None:
        self._ground, self._sizes, self._say, self._peers = ground, sizes, say, peers

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        systems = [ours(store, self._ground) for store in stores] + list(self._others())
        if self._peers:
            systems = [system for system in systems if self._is_warm(system)]
        found: dict[tuple[str, Kind], list[Reading]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            for system in systems:
                self._say(f"workers, {system.name}: repetition {number}")
                for kind, reading in self._read(system, self._sizes.worker_idle_seconds):
                    found[system.name, kind].append(reading)
        own = [system.name for system in systems if system.is_ours]
        return {
            "systems": [{"name": system.name, "settings": system.settings} for system in systems],
            "figures": figures(found),
            "ratios": ratios(found, own),
        }

    def _others(self) -> Iterator[System]:
        for find in PEERS if self._peers else ():
            try:
                yield find(self._ground, self._say)
            except Absent as absent:
                self._say(f"workers, {find.__name__}: left out: {absent}")

    def _is_warm(self, system: System) -> bool:
        """Start each worker once, so that everything is compiled; a peer that cannot work is left out."""
        try:
            for _ in self._read(system, 0.0):
                pass
        except (Absent, PeerFailed) as failure:
            if system.is_ours:
                raise
            self._say(f"workers, {system.name}: left out: {failure}")
            return False
        return True

    def _read(self, system: System, idle_seconds: float) -> Iterator[tuple[Kind, Reading]]:
        with system.serving() as place:
            for kind, command in system.commands.items():
                home = self._ground.folder / f"worker-{next(_numbers)}"
                home.mkdir()
                yield kind, _reading(system, command, place, home, idle_seconds)


def _reading(system: System, command: Command, place: Place, home: Path, idle_seconds: float) -> Reading:
    noted = home / "marks"
    environment = _environment(home.parent) | dict(place.environment) | {VARIABLE: str(noted)}
    _send(system, environment)
    with contextlib.ExitStack() as stack, (home / "log").open("wb") as log:
        began = time.monotonic()
        worker = started(
            stack,
            home,
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        stack.callback(_clear, worker)
        first = _first_mark(worker, noted, home / "log")
        used = cpu_seconds_of_trees((worker.pid,))
        time.sleep(min(SETTLE_SECONDS_MAX, idle_seconds))
        return _at_rest(worker, place, ((first - began) * 1000, used * 1000), idle_seconds)


def _environment(folder: Path) -> dict[str, str]:
    """Worker commands find the apps, wherever they are installed."""
    kept = surroundings(folder)
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))}


def _send(system: System, environment: Mapping[str, str]) -> None:
    command = (system.python, "-c", f"from {system.app} import send; send()")
    sent = subprocess.run(
        command,
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=SEND_SECONDS_MAX,
        check=False,
    )
    if sent.returncode != 0:
        raise PeerFailed(f"no task could be sent to {system.name}:\n{sent.stderr[-2000:]}")


def _first_mark(worker: subprocess.Popen[bytes], noted: Path, log: Path) -> float:
    ends_at = time.monotonic() + FIRST_TASK_SECONDS_MAX
    while time.monotonic() < ends_at and worker.poll() is None:
        if found := marks(noted):
            return found[0]
        time.sleep(LOOK_SECONDS)
    raise PeerFailed(f"the worker did not run its task:\n{log.read_text()[-2000:]}")


def _at_rest(
    worker: subprocess.Popen[bytes], place: Place, first_task: tuple[float, float], idle_seconds: float
) -> Reading:
    def spent() -> tuple[float, float, float]:
        return time.monotonic(), cpu_seconds_of_trees((worker.pid,)), cpu_seconds_of_trees(place.pids)

    before = spent()
    time.sleep(idle_seconds)
    seconds, own, servers = (after - earlier for after, earlier in zip(spent(), before, strict=True))
    held = memory(worker.pid)
    return Reading(
        first_task_ms=first_task[0],
        first_task_cpu_ms=first_task[1],
        cpu_percent=own / seconds * 100,
        server_cpu_percent=servers / seconds * 100,
        pss_mib=held.pss,
        rss_mib=held.rss,
        processes=len(tree(worker.pid)),
    )


def _clear(worker: subprocess.Popen[bytes]) -> None:
    """Ask a worker to end, and end what it leaves behind: it is in a session of its own."""
    worker.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)


def figures(found: Found) -> list[dict[str, Any]]:
    """Each worker: median, least and most of its repetitions."""
    return [
        {
            "worker": name,
            "kind": kind,
            **{each: spread((getattr(reading, each) for reading in readings), 3) for each in MEASURES},
            "load": loads(reading.load for reading in readings),
        }
        for (name, kind), readings in found.items()
    ]


def ratios(found: Found, own: Sequence[str]) -> list[dict[str, Any]]:
    """Each of ours to each peer that runs its tasks in the same kind of processes, by the medians of one run."""
    medians = {(row["worker"], row["kind"]): row for row in figures(found)}
    return [
        {
            "ours": mine,
            "peer": peer,
            "kind": kind,
            **{each: ratio(row[each]["median"], theirs[each]["median"]) for each in COMPARED},
        }
        for (mine, kind), row in medians.items()
        for (peer, its_kind), theirs in medians.items()
        if mine in own and peer not in own and kind == its_kind
    ]
