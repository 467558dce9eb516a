"""Which workers may poll: by registration, queue, build and the operator's intent for the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core import json_text
from penstock.core.model import Activity, Cohort, WorkerRecord, WorkerStatus
from penstock.errors import Conflict, NotFound, Reason

BUILD_ID = "build_id"
"""The field of an activity that requires another build than its run's."""
DRAINING = "draining"
ACTIVE = "active"


def build_of(activity: Activity) -> str | None:
    """The build that an activity requires itself."""
    found = json_text.read(activity.extra).get(BUILD_ID) if BUILD_ID in activity.extra else None
    return found if isinstance(found, str) else None


def is_known_dead(worker: WorkerRecord) -> bool:
    """Whether its death was recorded (`updated_at_ms`) and no heartbeat came since."""
    return worker.status is WorkerStatus.STALE and worker.heartbeat_at_ms < worker.updated_at_ms


def is_stale(worker: WorkerRecord, now_ms: int, stale_after_ms: int) -> bool:
    """Whether a worker sent no heartbeat within the window, or is known to be dead. Its leases stay until they end."""
    return is_known_dead(worker) or now_ms - worker.heartbeat_at_ms > stale_after_ms


def status_now(worker: WorkerRecord, now_ms: int, stale_after_ms: int) -> WorkerStatus:
    """The current status; a stale worker that sent a heartbeat again is active."""
    if is_stale(worker, now_ms, stale_after_ms):
        return WorkerStatus.STALE
    return WorkerStatus.ACTIVE if worker.status is WorkerStatus.STALE else worker.status


def is_worth_waiting_for(worker: WorkerRecord, now_ms: int, stale_after_ms: int) -> bool:
    """Whether tasks stay sticky to a worker: it is not stale, and has not missed two of its own heartbeats."""
    interval_s = worker.heartbeat_interval_s
    missed = interval_s is not None and now_ms - worker.heartbeat_at_ms > 2_000 * interval_s
    return not missed and not is_stale(worker, now_ms, stale_after_ms)


def check_may_poll(
    worker: WorkerRecord | None,
    worker_id: str,
    task_queue: str,
    build_id: str | None,
    intents: Mapping[str, Cohort],
) -> WorkerRecord:
    """The worker, if it may poll this queue; else raises an error that says what to do."""
    if worker is None:
        raise NotFound(
            Reason.WORKER_NOT_REGISTERED,
            f"Worker {worker_id!r} is not registered in this namespace. Register it before polling.",
            worker_id=worker_id,
        )
    if worker.task_queue != task_queue:
        raise Conflict(
            Reason.TASK_QUEUE_MISMATCH,
            f"Worker {worker_id!r} is registered for {worker.task_queue!r} and polled {task_queue!r}. "
            "Poll the registered queue, or restart with a new worker id.",
            worker_id=worker_id,
            registered_task_queue=worker.task_queue,
            requested_task_queue=task_queue,
        )
    if build_id is not None and worker.build_id is not None and build_id != worker.build_id:
        raise Conflict(
            Reason.BUILD_ID_MISMATCH,
            f"Worker {worker_id!r} is registered with build {worker.build_id!r} and polled as {build_id!r}.",
            worker_id=worker_id,
            registered_build_id=worker.build_id,
            requested_build_id=build_id,
        )
    cohort = intents.get(worker.build_id or "")
    if cohort is not None and cohort.drain_intent == DRAINING:
        raise Conflict(
            Reason.WORKER_DRAINING,
            "The worker's build is draining: it may finish what it holds and gets nothing new. "
            "Resume the build to roll back, or stop the worker when its leases have ended.",
            worker_id=worker_id,
            task_queue=task_queue,
            build_id=worker.build_id,
            poll_status="draining",
            task=None,
        )
    return worker


class CohortView(Struct, frozen=True):
    """One build on a queue as an operator sees it."""

    build_id: str | None
    rollout_status: str
    cohort: Cohort | None
    active: int
    draining: int
    stale: int
    workers: tuple[WorkerRecord, ...]


_ORDER = ("active", "active_with_draining", "draining", "stale_only", "no_workers")


def cohort_views(
    workers: Sequence[WorkerRecord], cohorts: Sequence[Cohort], now_ms: int, stale_after_ms: int
) -> list[CohortView]:
    """Every build with workers or a recorded intent; the most active first."""
    intents = {cohort.build_id: cohort for cohort in cohorts}
    builds = {worker.build_id or "" for worker in workers} | set(intents)
    views = [
        _view(
            build,
            [w for w in workers if (w.build_id or "") == build],
            intents.get(build),
            now_ms,
            stale_after_ms,
        )
        for build in builds
    ]
    return sorted(views, key=_rank)


def _view(
    build: str, workers: Sequence[WorkerRecord], cohort: Cohort | None, now_ms: int, stale_after_ms: int
) -> CohortView:
    drained = cohort is not None and cohort.drain_intent == DRAINING
    stale = sum(is_stale(worker, now_ms, stale_after_ms) for worker in workers)
    fresh = len(workers) - stale
    draining = fresh if drained else 0
    active = fresh - draining
    if active:
        status = "active_with_draining" if drained else "active"
    elif draining or drained:
        status = "draining"
    else:
        status = "stale_only" if stale else "no_workers"
    return CohortView(build or None, status, cohort, active, draining, stale, tuple(workers))


def _rank(view: CohortView) -> tuple[int, bool, int, str]:
    newest = max((worker.heartbeat_at_ms for worker in view.workers), default=0)
    return _ORDER.index(view.rollout_status), view.build_id is None, -newest, view.build_id or ""
