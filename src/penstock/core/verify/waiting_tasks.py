"""The tasks that wait at each point of the journal, by queue, level and lane, and what workers take.

Only the arrivals in the journal are known: a task without a `ready` line is not here, so what is here is less than
what waited, never more. On PostgreSQL a line may have a lower number than the grants of a claim that did not see it
yet; a law that asks what a claim passed over must look at tasks that have waited for `VISIBLE_MS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.verify.journal import LeaseGranted, QueuePlace, TaskGone, TaskReady, WorkerChanged

VISIBLE_MS = 3_000
"""A task that has waited for so long is visible to every claim: a transaction is ended before it lasts so long."""
NO_TASKS: Mapping[str, TaskReady] = {}


class WaitingTasks:
    """Waiting tasks, in the order in which they became ready."""

    def __init__(self) -> None:
        self.of_task: dict[str, TaskReady] = {}
        self.levels: dict[QueuePlace, dict[int, dict[str, TaskReady]]] = {}
        self._lanes: dict[tuple[QueuePlace, int, str], dict[str, TaskReady]] = {}
        self._routes: dict[QueuePlace, set[tuple[str, str | None]]] = {}
        self._filters: dict[QueuePlace, set[tuple[str, ...] | None]] = {}
        self._workers: dict[tuple[str, str], WorkerChanged] = {}

    def lane(self, place: QueuePlace, level: int, key: str) -> Mapping[str, TaskReady]:
        return self._lanes.get((place, level, key), NO_TASKS)

    def is_passed_over(self, task: TaskReady | None, now_ms: int) -> bool:
        """Whether every claim sees that the task waits."""
        return task is not None and task.at_ms <= now_ms - VISIBLE_MS

    def are_interchangeable(self, place: QueuePlace) -> bool:
        """Whether every worker that got a task of the queue can run all of its tasks.

        Workflow tasks are not: they may be sticky to the worker that has their run cached.
        """
        if place[2] == "workflow":
            return False
        routes = self._routes.get(place, set())
        if len(routes) <= 1:
            return True
        filters = self._filters.get(place, set())
        if len(filters) != 1 or any(build is not None for _, build in routes):
            return False
        (types,) = filters
        return types is not None and (not types or {type_ for type_, _ in routes} <= {*types})

    def ready(self, line: TaskReady) -> None:
        self._drop(line.task_id)
        self.of_task[line.task_id] = line
        self._lanes.setdefault((line.place, line.level, line.key), {})[line.task_id] = line
        self.levels.setdefault(line.place, {}).setdefault(line.level, {})[line.task_id] = line
        self._routes.setdefault(line.place, set()).add((line.type, line.build))

    def worker(self, line: WorkerChanged) -> None:
        self._workers[line.namespace, line.worker_id] = line

    def grant(self, line: LeaseGranted) -> TaskReady | None:
        """The task, which waits no longer; None: its arrival is not in the journal."""
        place = line.namespace, line.task_queue, line.kind
        worker = self._workers.get((line.namespace, line.worker_id or ""))
        self._filters.setdefault(place, set()).add(None if worker is None else worker.activity_types)
        return self._drop(line.task_id)

    def gone(self, line: TaskGone) -> TaskReady | None:
        return self._drop(line.task_id)

    def _drop(self, task_id: str) -> TaskReady | None:
        task = self.of_task.pop(task_id, None)
        if task is not None:
            del self._lanes[task.place, task.level, task.key][task_id]
            del self.levels[task.place][task.level][task_id]
        return task


def first_of(tasks: Mapping[str, TaskReady]) -> TaskReady | None:
    """The task that waits longest."""
    return next(iter(tasks.values()), None)
