"""Metrics of a worker, reported to an object that the program passes in."""

from __future__ import annotations

from typing import Protocol

TASKS_STARTED = "penstock_worker_tasks_started"
TASKS_ENDED = "penstock_worker_tasks_ended"
TASK_SECONDS = "penstock_worker_task_seconds"
POLLS = "penstock_worker_polls"
REPORTS = "penstock_worker_reports"
REPORT_ITEMS = "penstock_worker_report_items"
CACHE_LOOKS = "penstock_worker_cache_looks"
CACHED_RUNS = "penstock_worker_cached_runs"
FREE_SLOTS = "penstock_worker_free_slots"
LEASES_ENDED = "penstock_worker_leases_ended"
"""Tasks dropped because their lease had expired: `when` is `before_start` or `running`."""
STUCK_ACTIVITIES = "penstock_worker_stuck_activities"
"""Activities that were asked to stop and are still running."""


class WorkerMetrics(Protocol):
    """Receives counters, timings and gauges by name. Called on the worker's event loop, so it must not block."""

    def count(self, name: str, by: int = 1, **labels: str) -> None: ...

    def timing(self, name: str, seconds: float, **labels: str) -> None: ...

    def level(self, name: str, value: float, **labels: str) -> None: ...


class NullMetrics:
    """Discards all metrics."""

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        return None

    def timing(self, name: str, seconds: float, **labels: str) -> None:
        return None

    def level(self, name: str, value: float, **labels: str) -> None:
        return None
