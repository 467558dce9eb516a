"""Matching of tasks and workers."""

from __future__ import annotations

from penstock.core.model import Task
from penstock.core.scheduling.dispatch import WorkerFilter


def fits(task: Task, worker_filter: WorkerFilter, now_ms: int) -> bool:
    """Whether a worker can take a task: type and build match, and the task is not sticky to another worker."""
    if task.is_sticky(now_ms) and task.sticky_worker_id not in worker_filter.sticky_workers:
        return False
    knows_type = not worker_filter.types or task.type in worker_filter.types
    return knows_type and task.compatibility in (None, worker_filter.build_id)
