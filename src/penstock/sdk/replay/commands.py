"""Commands of workflow code, and the futures that await their outcomes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Any, TypeVar

from penstock.sdk.replay.loop import WorkflowFuture, WorkflowLoop

T = TypeVar("T")


class CommandKind(StrEnum):
    """Command types by their names on the wire."""

    ACTIVITY = "schedule_activity"
    LOCAL_ACTIVITY = "record_local_activity"
    TIMER = "start_timer"
    CHILD = "start_child_workflow"
    VERSION_MARKER = "record_version_marker"
    SEARCH_ATTRIBUTES = "upsert_search_attributes"
    MEMO = "upsert_memo"
    SIGNAL_EXTERNAL = "signal_external_workflow"
    CANCEL_EXTERNAL = "cancel_external_workflow"
    CANCEL_STEP = "cancel_step"
    COMPLETE_UPDATE = "complete_update"
    FAIL_UPDATE = "fail_update"
    COMPLETE = "complete_workflow"
    FAIL = "fail_workflow"
    CANCEL = "cancel_workflow"
    CONTINUE = "continue_as_new"


NUMBERED = frozenset(
    {
        CommandKind.ACTIVITY,
        CommandKind.LOCAL_ACTIVITY,
        CommandKind.TIMER,
        CommandKind.CHILD,
        CommandKind.VERSION_MARKER,
        CommandKind.SEARCH_ATTRIBUTES,
        CommandKind.MEMO,
        CommandKind.SIGNAL_EXTERNAL,
        CommandKind.CANCEL_EXTERNAL,
    }
)
"""Commands that are steps of the run: each has a step number."""
TERMINAL = frozenset({CommandKind.COMPLETE, CommandKind.FAIL, CommandKind.CANCEL, CommandKind.CONTINUE})


@dataclass(slots=True, eq=False)
class Command:
    """One command. Its step number is known once it is recorded or about to be sent."""

    kind: CommandKind
    body: dict[str, Any]
    name: str = ""
    """Name for messages: the type of an activity or child, the name of a signal."""
    step: int | None = None
    where: str = ""
    target: Command | None = None
    """For `cancel_step`: the command to cancel."""
    future: StepFuture[Any] | None = None
    given_up: bool = False
    is_taken: bool = False
    """Whether it was sent, or matched in the history."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The fields that an event must repeat to match this command."""
    trace: Callable[[], None] | None = None
    """Logs where its options come from, once it is sent."""

    def on_the_wire(self) -> dict[str, Any]:
        body = {"type": self.kind.value, **self.body}
        if self.target is not None:
            body["step_sequence"] = self.target.step
        return body

    def in_words(self) -> str:
        return f"{self.kind.value} {self.name!r}" if self.name else self.kind.value


class StepFuture(WorkflowFuture[T]):
    """Awaits the outcome of a step. Cancelling it cancels the step.

    Two kinds of callers cancel it, and the code that awaits it gets a different error from each:

    - asyncio, on behalf of a task that awaits the step (`task.cancel()`, a cancelled workflow, `timeout`, `wait_for`,
      `gather`, `TaskGroup`): `asyncio.CancelledError`, so that all of these behave as with any other future.
    - workflow code, on the handle of an activity or a child: the error that `cancelled_error` makes, which says what
      was cancelled. An `asyncio.CancelledError` would look as if the workflow itself had been cancelled.
    """

    command: Command
    give_up: Callable[[StepFuture[Any]], bool]
    cancelled_error: Callable[[StepFuture[Any]], Exception] | None = None
    """Makes the error of a step that was cancelled through its handle; None is `asyncio.CancelledError`."""

    def __init__(
        self, loop: WorkflowLoop, command: Command, give_up: Callable[[StepFuture[Any]], bool]
    ) -> None:
        super().__init__(loop=loop)
        self.number = loop._next_number()
        self.command = command
        self.give_up = give_up
        command.future = self

    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the step. For asyncio, False means that the step must end before the awaiting code continues."""
        if self.done():
            return False
        by_task = _is_asyncio(sys._getframe(1))
        if not self.give_up(self):
            return not by_task
        if by_task or self.cancelled_error is None:
            return super().cancel(msg)
        self.fail_as_cancelled()
        return True

    def fail_as_cancelled(self) -> None:
        """End with the error of a cancelled step. It is not logged if no code awaits the handle."""
        if self.done() or self.cancelled_error is None:
            return
        self.set_exception(self.cancelled_error(self))
        self.exception()


_OURS = ("penstock.sdk", "asyncio", "contextlib")


def _is_asyncio(frame: FrameType) -> bool:
    """Whether a frame belongs to asyncio, or to the task class that replaces asyncio's."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith("asyncio.") or module == WorkflowLoop.__module__


def where() -> str:
    """Return the line of user code that is running, for messages about its commands."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not WorkflowLoop.run_until_quiet.__code__:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(_OURS):
            return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        frame = frame.f_back
    return ""
