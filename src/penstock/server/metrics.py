"""Prometheus metrics of this process, without tenant names in the labels."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from penstock.core.model import TaskKind
from penstock.engine.runtime.upkeep import Upkeep


@dataclass(slots=True)
class RequestOutcome:
    status: int = 500


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_requests",
            "Requests by operation and status.",
            ("operation", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "penstock_request_seconds",
            "How long requests took, long polls included.",
            ("operation",),
            registry=self.registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
        )
        self._polls = Counter(
            "penstock_polls",
            "Polls that were answered, by kind of task and outcome.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self._dispatches = Counter(
            "penstock_dispatches",
            "Tasks that were handed to workers, by kind and priority level.",
            ("kind", "priority"),
            registry=self.registry,
        )
        self.open_polls = Gauge(
            "penstock_open_polls", "Polls that wait on this server.", registry=self.registry
        )

        self.runs_pruned = Gauge(
            "penstock_runs_pruned",
            "Runs that this server has deleted after their retention.",
            registry=self.registry,
        )
        self.runs_archived = Gauge(
            "penstock_runs_archived", "Runs whose history this server has archived.", registry=self.registry
        )
        self.archive_failures = Gauge(
            "penstock_archive_failures", "Histories that could not be archived.", registry=self.registry
        )

    def expose_maintenance(self, upkeep: Upkeep) -> None:
        self.runs_pruned.set(upkeep.runs_pruned)
        self.runs_archived.set(upkeep.runs_archived)
        self.archive_failures.set(upkeep.archive_failures)

    @contextlib.contextmanager
    def request(self, operation: str) -> Iterator[RequestOutcome]:
        outcome = RequestOutcome()
        started = time.perf_counter()
        try:
            yield outcome
        finally:
            self._requests.labels(operation, str(outcome.status)).inc()
            self._seconds.labels(operation).observe(time.perf_counter() - started)

    def record_poll(self, kind: TaskKind, outcome: str, levels: Iterable[int]) -> None:
        """Count a finished poll and the tasks that it returned, by priority level."""
        self._polls.labels(kind.value, outcome).inc()
        for level in levels:
            self._dispatches.labels(kind.value, str(level)).inc()

    def render(self) -> bytes:
        return generate_latest(self.registry)
