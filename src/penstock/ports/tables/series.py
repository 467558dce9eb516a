"""The time series of queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.model import QueueId, TaskKind
from penstock.core.series.samples import MeterReading, QueueSample, SeriesResolution


class ActiveQueue(Struct, frozen=True):
    """A queue with tasks, or with arrivals or dispatches in the last two minutes."""

    queue_id: QueueId
    namespace: str
    name: str
    kind: TaskKind


class Series(Protocol):
    async def sampled_at(self) -> int:
        """The step that was sampled last, on any server; 0 if none was."""
        ...

    async def advance(self, at_ms: int) -> bool:
        """Claim a step for this transaction; False if it, or a later one, is taken."""
        ...

    async def active_queues(self, minute: int, limit: int) -> Sequence[ActiveQueue]: ...
    async def meters(self, queue_id: QueueId, from_minute: int) -> Sequence[MeterReading]:
        """What a queue's meters read, from a minute on, the oldest first; minutes without anything are left out."""
        ...

    async def at(
        self, queue_ids: Sequence[QueueId], resolution: SeriesResolution, slot: int
    ) -> Sequence[QueueSample | None]:
        """What the slot of a ring holds, for each queue."""
        ...

    async def latest(
        self, queue_ids: Sequence[QueueId], resolution: SeriesResolution
    ) -> Sequence[QueueSample | None]:
        """The latest sample of each queue."""
        ...

    async def between(
        self, queue_id: QueueId, resolution: SeriesResolution, from_ms: int, to_ms: int
    ) -> Sequence[QueueSample]:
        """The samples of a queue whose steps begin in an interval, both ends included, the oldest first."""
        ...

    def save(self, queue_id: QueueId, resolution: SeriesResolution, sample: QueueSample) -> None: ...
