"""Information about the current run, for workflow code."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from penstock.sdk.priority import Priority

CURRENT_DETAILS = "__current_details"
"""The query that every workflow answers with the text of `workflow.set_current_details`."""
SUGGESTED_LENGTH = 8_000
"""From this many events on, `is_continue_as_new_suggested` is true."""


@dataclass(frozen=True, slots=True)
class ParentInfo:
    workflow_id: str
    run_id: str


@dataclass(slots=True)
class Info:
    """The run as it was started. History length and time advance with the history."""

    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    namespace: str
    start_time: datetime
    attempt: int = 1
    """Attempt of a child workflow with a retry policy; 1 for the first."""
    parent: ParentInfo | None = None
    continued_run_id: str | None = None
    """The run that this one continues."""
    execution_timeout: timedelta | None = None
    run_timeout: timedelta | None = None
    priority: Priority = field(default_factory=Priority)
    """As started, so that it is the same in every replay."""
    memo: Mapping[str, Any] = field(default_factory=dict)
    search_attributes: Mapping[str, Any] = field(default_factory=dict)
    history_length: int = 0
    """Number of events that the code has seen."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Headers of the start."""

    @property
    def workflow_start_time(self) -> datetime:
        """When the run was started: `start_time`."""
        return self.start_time

    def get_current_history_length(self) -> int:
        """Return the number of events that the code has seen."""
        return self.history_length

    def is_continue_as_new_suggested(self) -> bool:
        """Whether the history is so long that the run should continue as new."""
        return self.history_length >= SUGGESTED_LENGTH


@dataclass(frozen=True, slots=True)
class UpdateInfo:
    """The update whose handler is running."""

    id: str
    name: str


CURRENT_UPDATE: ContextVar[UpdateInfo | None] = ContextVar("penstock_current_update", default=None)
"""The update in whose handler, or in a task of whose handler, code of our engine runs."""
