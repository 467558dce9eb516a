"""Work conservation: no task waits while a worker asks for it and nothing is in the way.

Two facts of the journal prove that it did:

- A grant says how long its poll had been open, if nothing limits its queue and its server saw nothing in the way. A
  task that was ready all that time could have been given at once.
- In a lane (a queue, level and fairness key) tasks go first in, first out. A task that still waits while one of its
  lane is granted that arrived later was forgotten.

Workflow tasks are not judged, because they may be reserved for the worker that has their run cached; nor are the
lanes of queues whose workers take different types.
"""

from __future__ import annotations

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import LeaseGranted, TaskReady
from penstock.core.verify.waiting_tasks import VISIBLE_MS, WaitingTasks, first_of

PATIENCE_MS = 5_000
"""A server that missed a notification finds the task by looking again; it does so more often than this."""


class ConservationLaw:
    """Checks "work-conserving" for every grant of a task whose arrival is in the journal."""

    def __init__(self, book: Findings, waiting: WaitingTasks) -> None:
        self._book = book
        self._waiting = waiting
        self._forgotten: set[str] = set()
        self._changed_at_ms = 0

    def restart(self, now_ms: int) -> None:
        """Settings have changed: what waited before may have waited for that."""
        self._changed_at_ms = now_ms

    def granted(self, line: LeaseGranted, task: TaskReady | None) -> None:
        if task is None or line.kind == "workflow":
            return
        self._book.checked[Law.WORK_CONSERVING] += 1
        self._look_at_poll(line, task)
        if self._waiting.are_interchangeable(task.place):
            self._look_at_lane(line, task)

    def _look_at_poll(self, line: LeaseGranted, task: TaskReady) -> None:
        if line.poll_open_ms is None or self._changed_at_ms > task.at_ms:
            return
        together_ms = min(line.at_ms - task.at_ms, line.poll_open_ms)
        if together_ms > PATIENCE_MS:
            message = (
                f"task {line.task_id} was ready and a poll of {line.worker_id} open for {together_ms} ms, with no "
                "limit in the way"
            )
            self._book.find(LawViolation(Law.WORK_CONSERVING, message, line.at_ms, line.seq))

    def _look_at_lane(self, line: LeaseGranted, task: TaskReady) -> None:
        """A task that comes back keeps its place in the lane, so only new ones tell that a task came later."""
        if task.weight is None or line.level is None:
            return
        first = first_of(self._waiting.lane(task.place, task.level, task.key))
        if first is None or first.at_ms > task.at_ms - VISIBLE_MS or first.task_id in self._forgotten:
            return
        self._forgotten.add(first.task_id)
        message = (
            f"task {first.task_id} waits, and task {line.task_id}, which came later in its lane, was granted"
        )
        self._book.find(LawViolation(Law.WORK_CONSERVING, message, line.at_ms, line.seq))
