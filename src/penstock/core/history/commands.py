"""What workflow code asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.model import ActivityTimeouts, Blob, Json, RetryPolicy, Wish


@dataclass(frozen=True, slots=True)
class ScheduleActivity:
    activity_type: str
    task_queue: str | None
    """None: the queue of the run."""
    arguments: Blob
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeouts: ActivityTimeouts = field(default_factory=ActivityTimeouts)
    extra: Json = field(default_factory=dict)
    """What the events of this step must repeat."""
    wish: Wish = field(default_factory=Wish)
    """Priority level, fairness key and weight, where they differ from the run's."""


@dataclass(frozen=True, slots=True)
class StartTimer:
    delay_s: int
    extra: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompleteWorkflow:
    result: Blob


@dataclass(frozen=True, slots=True)
class FailWorkflow:
    message: str
    extra: Json = field(default_factory=dict)
    """Exception type, class and the like, as the worker sent them."""


Command = ScheduleActivity | StartTimer | CompleteWorkflow | FailWorkflow
