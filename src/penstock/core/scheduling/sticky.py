"""Sticky workflow tasks: who may take a task that is reserved for the worker that caches its run.

A worker that completes a workflow task with a `sticky_timeout_ms` keeps the run in memory. The next task of the run is
ready for that worker alone until the timeout passes, so that it need not replay the history. Three rules:

* stickiness filters, it does not promote: `WorkerFilter.sticky_workers` names whose sticky tasks a worker may take.
  Those wait in their lanes like any other task, so that sticky runs get no more than their fair share;
* a worker that is known to be gone, drained or overdue with its heartbeats holds nothing: its sticky tasks are for
  every worker at once (`lost`);
* polls of one claim must be interchangeable, so a claim serves only workers that may take the same sticky tasks as the
  first poll of it. The others are claimed for next (`RetryReason.SERVED_APART`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from penstock.core.model import Cohort, WorkerRecord
from penstock.core.scheduling.cohorts import check_may_poll, is_worth_waiting_for
from penstock.errors import PenstockError


class StickyTasks(Struct, frozen=True):
    """The workers that ready tasks of a queue are sticky to."""

    until_ms: Mapping[str, int] = field(default_factory=dict)
    """When the first task of each worker is released to all."""
    lost: tuple[str, ...] = ()
    """Those of them that no longer poll: their tasks are released already."""

    def open_to(self, worker_id: str) -> tuple[str, ...]:
        """Whose sticky tasks a worker may take."""
        own = (worker_id,) if worker_id in self.until_ms else ()
        return (*own, *self.lost)

    def next_release_ms(self, worker_id: str) -> int | None:
        """When the first task that is sticky to another worker is released; None: there is none."""
        mine = self.open_to(worker_id)
        return min((until for name, until in self.until_ms.items() if name not in mine), default=None)


NONE = StickyTasks()


def lost(
    sticky_to: Mapping[str, int],
    polling: set[str],
    workers: Mapping[str, WorkerRecord | None],
    task_queue: str,
    cohorts: Mapping[str, Cohort],
    now_ms: int,
    stale_after_ms: int,
) -> tuple[str, ...]:
    """The workers with sticky tasks that are not worth waiting for. A worker that polls right now is."""
    return tuple(
        name
        for name in sorted(sticky_to)
        if name not in polling
        and not _will_poll(workers.get(name), name, task_queue, cohorts, now_ms, stale_after_ms)
    )


def _will_poll(
    worker: WorkerRecord | None,
    worker_id: str,
    task_queue: str,
    cohorts: Mapping[str, Cohort],
    now_ms: int,
    stale_after_ms: int,
) -> bool:
    try:
        worker = check_may_poll(worker, worker_id, task_queue, None, cohorts)
    except PenstockError:
        return False
    return is_worth_waiting_for(worker, now_ms, stale_after_ms)
