"""The exception that ends a run to continue it as a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.sdk.call_targets import CallTarget
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class NextRun:
    """The run that continues this one. Options that are None are inherited."""

    called: CallTarget
    arguments: Sequence[Any]
    task_queue: str | None = None
    priority: Priority | None = None
    run_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None
    memo: Mapping[str, Any] | None = None
    search_attributes: Mapping[str, Any] | None = None


class ContinueAsNewError(BaseException):
    """Raised by `workflow.continue_as_new`; do not catch it. It is not an `Exception`."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__("continue as new")
        self.body = body
        """The command, in the form of the engine."""
