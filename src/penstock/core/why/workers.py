"""Whether a worker can take a task: of its type and build, with recent heartbeats, not draining, with a free slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.model import Cohort, Task, WorkerRecord
from penstock.core.scheduling.cohorts import DRAINING, is_stale
from penstock.core.scheduling.dispatch import filter_for
from penstock.core.why.sentences import count_text, duration_text
from penstock.core.why.values import Constraint, ConstraintKind, Remedy, RemedyKind


class QueueWorkers(Struct, frozen=True):
    """The workers of a queue, with their used slots for one kind of task."""

    workers: Sequence[WorkerRecord]
    cohorts: Sequence[Cohort]
    held: Mapping[str, int]
    """Used slots by worker."""
    now_ms: int
    stale_after_ms: int

    def fitting(self, task: Task) -> Sequence[WorkerRecord]:
        return [worker for worker in self.workers if _fits(worker, task)]

    def is_draining(self, worker: WorkerRecord) -> bool:
        build = worker.build_id or ""
        return any(each.build_id == build and each.drain_intent == DRAINING for each in self.cohorts)

    def is_silent(self, worker: WorkerRecord) -> bool:
        return is_stale(worker, self.now_ms, self.stale_after_ms)

    def serving(self, task: Task) -> Sequence[WorkerRecord]:
        """Workers that may poll for the task and are not stale."""
        return [w for w in self.fitting(task) if not self.is_draining(w) and not self.is_silent(w)]


def _fits(worker: WorkerRecord, task: Task) -> bool:
    what = filter_for(worker, task.kind)
    knows_type = not what.types or task.type in what.types
    return knows_type and task.compatibility in (None, what.build_id)


UNSERVED = frozenset(
    {ConstraintKind.NO_WORKER, ConstraintKind.NO_POLLER, ConstraintKind.DRAINING, ConstraintKind.NO_SLOTS}
)
"""Constraints that completing work never removes: a worker must be started or changed."""


class RouteWait(Struct, frozen=True):
    """Ready tasks of one type and build that no worker can take now."""

    task: Task
    """One of them."""
    constraint: Constraint
    ready: int
    """Their number, counted up to a bound."""

    @property
    def is_unserved(self) -> bool:
        """Whether they wait until something changes; False: every slot for them is in use."""
        return self.constraint.kind in UNSERVED


def worker_constraint(queue_workers: QueueWorkers, task: Task) -> Constraint | None:
    """Why no worker takes a ready task now, apart from limits; None: one could.

    Depends only on the kind, type and build of the task, so it is the same for all ready tasks of a route. "Why" and
    all descriptions of a queue use this function, or the two that it consists of.
    """
    return no_available_worker(queue_workers, task) or saturation(queue_workers, task)


def no_available_worker(queue_workers: QueueWorkers, task: Task) -> Constraint | None:
    """Why no worker can take the task at all, however long it waits."""
    if queue_workers.serving(task):
        return None
    fitting = queue_workers.fitting(task)
    if not fitting:
        return _no_worker(queue_workers, task)
    awake = [worker for worker in fitting if not queue_workers.is_draining(worker)]
    return _no_poller(queue_workers, task, awake) if awake else _draining(queue_workers, task, fitting)


def _no_worker(queue_workers: QueueWorkers, task: Task) -> Constraint:
    build = f" with build {task.compatibility}" if task.compatibility else ""
    others = (
        f" ({count_text(len(queue_workers.workers), 'worker')} there cannot)" if queue_workers.workers else ""
    )
    return Constraint(
        ConstraintKind.NO_WORKER,
        f"no worker of the task queue {task.task_queue} runs "
        f"{task.kind.value} tasks of type {task.type}{build}{others}",
        scope=_line(task),
        frees=(_register(task),),
    )


def _no_poller(queue_workers: QueueWorkers, task: Task, silent: Sequence[WorkerRecord]) -> Constraint:
    heartbeat_at_ms = max(worker.heartbeat_at_ms for worker in silent)
    return Constraint(
        ConstraintKind.NO_POLLER,
        f"{count_text(len(silent), 'worker')} of the task queue {task.task_queue} could take it, and none polls: "
        f"the last heartbeat was {(queue_workers.now_ms - heartbeat_at_ms) // 1000} s ago",
        scope=_line(task),
        most=len(silent),
        used=0,
        frees=(Remedy(RemedyKind.POLL, _line(task)), _register(task)),
    )


def _draining(queue_workers: QueueWorkers, task: Task, fitting: Sequence[WorkerRecord]) -> Constraint:
    builds = sorted({worker.build_id or "" for worker in fitting})
    named = ", ".join(build or "(no build)" for build in builds)
    freed_by = [Remedy(RemedyKind.RESUME_BUILD, _line(task), build_id=build) for build in builds]
    if task.compatibility is None and "" not in builds:  # workers without a build would be draining as well
        freed_by.append(_register(task))
    return Constraint(
        ConstraintKind.DRAINING,
        f"every worker of the task queue {task.task_queue} that could take it is draining: {named}",
        scope=_line(task),
        most=len(fitting),
        used=0,
        frees=tuple(freed_by),
    )


def sticky_wait(queue_workers: QueueWorkers, task: Task) -> Constraint | None:
    """The wait for the worker that has the task's run cached, unless that worker is not serving."""
    sticky_worker = next(
        (each for each in queue_workers.serving(task) if each.worker_id == task.sticky_worker_id), None
    )
    if sticky_worker is None or task.sticky_until_ms is None or not task.is_sticky(queue_workers.now_ms):
        return None
    left = duration_text(task.sticky_until_ms - queue_workers.now_ms)
    return Constraint(
        ConstraintKind.STICKY,
        f"the worker {sticky_worker.worker_id} has its run cached, and the task is sticky to it for another {left}; "
        "then any worker may take it",
        scope=_line(task),
        opens_at_ms=task.sticky_until_ms,
        frees=(Remedy(RemedyKind.WAIT, at_ms=task.sticky_until_ms),),
    )


