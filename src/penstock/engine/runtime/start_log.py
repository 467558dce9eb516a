"""What this server saw start: how long tasks had waited by key, and whether forecasts of their start held.

A hint in memory, bounded, and fed without a statement: grants pass by as they are delivered, and forecasts as somebody
reads them. The sampler adds the waits to the time series of their queues, and judges the forecasts whose time is over
(`engine.visibility.start_reports`). What another server grants is judged there only if it is still leased by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.model import QueueId, Task
from penstock.core.scheduling.polls import Leased
from penstock.core.series.waits import KeyWaits, bucket_of, most_waits
from penstock.core.why.forecast_score import (
    GRACE_MS,
    ForecastCoverage,
    ForecastOutcome,
    StartForecast,
    coverage,
    outcome,
)

QUEUES_MAX, KEYS_MAX = 200, 100
"""Queues, and keys of each, whose waits are counted between two samples; further ones are left out."""
FORECASTS_MAX = 1_000
"""Open forecasts; further ones are not judged."""
JUDGED_MAX = 500
"""The newest judged forecasts, of which the coverage is."""


@dataclass(slots=True)
class StartLog:
    """Starts and forecasts of this server since its process began."""

    _waits: dict[QueueId, dict[str, dict[int, int]]] = field(default_factory=dict)
    _open: dict[str, StartForecast] = field(default_factory=dict)
    _judged: deque[ForecastOutcome] = field(default_factory=lambda: deque(maxlen=JUDGED_MAX))

    def delivered(self, queue_id: QueueId, leased: Sequence[Leased]) -> None:
        """Note what a claim leased to a poll; what an earlier poll was charged for started then."""
        for each in leased:
            if each.charge is not None:
                self.started(queue_id, each.task)

    def started(self, queue_id: QueueId, task: Task) -> None:
        """Note that a task was leased."""
        at_ms = task.leased_at_ms
        if at_ms is None:
            return
        self.judge(task.task_id, at_ms, at_ms)
        keys = self._waits.get(queue_id)
        if keys is None:
            if len(self._waits) >= QUEUES_MAX:
                return
            keys = self._waits[queue_id] = {}
        counts = keys.get(task.key)
        if counts is None:
            if len(keys) >= KEYS_MAX:
                return
            counts = keys[task.key] = {}
        bucket = bucket_of(at_ms - task.enqueued_at_ms)
        counts[bucket] = counts.get(bucket, 0) + 1

    @property
    def has_waits(self) -> bool:
        """Whether anything started since `take_waits` was called."""
        return bool(self._waits)

    def take_waits(self, most_keys: int) -> Mapping[QueueId, Sequence[KeyWaits]]:
        """The waits since the last call, of the keys of each queue with the most of them."""
        found, self._waits = self._waits, {}
        return {queue_id: most_waits(keys, most_keys) for queue_id, keys in found.items()}

    def expect(self, forecast: StartForecast) -> None:
        """Remember the first forecast of a task, to be judged by what happens."""
        if len(self._open) < FORECASTS_MAX:
            self._open.setdefault(forecast.task_id, forecast)

    def overdue(self, now_ms: int, most: int) -> Sequence[StartForecast]:
        """Forecasts whose range is over, and whose task this server did not see start."""
        late = [each for each in list(self._open.values()) if each.to_ms + GRACE_MS < now_ms]
        return late[:most]

    def judge(self, task_id: str, started_at_ms: int | None, now_ms: int) -> None:
        """Judge the forecast of a task, if there is one, by when it started; None: it still waits."""
        forecast = self._open.get(task_id)
        found = None if forecast is None else outcome(forecast, started_at_ms, now_ms)
        if found is not None:
            del self._open[task_id]
            self._judged.append(found)

    def forget(self, task_id: str) -> None:
        """Drop the forecast of a task that went away without a start that anybody saw."""
        self._open.pop(task_id, None)

    def coverage(self) -> ForecastCoverage:
        """How many of the newest judged forecasts held."""
        return coverage(list(self._judged))
