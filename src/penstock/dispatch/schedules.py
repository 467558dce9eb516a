"""Schedules that a dispatch file declares."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """What is started, and when. Raises `ValueError` unless that is one workflow or one activity."""

    cron: tuple[str, ...] = ()
    every: timedelta | None = None
    timezone: str | None = None
    jitter: timedelta | None = None
    workflow: str | None = None
    activity: str | None = None
    task_queue: str | None = None
    """None is the home queue of a workflow, and the route of an activity."""
    args: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if (self.workflow is None) == (self.activity is None):
            raise ValueError("must have `workflow` or `activity`, one of them")
        if not isinstance(self.args, list | tuple):
            raise ValueError("args must be a list")
        object.__setattr__(self, "args", tuple(self.args))
        try:
            json.dumps(self.args)
        except TypeError as error:
            raise ValueError(f"args must be values that JSON has: {error}") from None
