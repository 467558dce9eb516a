"""Handles of activities and children on Temporal.

Theory of operation
-------------------
A handle of temporalio is a task that waits for the outcome; whoever cancels it gets `ActivityError`, also a task that
merely awaits it within `asyncio.timeout`. Ours are futures with two meanings of cancellation (see `StepFuture`):
asyncio, on behalf of an awaiting task, gets `asyncio.CancelledError`; workflow code that cancels the handle gets the
error of the step. The same code must see the same on both engines, so the handle of temporalio is wrapped:

- `await handle` waits on a private future. `task.cancel()` cancels what its task awaits, so it reaches that one, and
  `handle.cancel()` is never called by it;
- the other callers of asyncio (`gather`, `wait_for`) call `cancel` from a module of asyncio, which the frame shows;
- the outcome is translated once, when the inner task ends.

Handles hash by number, so that sets of them have the same order in every replay.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from penstock.engines.temporal.failures import from_temporal
from penstock.sdk.failures import ActivityError, ApplicationError, FailureError, RetryState
from penstock.sdk.failures import TimeoutError as TimedOut
from penstock.sdk.workflow_port.handles import ActivityHandle, ChildWorkflowHandle

T = TypeVar("T")
Decode = Callable[[Any], Any]


class TemporalStep(asyncio.Future[T]):
    """The outcome of an inner task of temporalio.

    Args:
        inner: the task.
        decode: returns the typed result from the plain one.
        number: place in the order of the run's handles.
        waits: whether code that awaits a cancelled step continues only when the step has ended.
    """

    def __init__(self, inner: asyncio.Future[Any], decode: Decode, number: int, *, waits: bool) -> None:
        super().__init__(loop=inner.get_loop())
        self._inner, self._decode, self._number, self._waits = inner, decode, number, waits
        inner.add_done_callback(self._end)

    def __hash__(self) -> int:
        return self._number

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the step. For asyncio, False means that the step must end before the awaiting code continues."""
        if self.done():
            return False
        by_asyncio = str(sys._getframe(1).f_globals.get("__name__", "")).startswith("asyncio.")
        self._inner.cancel()
        if not by_asyncio:
            return True
        return False if self._waits else super().cancel(msg)

    def __await__(self) -> Generator[Any, None, T]:
        cancelled: asyncio.CancelledError | None = None
        while not self.done():
            try:
                yield from self._woken()
            except asyncio.CancelledError as error:
                self._inner.cancel()
                if not self._waits:
                    super().cancel()
                    raise
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return self.result()

    __iter__ = __await__

    def _woken(self) -> Generator[Any, None, None]:
        """Wait until this future is done, on a future that only the awaiting task cancels."""
        waiter: asyncio.Future[None] = self.get_loop().create_future()

        def wake(_: object) -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.add_done_callback(wake)
        try:
            yield from waiter
        finally:
            self.remove_done_callback(wake)

    def _end(self, inner: asyncio.Future[Any]) -> None:
        error = self._cancelled_inner() if inner.cancelled() else inner.exception()
        if self.done():
            return
        if error is None:
            try:
                self.set_result(self._decode(inner.result()))
            except Exception as refusal:
                self.set_exception(refusal)
            return
        self.set_exception(self._translated(error))
        self.exception()  # a handle that nobody awaits is not logged

    def _translated(self, error: BaseException) -> BaseException:
        return from_temporal(error)

    def _cancelled_inner(self) -> BaseException:
        """Return the error of a step that was cancelled before it was sent."""
        return asyncio.CancelledError()


class TemporalActivityStep(TemporalStep[T], ActivityHandle[T]):
    """The handle of an activity on Temporal."""


class TemporalLocalStep(TemporalActivityStep[T]):
    """The handle of a local activity. temporalio raises its error bare; elsewhere `ActivityError` is around it."""

    activity_type: str = ""
    not_retried: Sequence[str] = ()
    """The error types that its retry policy lists."""

    def _translated(self, error: BaseException) -> BaseException:
        found = super()._translated(error)
        if not isinstance(found, FailureError) or isinstance(found, ActivityError):
            return found
        verb = "timed out" if isinstance(found, TimedOut) else "failed"
        around = ActivityError(
            f'Activity "{self.activity_type}" {verb}',
            activity_type=self.activity_type,
            retry_state=self._retry_state(found),
        )
        around.__cause__ = found
        return around

    def _retry_state(self, cause: FailureError) -> RetryState | None:
        """Return why there was no further retry, as far as our engine knows it for a local activity."""
        if isinstance(cause, ApplicationError) and (cause.non_retryable or cause.type in self.not_retried):
            return RetryState.NON_RETRYABLE_FAILURE
        is_out_of_time = isinstance(cause, TimedOut) and cause.kind != "start_to_close"
        return RetryState.TIMEOUT if is_out_of_time else None


class TemporalChildStep(TemporalStep[T], ChildWorkflowHandle[T]):
    """The handle of a child workflow on Temporal."""

    started: asyncio.Future[Any]
    """Resolves to the handle of temporalio."""
