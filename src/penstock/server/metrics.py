"""Numbers for Prometheus, without tenant names in the labels."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


@dataclass(slots=True)
class Outcome:
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
        self.open_polls = Gauge(
            "penstock_open_polls", "Polls that wait on this server.", registry=self.registry
        )

    @contextlib.contextmanager
    def request(self, operation: str) -> Iterator[Outcome]:
        outcome = Outcome()
        started = time.perf_counter()
        try:
            yield outcome
        finally:
            self._requests.labels(operation, str(outcome.status)).inc()
            self._seconds.labels(operation).observe(time.perf_counter() - started)

    def render(self) -> bytes:
        return generate_latest(self.registry)
