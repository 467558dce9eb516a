"""Admission of all task queues as Prometheus metrics. Labels name tenants, so they require authentication."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from penstock.core.model import QueueStats, TaskKind
from penstock.core.scheduling.backlog import dispatchable, oldest_wait_ms
from penstock.engine.visibility import task_queues
from penstock.engine.visibility.task_queues import QueueView
from penstock.server.endpoints.matching.task_queues import admission_body
from penstock.server.operation import Body, OperationCall, Response

STATUSES = (
    "accepting",
    "throttled",
    "saturated",
    "no_slots",
    "no_worker_for_type",
    "no_active_workers",
    "unavailable",
)
_COUNTS = {
    "ready": ("ready_count", "Ready tasks."),
    "leased": ("leased_count", "Tasks that workers hold, including prefetched ones."),
    "claimed": ("claimed_count", "Prefetched tasks that were not started: they use no slot."),
    "worker_slots": ("configured_slot_count", "Slots that active workers offer."),
}


_QUEUE_LABELS = ("namespace", "task_queue", "kind")
_LIMIT_TEXTS = {
    "max": "What a limit allows.",
    "used": "How much of a limit is used.",
    "remaining": "How much of a limit is left.",
}


async def read(call: OperationCall) -> Response:
    """Status, counts and limits of every queue of the namespace."""
    metrics = QueueMetrics()
    for view in await task_queues.list_queues(call.ctx, call.namespace):
        admission = admission_body(call, view)
        for kind in TaskKind:
            labels = (call.namespace, view.name, kind.value)
            metrics.add(labels, admission[f"{kind.value}_tasks"])
            metrics.add_backlog(labels, view, kind)
    return Response(
        generate_latest(metrics.registry),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


class QueueMetrics:
    """Gauges of one scrape, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counts = {name: self._gauge(name, text) for name, (_, text) in _COUNTS.items()}
        self._status = self._gauge("admission", "1 for the status of a queue's tasks of one kind.", "status")
        self._without_worker = self._gauge(
            "without_worker", "1 if ready tasks match no active worker by type, build or slots."
        )
        self._unserved = self._gauge(
            "unserved",
            "Ready tasks that match no active worker, by type, build and the reason that `why` gives.",
            *("type", "build_id", "reason"),
        )
        self._dispatchable = self._gauge(
            "dispatchable",
            "Ready tasks that no limit of the queue or its scopes holds back. Limits of keys do not count.",
        )
        self._delayed = self._gauge("delayed", "Tasks that become ready later: retries and delayed starts.")
        self._oldest_wait = self._gauge(
            "oldest_wait_seconds", "How long the oldest ready task has waited; 0 without one."
        )
        self._limits = {
            name: self._gauge(f"limit_{name}", text, "limit", "scope") for name, text in _LIMIT_TEXTS.items()
        }

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"penstock_queue_{name}", text, (*_QUEUE_LABELS, *labels), registry=self.registry)

    def add(self, queue: tuple[str, str, str], section: Body) -> None:
        """Add the admission section of a queue's tasks of one kind."""
        for name, (field, _) in _COUNTS.items():
            self._counts[name].labels(*queue).set(section.get(field, 0))
        self._without_worker.labels(*queue).set(section["unserved_ready_count"] > 0)
        for route in section["unserved"]:
            labels = (route["type"], route["build_id"] or "", route["reason"])
            self._unserved.labels(*queue, *labels).set(route["ready_count"])
        for each in STATUSES:
            self._status.labels(*queue, each).set(each == section["status"])
        for cap in section["caps"]:
            for name, gauge in self._limits.items():
                if cap[name] is not None:
                    gauge.labels(*queue, cap["limit"], cap["scope"]).set(cap[name])

    def add_backlog(self, labels: tuple[str, str, str], view: QueueView, kind: TaskKind) -> None:
        """Add what waits in a queue, and how much of it no limit holds back."""
        stats = view.stats.get(kind, QueueStats())
        self._dispatchable.labels(*labels).set(dispatchable(stats, view.gates[kind]))
        self._delayed.labels(*labels).set(stats.delayed)
        self._oldest_wait.labels(*labels).set(oldest_wait_ms(stats, view.now_ms) / 1000)
