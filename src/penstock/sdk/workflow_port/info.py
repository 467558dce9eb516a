"""Information about the current run, for workflow code."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.search_attributes import TypedSearchAttributes, typed_attributes

CURRENT_DETAILS = "__current_details"
"""The query that every workflow answers with the text of `workflow.set_current_details`."""
SUGGESTED_LENGTH = 8_000
"""From this many events on, `is_continue_as_new_suggested` is true."""


@dataclass(frozen=True, slots=True)
class ParentInfo:
    """The run that started this one as a child."""

    workflow_id: str
    run_id: str
    namespace: str = "default"


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
    first_execution_run_id: str = ""
    """The first run of the chain of continuations and retries; `run_id` for the first one."""
    original_execution_run_id: str = ""
    """The run that recorded the beginning of the history: another one after a reset or a fork."""
    retry_policy: RetryPolicy | None = None
    """Of a child workflow; other runs are not retried."""
    execution_timeout: timedelta | None = None
    run_timeout: timedelta | None = None
    priority: Priority = field(default_factory=Priority)
    """As started, so that it is the same in every replay."""
    memo: Mapping[str, Any] = field(default_factory=dict)
    search_attributes: Mapping[str, Any] = field(default_factory=dict)
    """With the changes that the code has made."""
    history_length: int = 0
    """Number of events that the code has seen."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Headers of the start."""

    @property
    def typed_search_attributes(self) -> TypedSearchAttributes:
        """The search attributes, to be read by their keys."""
        return typed_attributes(self.search_attributes)

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
