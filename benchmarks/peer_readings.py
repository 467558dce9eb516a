"""What is read off one system: every workload once, with the CPU time of all processes that took part."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import peer_measures as measures
from benchmarks.peer_measures import Measure, Workload
from benchmarks.peer_stage import Stage
from benchmarks.peer_systems import Counts
from benchmarks.process_trees import cpu_seconds_of_trees, memory
from benchmarks.processes import busy_seconds, load_average, own_cpu_seconds

SETTLE_SECONDS_MAX = 3.0
"""What a process does once, after its first task or after much work, is not what it does all the time."""
ECHO_SECONDS = 0.3
"""After the last task has run, what is acknowledged late is still counted."""


@dataclass(frozen=True, slots=True)
class Reading:
    measure: Measure
    value: float
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """Of each process, for each task or workflow."""
    others_percent: float | None = None
    """CPU of one core that everything else on the machine used meanwhile."""
    load: float = field(default_factory=load_average)


@dataclass(slots=True)
class Spent:
    """What a block took, known after it."""

    cpu_seconds: dict[str, float] = field(default_factory=dict)
    others_percent: float = 0.0
    seconds: float = 0.0

    def each_ms(self, count: int) -> dict[str, float]:
        return {name: seconds * 1000 / count for name, seconds in self.cpu_seconds.items()}


class Reader:
    """Reads the chosen workloads off one system, once."""

    def __init__(
        self, stage: Stage, counts: Counts, chosen: Collection[Workload], idle_seconds: float
    ) -> None:
        self._stage, self._counts, self._chosen, self._idle_seconds = stage, counts, chosen, idle_seconds

    def all(self) -> Iterator[Reading]:
        first = self._stage.first_task_seconds()
        if Workload.IDLE in self._chosen:
            yield Reading(measures.FIRST_TASK, first * 1000)
            yield from self._idle()
        if Workload.LATENCY in self._chosen and self._counts.asked:
            yield from self._latency()
        if Workload.TASKS in self._chosen and self._counts.tasks:
            yield from self._tasks()
        if Workload.BATCHES in self._chosen and self._counts.batched:
            yield from self._batches()
        if Workload.WORKFLOWS in self._chosen:
            yield from self._all_workflows()
        if Workload.DRAIN in self._chosen and self._counts.backlog:
            yield from self._drain()
        if Workload.IDLE in self._chosen:
            yield from self._server_memory()

    def _idle(self) -> Iterator[Reading]:
        """A worker and its server that have nothing to do, side by side."""
        server = self._stage.server_pid
        pids = {"worker": self._stage.worker_pid} | ({} if server is None else {"server": server})
        time.sleep(min(SETTLE_SECONDS_MAX, self._idle_seconds))
        began = time.monotonic()
        with counting(pids) as spent:
            time.sleep(self._idle_seconds)
        seconds = time.monotonic() - began
        for name, used in spent.cpu_seconds.items():
            measure = measures.WORKER_CPU if name == "worker" else measures.SERVER_CPU
            yield Reading(measure, used / seconds * 100, others_percent=spent.others_percent)
        yield Reading(measures.WORKER_MEMORY, memory(self._stage.worker_pid).pss)

    def _server_memory(self) -> Iterator[Reading]:
        server = self._stage.server_pid
        if server is not None:
            yield Reading(measures.SERVER_MEMORY, memory(server).pss)

    def _latency(self) -> Iterator[Reading]:
        answer = self._stage.client.ask("latency", self._counts.asked)
        for to in ("start", "result"):
            for percentile in ("p50", "p99"):
                yield Reading(measures.latency(to, percentile), answer[to][percentile])

    def _tasks(self) -> Iterator[Reading]:
        with counting(self._stage.pids) as spent:
            answer = self._stage.client.ask("tasks", self._counts.tasks)
            time.sleep(ECHO_SECONDS)
        each = spent.each_ms(self._counts.tasks)
        yield _rate(measures.TASKS, answer, spent, each)
        yield Reading(measures.TASK_CPU, sum(each.values()), each, spent.others_percent)

    def _batches(self) -> Iterator[Reading]:
        with counting(self._stage.pids) as spent:
            answer = self._stage.client.ask("batches", self._counts.batched, measures.BATCH)
            time.sleep(ECHO_SECONDS)
        yield _rate(measures.BATCHES, answer, spent, spent.each_ms(answer["count"]))

    def _all_workflows(self) -> Iterator[Reading]:
        for steps, count in self._counts.queued.items():
            made = measures.queued(steps), lambda each, steps=steps: measures.queued_latency(steps, each)
            yield from self._workflows("queued", steps, count, *made)
        if self._counts.workflows and self._stage.system.embedded:
            self._stage.end_worker()
            self._stage.client.ask("embed")
        for steps, count in self._counts.workflows.items():
            made = measures.workflows(steps), lambda each, steps=steps: measures.workflow_latency(steps, each)
            yield from self._workflows("workflows", steps, count, *made)

    def _workflows(self, verb: str, steps: int, count: int, rate: Measure, delay: Any) -> Iterator[Reading]:
        with counting(self._stage.pids) as spent:
            answer = self._stage.client.ask(verb, count, steps)
        yield _rate(rate, answer, spent, spent.each_ms(count))
        for percentile in ("p50", "p99"):
            yield Reading(delay(percentile), answer["each"][percentile])

    def _drain(self) -> Iterator[Reading]:
        """A backlog that is there before the worker is."""
        self._stage.end_worker()
        before = self._stage.client.ask("fill", self._counts.backlog)["before"]
        self._stage.client.begin("drained", before, self._counts.backlog)
        self._stage.start_worker()
        with counting(self._stage.pids) as spent:
            answer = self._stage.client.finish()
        yield _rate(measures.DRAIN, answer, spent, spent.each_ms(self._counts.backlog))


@contextlib.contextmanager
def counting(pids: Mapping[str, int]) -> Iterator[Spent]:
    """What these processes use inside the block."""
    spent = Spent()
    before, began, busy, own = _cpu(pids), time.monotonic(), busy_seconds(), own_cpu_seconds()
    yield spent
    after, spent.seconds = _cpu(pids), time.monotonic() - began
    spent.cpu_seconds = {name: after[name] - before[name] for name in before}
    foreign = busy_seconds() - busy - (own_cpu_seconds() - own) - sum(spent.cpu_seconds.values())
    spent.others_percent = max(0.0, foreign / spent.seconds * 100)


def _cpu(pids: Mapping[str, int]) -> dict[str, float]:
    return {name: cpu_seconds_of_trees((pid,)) for name, pid in pids.items()}


def _rate(measure: Measure, answer: Mapping[str, Any], spent: Spent, each: Mapping[str, float]) -> Reading:
    return Reading(measure, answer["count"] / answer["seconds"], each, spent.others_percent)
