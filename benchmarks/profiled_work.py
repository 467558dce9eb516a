"""The workloads that are profiled: what each asks of a stage, so that it can be watched from begin to end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.peer_measures import BATCH, Workload
from benchmarks.peer_readings import ECHO_SECONDS, SETTLE_SECONDS_MAX
from benchmarks.peer_stage import Stage
from benchmarks.peer_systems import Counts

Question = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One workload of so many items."""

    name: str
    """How targets and stored results name it."""
    about: str
    item: str
    count: float
    question: Question = ()

    @property
    def echo_seconds(self) -> float:
        """How long what is acknowledged late still counts."""
        return ECHO_SECONDS

    def prepare(self, at_work: Stage) -> Question:
        """Have what must be there before; returns what the client is to be asked."""
        return self.question

    def begin(self, at_work: Stage, question: Question) -> None:
        at_work.client.begin(*question)

    def finish(self, at_work: Stage) -> Mapping[str, Any]:
        return at_work.client.finish()


class Drain(Job):
    """A backlog that is there before the worker is."""

    def prepare(self, at_work: Stage) -> Question:
        at_work.end_worker()
        count = int(self.count)
        return ("drained", at_work.client.ask("fill", count)["before"], count)

    def begin(self, at_work: Stage, question: Question) -> None:
        at_work.client.begin(*question)
        at_work.start_worker()


class Rest(Job):
    """Nothing to do for so many seconds."""

    @property
    def echo_seconds(self) -> float:
        return 0.0

    def prepare(self, at_work: Stage) -> Question:
        time.sleep(min(SETTLE_SECONDS_MAX, self.count))
        return ()

    def begin(self, at_work: Stage, question: Question) -> None:
        pass

    def finish(self, at_work: Stage) -> Mapping[str, Any]:
        time.sleep(self.count)
        return {"count": self.count, "seconds": self.count}


def jobs(counts: Counts, idle_seconds: float, chosen: Collection[Workload]) -> Iterator[Job]:
    """Those that were chosen, in the order of the part `peers`."""
    if Workload.IDLE in chosen:
        yield Rest("idle", "at rest", "second", idle_seconds)
    if Workload.LATENCY in chosen:
        yield Job("latency", "one task at a time", "task", counts.asked, ("latency", counts.asked))
    if Workload.TASKS in chosen:
        yield Job("tasks", "tasks, one call each", "task", counts.tasks, ("tasks", counts.tasks))
    if Workload.BATCHES in chosen:
        question = ("batches", counts.batched, BATCH)
        yield Job("batches", f"tasks, {BATCH} a call", "task", counts.batched, question)
    if Workload.WORKFLOWS in chosen:
        for steps, count in counts.workflows.items():
            about = f"workflows of {steps} activit{'y' if steps == 1 else 'ies'}"
            yield Job(f"workflows_{steps}", about, "workflow", count, ("workflows", count, steps))
    if Workload.DRAIN in chosen:
        yield Drain("drain", "a backlog of tasks", "task", counts.backlog)
