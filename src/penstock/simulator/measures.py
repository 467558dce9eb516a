"""What a simulation measures: waits of each key, use of slots, and seconds of waiting by cause.

A wait lasts from the moment at which an attempt may be dispatched to its dispatch; the pause before a retry is none.
The waiting time of a queue is attributed to what its last claim reported to be in the way. Where keys of one queue
wait for different reasons, the reason reported for the whole queue counts for all of them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from penstock.core.model import TaskKind

SERIES_KEYS_MAX = 8
SAMPLES_MAX = 480
FIRST_STEP_MS = 50

QueueName = tuple[str, TaskKind]


class HeldBackBy(StrEnum):
    """What waiting tasks wait for."""

    NO_WORKER = "no worker"
    NO_WORKER_FOR_TYPE = "no worker for the type"
    SLOTS = "worker slots"
    PAUSED = "pause"
    QUEUE_RATE = "rate of the queue"
    QUEUE_LEASE_CAP = "lease cap of the queue"
    QUEUE_DISPATCHES = "dispatches per minute of the queue"
    KEY_LIMITS = "limits of keys"
    SCOPE_PAUSED = "pause of a group or namespace"
    SCOPE_LEASE_CAP = "lease cap of a group, namespace or the cluster"
    SCOPE_DISPATCHES = "dispatches per minute of a group, namespace or the cluster"
    SCOPE_COST = "cost budget"
    COOLING = "cool-down"


def quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of the values does not exceed; 0 for none."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0


@dataclass(slots=True)
class KeyMeasures:
    """The tasks of one fairness key on a queue."""

    arrived: int = 0
    completed: int = 0
    failed_attempts: int = 0
    waiting: int = 0
    running: int = 0
    waits: array[int] = field(default_factory=lambda: array("q"))
    """Waits of all dispatches, in milliseconds."""

    @property
    def dispatched(self) -> int:
        return len(self.waits)


@dataclass(slots=True)
class QueueMeasures:
    """The tasks of one kind on a queue."""

    keys: dict[str, KeyMeasures] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0
    slots: int = 0
    peak_waiting: int = 0
    cause: HeldBackBy = HeldBackBy.NO_WORKER
    waiting_by_cause: Counter[HeldBackBy] = field(default_factory=Counter)
    """Task-milliseconds of waiting."""
    running_ms: int = 0
    slots_ms: int = 0
    cleared_at_ms: int | None = None
    """When nothing waited for the first time after most tasks did; None: that never came, or none ever waited."""
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    """Time, waiting and running tasks."""
    samples_by_key: dict[str, list[int]] = field(default_factory=dict)
    """Waiting tasks at each of these times, of the first keys."""

    def key(self, name: str) -> KeyMeasures:
        found = self.keys.get(name)
        if found is None:
            found = self.keys[name] = KeyMeasures()
            if len(self.samples_by_key) < SERIES_KEYS_MAX:
                self.samples_by_key[name] = [0] * len(self.samples)
        return found

    def waits(self) -> list[int]:
        """The waits of all its dispatches, in order of length."""
        return sorted(wait for each in self.keys.values() for wait in each.waits)


class Measures:
    """Collects what happens in one run of the simulator."""

    def __init__(self) -> None:
        """Start at time 0."""
        self.queues: dict[QueueName, QueueMeasures] = {}
        self.now_ms = 0
        self.ended_at_ms = 0
        """When the last event happened."""
        self.dispatches = array("q")
        """Of each dispatch: its time, the place of the task among the arrivals, and its wait."""
        self._step_ms = FIRST_STEP_MS
        """Time between two samples of the series; it doubles whenever there are enough of them."""
        self._sample_at_ms = self._taken = 0

    def queue(self, name: QueueName) -> QueueMeasures:
        return self.queues.setdefault(name, QueueMeasures())

    def advance(self, to_ms: int) -> None:
        """Account for the time until the next event."""
        while self._sample_at_ms < to_ms:
            self._sample(self._sample_at_ms)
            self._sample_at_ms += self._step_ms
        passed_ms = to_ms - self.now_ms
        if passed_ms:
            for each in self.queues.values():
                if each.waiting:
                    each.waiting_by_cause[each.cause] += passed_ms * each.waiting
                each.running_ms += passed_ms * each.running
                each.slots_ms += passed_ms * each.slots
        self.now_ms = self.ended_at_ms = to_ms

    @property
    def is_clear(self) -> bool:
        """Whether every queue has been without waiting tasks since its longest backlog."""
        return all(not each.peak_waiting or each.cleared_at_ms is not None for each in self.queues.values())

    def finish(self) -> None:
        """Add the last sample."""
        self._sample(self.now_ms)

    def _sample(self, at_ms: int) -> None:
        for each in self.queues.values():
            each.samples.append((at_ms, each.waiting, each.running))
            for name, series in each.samples_by_key.items():
                series.append(each.keys[name].waiting)
        self._taken += 1
        if self._taken == SAMPLES_MAX:
            self._thin_out()

    def _thin_out(self) -> None:
        """Keep every other sample, and take half as many from now on."""
        self._taken //= 2
        self._step_ms *= 2
        for each in self.queues.values():
            each.samples = each.samples[::2]
            each.samples_by_key = {name: series[::2] for name, series in each.samples_by_key.items()}

    def ready(self, name: QueueName, key: str) -> None:
        """An attempt waits from now on."""
        queue = self.queue(name)
        queue.waiting += 1
        queue.key(key).waiting += 1
        if queue.waiting > queue.peak_waiting:
            queue.peak_waiting, queue.cleared_at_ms = queue.waiting, None

    def dispatched(self, name: QueueName, key: str, arrival: int, wait_ms: int) -> None:
        """A task leaves the waiting ones; `arrival` is its place in the workload."""
        self.dispatches.extend((self.now_ms, arrival, wait_ms))
        queue = self.queue(name)
        of_key = queue.key(key)
        queue.waiting -= 1
        queue.running += 1
        of_key.waiting -= 1
        of_key.running += 1
        of_key.waits.append(wait_ms)
        if not queue.waiting and queue.cleared_at_ms is None:
            queue.cleared_at_ms = self.now_ms

    def ended(self, name: QueueName, key: str) -> None:
        queue = self.queue(name)
        queue.running -= 1
        queue.key(key).running -= 1


def total_waits(queues: Iterable[QueueMeasures]) -> list[int]:
    return sorted(wait for queue in queues for each in queue.keys.values() for wait in each.waits)
