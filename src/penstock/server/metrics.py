"""Prometheus metrics of this process, without tenant names in the labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from penstock.engine.runtime.upkeep import Upkeep


class Metrics:
    """All metrics of one server; they are labelled and counted where the events happen."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "penstock_requests",
            "Requests by operation and status.",
            ("operation", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "penstock_request_seconds",
            "How long requests took, long polls included.",
            ("operation",),
            registry=self.registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
        )
        self.polls = Counter(
            "penstock_polls",
            "Polls that were answered, by kind of task and outcome.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.dispatches = Counter(
            "penstock_dispatches",
            "Tasks that were handed to workers, by kind and priority level.",
            ("kind", "priority"),
            registry=self.registry,
        )
        self.bridge_events = Counter(
            "penstock_bridge_events",
            "Events of bridge adapters, by outcome and reason.",
            ("outcome", "reason"),
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
        self.payloads_deleted = Gauge(
            "penstock_external_payloads_deleted",
            "Objects of external storage that this server has deleted because nothing needed them.",
            registry=self.registry,
        )
        self.runs_archived = Gauge(
            "penstock_runs_archived", "Runs whose history this server has archived.", registry=self.registry
        )
        self.archive_failures = Gauge(
            "penstock_archive_failures", "Histories that could not be archived.", registry=self.registry
        )

        self.schedule_fires = Gauge(
            "penstock_schedule_fires",
            "Fires of schedules that this server has carried out, by whether they started a run.",
            ("outcome",),
            registry=self.registry,
        )

    def expose_maintenance(self, upkeep: Upkeep) -> None:
        self.schedule_fires.labels("started").set(upkeep.fires_started)
        self.schedule_fires.labels("not_started").set(upkeep.fires_not_started)
        self.runs_pruned.set(upkeep.runs_pruned)
        self.payloads_deleted.set(upkeep.payloads_deleted)
        self.runs_archived.set(upkeep.runs_archived)
        self.archive_failures.set(upkeep.archive_failures)

    def render(self) -> bytes:
        return generate_latest(self.registry)
