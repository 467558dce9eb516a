"""Whether a worker can take a task."""

from __future__ import annotations

from penstock.core.model import Task
from penstock.core.scheduling.dispatch import Fit


def fits(task: Task, fit: Fit) -> bool:
    """Its type is among the worker's (none named: all), and it asks for no build or for the worker's."""
    knows_type = not fit.types or task.type in fit.types
    return knows_type and task.compatibility in (None, fit.build_id)
