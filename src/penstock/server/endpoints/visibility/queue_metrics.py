"""Admission of all task queues as Prometheus metrics. Labels name tenants, so they require authentication."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from penstock.core.model import TaskKind
from penstock.engine.visibility import task_queues
from penstock.server.endpoints.matching.task_queues import admission_body
from penstock.server.operation import OperationCall, Response

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
    "ready": ("ready_count", "Tasks that wait."),
    "leased": ("leased_count", "Tasks that workers hold, including prefetched ones."),
    "claimed": ("claimed_count", "Prefetched tasks that were not started: they use no slot."),
    "worker_slots": ("configured_slot_count", "Slots that active workers offer."),
}


async def read(call: OperationCall) -> Response:
    """Status, counts and limits of every queue of the namespace."""
    registry = CollectorRegistry()
    counts = {
        name: Gauge(f"penstock_queue_{name}", text, ("namespace", "task_queue", "kind"), registry=registry)
        for name, (_, text) in _COUNTS.items()
    }
    status = Gauge(
        "penstock_queue_admission",
        "1 for the status of a queue's tasks of one kind.",
        ("namespace", "task_queue", "kind", "status"),
        registry=registry,
    )
    alone = Gauge(
        "penstock_queue_without_worker",
        "1 if ready tasks match no active worker by type, build or slots.",
        ("namespace", "task_queue", "kind"),
        registry=registry,
    )
    unserved = Gauge(
        "penstock_queue_unserved",
        "Ready tasks that match no active worker, by type, build and the reason that `why` gives.",
        ("namespace", "task_queue", "kind", "type", "build_id", "reason"),
        registry=registry,
    )
    caps = {
        name: Gauge(
            f"penstock_queue_limit_{name}",
            text,
            ("namespace", "task_queue", "kind", "limit", "scope"),
            registry=registry,
        )
        for name, text in (
            ("max", "What a limit allows."),
            ("used", "How much of a limit is used."),
            ("remaining", "How much of a limit is left."),
        )
    }
    for view in await task_queues.list_queues(call.ctx, call.namespace):
        for kind in TaskKind:
            section: dict[str, Any] = admission_body(call, view)[f"{kind.value}_tasks"]
            labels = (call.namespace, view.name, kind.value)
            for name, (field, _) in _COUNTS.items():
                counts[name].labels(*labels).set(section.get(field, 0))
            alone.labels(*labels).set(section["unserved_ready_count"] > 0)
            for route in section["unserved"]:
                unserved.labels(*labels, route["type"], route["build_id"] or "", route["reason"]).set(
                    route["ready_count"]
                )
            for each in STATUSES:
                status.labels(*labels, each).set(each == section["status"])
            for cap in section["caps"]:
                for name, gauge in caps.items():
                    if cap[name] is not None:
                        gauge.labels(*labels, cap["limit"], cap["scope"]).set(cap[name])
    return Response(
        generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )
