"""What is read off every system side by side, and in which of the workloads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MORE, LESS = "more", "less"
BATCH = 100
STEPS = (1, 5)


class Workload(StrEnum):
    """What may be chosen by name."""

    TASKS = "tasks"
    BATCHES = "batches"
    DRAIN = "drain"
    LATENCY = "latency"
    WORKFLOWS = "workflows"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Measure:
    key: str
    """How targets and stored results name it."""
    about: str
    unit: str
    better: str


TASKS = Measure("tasks", "standalone tasks end to end, one call each", "per s", MORE)
TASK_CPU = Measure("task_cpu", "CPU of all processes for each of them", "ms", LESS)
BATCHES = Measure("batches", f"standalone tasks end to end, {BATCH} a call", "per s", MORE)
DRAIN = Measure("drain", "a backlog of tasks, first to last", "per s", MORE)
FIRST_TASK = Measure("first_task", "worker: process start to first task", "ms", LESS)
WORKER_MEMORY = Measure("worker_memory", "worker: memory after its first task (PSS)", "MiB", LESS)
WORKER_CPU = Measure("worker_cpu", "worker: CPU of one core while idle", "%", LESS)
SERVER_MEMORY = Measure("server_memory", "server: memory after all of this (PSS)", "MiB", LESS)
SERVER_CPU = Measure("server_cpu", "server: CPU of one core while idle", "%", LESS)


def latency(to: str, percentile: str) -> Measure:
    """`to` is the start, its first line, or the result."""
    reached = "first line" if to == "start" else to
    return Measure(f"{to}_{percentile}", f"idle: send to {reached}, {percentile}", "ms", LESS)


def workflows(steps: int) -> Measure:
    return Measure(f"workflows_{steps}", f"workflows of {_activities(steps)}", "per s", MORE)


def workflow_latency(steps: int, percentile: str) -> Measure:
    about = f"workflows of {_activities(steps)}, start to result, {percentile}"
    return Measure(f"workflows_{steps}_{percentile}", about, "ms", LESS)


def queued(steps: int) -> Measure:
    return Measure(f"queued_{steps}", f"queued workflows of {_activities(steps)}", "per s", MORE)


def queued_latency(steps: int, percentile: str) -> Measure:
    about = f"queued workflows of {_activities(steps)}, start to result, {percentile}"
    return Measure(f"queued_{steps}_{percentile}", about, "ms", LESS)


def _activities(steps: int) -> str:
    return "1 activity" if steps == 1 else f"{steps} activities"
