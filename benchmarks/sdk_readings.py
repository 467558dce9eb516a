"""What is read off a system: one number at a time, with the CPU time that its processes spent on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import cpu_of, load_average
from benchmarks.sdk_systems import Scene, System, surroundings
from benchmarks.sizes import SdkSizes

MORE, LESS = "more", "less"
TURNS = 3
"""How often the short and the long run take turns."""


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    unit: str
    better: str


@dataclass(frozen=True, slots=True)
class Reading:
    measure: Measure
    value: float
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """Of each process, for each task, workflow or event."""
    load: float = field(default_factory=load_average)


IMPORT = Measure("import of a worker's modules, Python included", "ms", LESS)
FIRST_TASK = Measure("worker: process start to first task", "ms", LESS)
MEMORY = Measure("idle worker: resident memory", "MiB", LESS)
IDLE_CPU = Measure("idle worker: CPU of one core", "%", LESS)
TASKS = Measure("standalone tasks, one worker", "per s", MORE)


def latency_measure(part: str, percentile: str) -> Measure:
    named = {"start": "first line", "result": "result"}
    return Measure(f"idle: send to {named[part]}, {percentile}", "ms", LESS)


def workflows_measure(steps: int) -> Measure:
    return Measure(f"workflows of {steps} activit{'y' if steps == 1 else 'ies'}", "per s", MORE)


def workflows_latency_measure(steps: int) -> Measure:
    return Measure(f"the same, start to result, p99 ({steps})", "ms", LESS)


def fan_out_measure(width: int) -> Measure:
    return Measure(f"fan-out of {width:,} activities", "per s", MORE)


def replay_measure() -> Measure:
    return Measure("replay of a long history", "events per s", MORE)


def more_measure(events: int) -> Measure:
    return Measure(f"one more update of a cached run at {events:,} events", "ms", LESS)


def growth_measure(sizes: SdkSizes, what: str) -> Measure:
    short, long = sizes.cached_events
    return Measure(f"the same, {long:,} to {short:,} events: {what}", "ratio", LESS)


class Reader:
    """Reads everything off one system, once."""

    def __init__(self, scene: Scene, sizes: SdkSizes, histories: Path) -> None:
        self._scene, self._sizes = scene, sizes
        self._history = histories / f"{scene.system.program.rpartition('.')[2]}.json"

    def all(self) -> Iterator[Reading]:
        yield Reading(FIRST_TASK, self._scene.first_task_seconds * 1000)
        yield from self._idle()
        yield from self._latency()
        yield self._rate(TASKS, "tasks", self._count(self._sizes.tasks, self._sizes.tasks_of_peers))
        if self._scene.system.embedded:
            self._scene.end_worker()
            self._scene.client.ask("embed")
        for steps in self._sizes.steps:
            yield from self._workflows(steps)
        yield self._rate(fan_out_measure(self._sizes.fan_out), "fan_out", self._sizes.fan_out)
        yield from self._replay()
        yield from self._growth()

    def _idle(self) -> Iterator[Reading]:
        pids = {"worker": self._scene.worker.pid}
        time.sleep(min(2.0, self._sizes.idle_seconds))
        began, before = time.perf_counter(), cpu_of(pids)["worker"]
        time.sleep(self._sizes.idle_seconds)
        used = cpu_of(pids)["worker"] - before
        yield Reading(IDLE_CPU, used / (time.perf_counter() - began) * 100)
        yield Reading(MEMORY, resident_mib(pids["worker"]))

    def _latency(self) -> Iterator[Reading]:
        answer = self._scene.client.ask("latency", self._sizes.asked)
        for part in ("start", "result"):
            for percentile in ("p50", "p99"):
                yield Reading(latency_measure(part, percentile), answer[part][percentile])

    def _workflows(self, steps: int) -> Iterator[Reading]:
        count = self._count(self._sizes.workflows, self._sizes.workflows_of_peers)
        with self._counting() as spent:
            answer = self._scene.client.ask("workflows", count, steps)
        yield Reading(workflows_measure(steps), count / answer["seconds"], _each(spent, count))
        if not self._scene.system.embedded:  # which has fewer in flight, so each is done sooner
            yield Reading(workflows_latency_measure(steps), answer["each"]["p99"])

    def _replay(self) -> Iterator[Reading]:
        """Of one history for all repetitions: the first has it made."""
        if not self._history.exists():
            made = self._scene.client.ask("record", self._sizes.replayed_events, str(self._history))
            if "unable" in made:
                return
        yield self._rate(replay_measure(), "replay", str(self._history))

    def _growth(self) -> Iterator[Reading]:
        """Updates of a short and of a long run, in turns; both are in the worker's cache."""
        lengths = self._sizes.cached_events
        for events in lengths:
            if "unable" in self._scene.client.ask("lengthen", events):
                return
        seconds, cpu = dict.fromkeys(lengths, 0.0), dict.fromkeys(lengths, 0.0)
        count = max(1, self._sizes.updates // TURNS)
        for _ in range(TURNS):
            for events in lengths:
                with self._counting() as spent:
                    seconds[events] += self._scene.client.ask("more", events, count)["seconds"]
                cpu[events] += sum(spent[name] for name in spent if name != "client")
        self._scene.client.ask("end")
        short, long = lengths
        for events in lengths:
            made = count * TURNS
            each_cpu = {"server, database and worker": cpu[events] * 1000 / made}
            yield Reading(more_measure(events), seconds[events] * 1000 / made, each_cpu)
        yield Reading(growth_measure(self._sizes, "time"), seconds[long] / seconds[short])
        if cpu[short]:
            yield Reading(growth_measure(self._sizes, "CPU"), cpu[long] / cpu[short])

    def _rate(self, measure: Measure, verb: str, *values: object) -> Reading:
        with self._counting() as spent:
            answer = self._scene.client.ask(verb, *values)
        return Reading(measure, answer["count"] / answer["seconds"], _each(spent, answer["count"]))

    @contextlib.contextmanager
    def _counting(self) -> Iterator[dict[str, float]]:
        """CPU seconds of every process inside the block, known after it."""
        spent: dict[str, float] = {}
        pids = self._scene.pids
        before = cpu_of(pids)
        yield spent
        spent |= {name: seconds - before[name] for name, seconds in cpu_of(pids).items()}

    def _count(self, own: int, of_peers: int) -> int:
        return own if self._scene.system.program.endswith("penstock") else of_peers


def _each(spent: Mapping[str, float], count: int) -> dict[str, float]:
    return {name: seconds * 1000 / count for name, seconds in spent.items()}


def import_reading(system: System, folder: Path) -> Reading:
    """A process that imports what a worker does, and ends; once before, so that everything is compiled."""
    command = (system.python, "-c", system.imported)
    options: dict[str, Any] = {"cwd": folder, "env": surroundings(folder), "check": True}
    subprocess.run(command, **options)
    began = time.perf_counter()
    subprocess.run(command, **options)
    return Reading(IMPORT, (time.perf_counter() - began) * 1000)


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
