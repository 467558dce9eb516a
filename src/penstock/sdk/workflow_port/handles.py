"""What workflow code holds of an activity or a child workflow, and the policies of their cancellation.

Handles are futures of the workflow's event loop. Each engine has its own subclasses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from penstock.sdk.call_targets import UNSET, signal_target
from penstock.sdk.workflow_port.port import current

T = TypeVar("T")


class ActivityCancellationType(StrEnum):
    """What happens to a cancelled activity, and when the awaiting code continues."""

    TRY_CANCEL = "try_cancel"
    """Cancel the activity and continue immediately, ignoring its outcome."""
    WAIT_CANCELLATION_COMPLETED = "wait_cancellation_completed"
    """Cancel the activity and continue once it has ended, with its result if it completed anyway."""
    ABANDON = "abandon"
    """Do not cancel the activity; continue immediately."""


class ChildWorkflowCancellationType(StrEnum):
    """What happens to a cancelled child, and when the awaiting code continues."""

    TRY_CANCEL = "try_cancel"
    """Cancel the child and continue immediately, ignoring its outcome."""
    WAIT_CANCELLATION_COMPLETED = "wait_cancellation_completed"
    """Cancel the child and continue once it has closed, with its result if it completed anyway."""
    WAIT_CANCELLATION_REQUESTED = "wait_cancellation_requested"
    """Cancel the child and continue once the request is in its history."""
    ABANDON = "abandon"
    """Do not cancel the child; continue immediately."""


class ParentClosePolicy(StrEnum):
    """What happens to an open child when its parent closes."""

    TERMINATE = "terminate"
    ABANDON = "abandon"
    REQUEST_CANCEL = "request_cancel"


class ActivityHandle(asyncio.Future[T]):
    """An activity that was started. Await it for its result.

    `cancel()` cancels the activity according to its `cancellation_type`. Awaiting the handle then raises
    `ActivityError`, caused by `CancelledError`.
    """

    result_type: Any = None


class ChildWorkflowHandle(asyncio.Future[T]):
    """A child workflow that was started. Await it for its result.

    `cancel()` cancels the child according to its `cancellation_type`. Awaiting the handle then raises
    `ChildWorkflowError`, caused by `CancelledError`.
    """

    id: str
    result_type: Any = None

    async def signal(self, signal: Any, arg: Any = UNSET, *, args: Sequence[Any] = ()) -> None:
        """Send a signal to the child. Raises if it is closed, even if its id belongs to another workflow by now.

        Args:
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
        """
        called = signal_target(signal)
        await current().signal_workflow(self.id, None, called, called.arguments(arg, args), child=self)
