"""The options that `Worker.adjust` can change while the worker runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypedDict, cast

from penstock.sdk.worker.options import WorkerOptions

SLOT_OPTIONS = (
    "max_concurrent_workflow_tasks",
    "max_concurrent_activity_tasks",
    "max_concurrent_local_activities",
)


class AdjustableOptions(TypedDict, total=False):
    """Concurrency and rate limits of a running worker."""

    max_concurrent_workflow_tasks: int
    max_concurrent_activity_tasks: int
    max_concurrent_activities: int
    max_concurrent_local_activities: int
    max_activities_per_second: float | None
    max_task_queue_activities_per_second: float | None
    queue_rate_burst_seconds: float | None
    graceful_shutdown_timeout: timedelta


def adjusted(options: WorkerOptions, numbers: AdjustableOptions) -> WorkerOptions:
    """Return the options with the given values replaced.

    Raises `ValueError` for values that are invalid or that need a new worker.
    """
    given: dict[str, Any] = dict(cast(Mapping[str, Any], numbers))
    for name in given:
        if name not in AdjustableOptions.__annotations__:
            raise TypeError(f"{name} does not change while a worker runs: make another one")
    if "max_concurrent_activities" in given:
        given["max_concurrent_activity_tasks"] = given.pop("max_concurrent_activities")
    changed = replace(options, **given)
    for name in SLOT_OPTIONS:
        before, after = getattr(options, name), getattr(changed, name)
        if not before and after:
            raise ValueError(
                f"{name} is 0 and stays so while the worker runs, it cannot be {after}: make another one"
            )
        if before and not after:
            raise ValueError(f"{name} cannot be 0 while the worker runs, it is {before}: make another one")
    return changed


def shrunk_slots(before: WorkerOptions, after: WorkerOptions) -> WorkerOptions:
    """Return the new options, but with no more slots than before."""
    return replace(after, **{name: min(getattr(before, name), getattr(after, name)) for name in SLOT_OPTIONS})
