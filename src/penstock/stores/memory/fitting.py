"""Whether a worker can take a task."""

from __future__ import annotations

from penstock.core.model import Task
from penstock.core.scheduling.dispatch import Fit


def fits(task: Task, fit: Fit, now_ms: int) -> bool:
    """Its type is among the worker's (none named: all), it asks for no build or for the worker's, and it does not
    wait for somebody else."""
    if task.is_reserved(now_ms) and task.reserved_for not in fit.keepers:
        return False
    knows_type = not fit.types or task.type in fit.types
    return knows_type and task.compatibility in (None, fit.build_id)
