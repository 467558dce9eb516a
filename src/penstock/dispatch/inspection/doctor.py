"""Compares a configuration with the workers and queues of a running server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.dispatch.config import DispatchConfig
from penstock.schema.nearest import Suggestions
from penstock.schema.problems import hint_towards


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker that is there: which queue it serves and which activities it knows."""

    worker_id: str
    task_queue: str
    activities: frozenset[str] = frozenset()
    takes_activities: bool = True


@dataclass(frozen=True, slots=True)
class UnservedTasks:
    """Waiting tasks of one type and build that no worker takes, as the server reports them."""

    task_type: str
    message: str
    ready: int = 0


@dataclass(frozen=True, slots=True)
class QueueRateView:
    """A queue's rate limits and waiting tasks, as the server reports them."""

    limit: float | None = None
    source: str | None = None
    worker_limit: float | None = None
    """What its workers take at most together; None: as many as there are."""
    ready: int = 0
    unserved: Sequence[UnservedTasks] = ()
    """Tasks that wait there and that no worker takes."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One finding: `kind` for scripts, the rest for people."""

    kind: str
    subject: str
    message: str
    advice: str = ""

    @property
    def is_serious(self) -> bool:
        """Whether tasks would wait for ever; the other kinds are warnings."""
        return self.kind in (
            "queue_without_worker",
            "activity_without_worker",
            "route_to_nowhere",
            "tasks_without_worker",
        )


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Workers and queues, as a server reports them."""

    workers: Sequence[WorkerView] = ()
    queues: Mapping[str, QueueRateView] = field(default_factory=dict)


def examine(config: DispatchConfig, seen: ClusterView | None = None) -> list[DoctorFinding]:
    """All findings; without a server, only those of the configuration itself."""
    findings = list(_caps_by_themselves(config))
    if seen is not None:
        findings += _unserved(config, seen)
        findings += _waiting(seen)
        findings += _strangers(config, seen)
        findings += _caps_seen(config, seen)
    return sorted(findings, key=lambda each: (each.kind, each.subject))


def _routed(config: DispatchConfig) -> dict[str, set[str]]:
    """The activities that are routed to each queue."""
    routed: dict[str, set[str]] = {}
    for activity, route in config.worker_config.activity_queues.items():
        for _, queue in route.targets():
            routed.setdefault(queue, set()).add(activity)
    return routed


def _unserved(config: DispatchConfig, seen: ClusterView) -> Iterator[DoctorFinding]:
    routed = _routed(config)
    suggest = Suggestions()
    for queue in sorted({config.worker_config.default_task_queue, *routed}):
        there = [worker for worker in seen.workers if worker.task_queue == queue]
        if not there:
            yield _without_worker(config, seen, queue, sorted(routed.get(queue, ())), suggest)
            continue
        for activity in sorted(routed.get(queue, ())):
            if not any(_takes(worker, activity) for worker in there):
                yield DoctorFinding(
                    "activity_without_worker",
                    f"{activity} on {queue}",
                    f"workers serve the queue ({len(there)}), but none takes this activity",
                    "widen the scope of a worker there, or give its profile activity slots",
                )


def _waiting(seen: ClusterView) -> Iterator[DoctorFinding]:
    """Tasks that already wait for a missing worker, regardless of the configuration."""
    for queue, each in sorted(seen.queues.items()):
        for route in each.unserved:
            tasks = "1 task waits" if route.ready == 1 else f"{route.ready} tasks wait"
            yield DoctorFinding(
                "tasks_without_worker",
                f"{route.task_type} on {queue}",
                f"{tasks}: {route.message}",
                f"start a worker that takes this type there, or ask `penstock task-queue describe {queue}`",
            )


def _without_worker(
    config: DispatchConfig, seen: ClusterView, queue: str, activities: list[str], suggest: Suggestions
) -> DoctorFinding:
    """A queue without workers; a route to nowhere if the configuration does not declare it either."""
    waiting = seen.queues.get(queue, QueueRateView()).ready
    waits = f", and {waiting} tasks wait there" if waiting else ""
    start = f"start one with `penstock worker MODULE:APP --task-queue {queue}`"
    if queue in config.queue_options:
        return DoctorFinding("queue_without_worker", queue, f"no worker serves this queue{waits}", start)
    known = {*config.queue_options, *(worker.task_queue for worker in seen.workers)}
    return DoctorFinding(
        "route_to_nowhere",
        queue,
        f"{', '.join(activities)} may go there, but neither queue_options nor a worker know it{waits}",
        hint_towards(queue, known, suggest) or f"declare it in queue_options, and {start}",
    )


def _takes(worker: WorkerView, activity: str) -> bool:
    return worker.takes_activities and (not worker.activities or activity in worker.activities)


def _strangers(config: DispatchConfig, seen: ClusterView) -> Iterator[DoctorFinding]:
    """Queues that are served although no route leads to them."""
    known = config.known_queues()
    suggest = Suggestions()
    for queue in sorted({worker.task_queue for worker in seen.workers} - set(known)):
        near = hint_towards(queue, known, suggest)
        yield DoctorFinding(
            "worker_without_route",
            queue,
            "workers serve this queue, but the configuration does not name it",
            near,
        )


def _caps_by_themselves(config: DispatchConfig) -> Iterator[DoctorFinding]:
    """Caps that the configuration alone shows to be without effect."""
    routed = {config.worker_config.default_task_queue, *_routed(config)}
    for queue, options in config.queue_options.items():
        if options.max_task_queue_activities_per_second is not None and queue not in routed:
            yield DoctorFinding(
                "cap_never_binds", queue, "nothing routes to this queue, so its cap never counts"
            )
    for name, profile in config.worker_runtime_profiles.profiles.items():
        path = ("worker_runtime_profiles", "profiles", name, "max_activities_per_second")
        if profile.max_concurrent_activities == 0 and path in config.origins:
            yield DoctorFinding(
                "cap_never_binds",
                f"profile {name}",
                "max_activities_per_second never counts: the profile has no activity slots",
            )


def _caps_seen(config: DispatchConfig, seen: ClusterView) -> Iterator[DoctorFinding]:
    """Caps that another limit, which the server knows, always reaches first."""
    for queue, view in sorted(seen.queues.items()):
        cap = config.queue_cap(queue)
        if cap is None:
            continue
        given = ("queue_options", queue, "max_task_queue_activities_per_second") in config.origins
        if view.source in ("operator", "system") and view.limit is not None and view.limit != cap and given:
            yield DoctorFinding(
                "cap_never_binds",
                queue,
                f"the file says {cap:g} a second, but {view.limit:g} is in force, set by the {view.source}",
                f"take the operator's back with `penstock task-queue set-rate {queue} default`"
                if view.source == "operator"
                else "",
            )
        elif view.worker_limit is not None and view.worker_limit < cap and given:
            yield DoctorFinding(
                "cap_never_binds",
                queue,
                f"its workers take {view.worker_limit:g} a second at most together, less than the cap of {cap:g}",
                "raise max_activities_per_second of their profile, start more, or lower the cap",
            )
        elif view.source == "worker" and view.limit is not None and view.limit != cap:
            yield DoctorFinding(
                "cap_differs",
                queue,
                f"the file says {cap:g} a second, but workers conveyed {view.limit:g}",
                "they follow another configuration: give them this file, or restart them with it",
            )