def saturation(queue_workers: QueueWorkers, task: Task) -> Constraint | None:
    """The constraint that every slot of the matching workers is in use, or that they have none."""
    serving = queue_workers.serving(task)
    slots = sum(worker.slots(task.kind) for worker in serving)
    held = sum(
        min(queue_workers.held.get(worker.worker_id, 0), worker.slots(task.kind)) for worker in serving
    )
    if not serving or held < slots:
        return None
    if not slots:
        return _no_slots(task, serving)
    return Constraint(
        ConstraintKind.SATURATED,
        f"all {count_text(slots, 'slot')} of the {count_text(len(serving), 'worker')} that could take it are leased",
        scope=_line(task),
        most=slots,
        used=held,
        frees=(_nearest_slot(queue_workers, task, serving), _register(task)),
    )


def _no_slots(task: Task, serving: Sequence[WorkerRecord]) -> Constraint:
    return Constraint(
        ConstraintKind.NO_SLOTS,
        f"the {count_text(len(serving), 'worker')} that could take it offer no slot for {task.kind.value} tasks",
        scope=_line(task),
        most=0,
        used=0,
        frees=(_register(task),),
    )


def _nearest_slot(queue_workers: QueueWorkers, task: Task, serving: Sequence[WorkerRecord]) -> Remedy:
    """The worker that must end the fewest leases; some hold more than they have slots."""
    able = [each for each in serving if each.slots(task.kind)]
    over = {
        each.worker_id: queue_workers.held.get(each.worker_id, 0) - each.slots(task.kind) + 1 for each in able
    }
    worker = min(over, key=lambda each: (over[each], each))
    return Remedy(RemedyKind.END_LEASES, _line(task), count=over[worker], worker=worker)


def _register(task: Task) -> Remedy:
    return Remedy(RemedyKind.REGISTER, _line(task), task_type=task.type, build_id=task.compatibility)


def _line(task: Task) -> str:
    return f"queue:{task.namespace}/{task.task_queue}/{task.kind.value}"
