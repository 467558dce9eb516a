"""Runs activities in tests without a worker: `ActivityEnvironment().run(charge, order)`."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar, overload

from penstock.sdk.activities.context import CURRENT, ActivityCancellationDetails, ActivityContext
from penstock.sdk.activities.info import ActivityInfo
from penstock.sdk.activities.one_shot_event import OneShotEvent
from penstock.sdk.activities.thread_interrupt import ThreadInterrupt
from penstock.sdk.converters import DEFAULT, DataConverter

P = ParamSpec("P")
T = TypeVar("T")

_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

DEFAULT_INFO = ActivityInfo(
    activity_id="test-activity",
    activity_type="test",
    attempt=1,
    workflow_id="test-workflow",
    workflow_run_id="test-run",
    workflow_type="test",
    task_queue="test",
    namespace="default",
    task_id="test-task",
    task_token="1.test",
    idempotency_key="test-activity",
    scheduled_time=_BEGINNING,
    started_time=_BEGINNING,
)


CANCEL_REQUESTED = ActivityCancellationDetails(cancel_requested=True)


class ActivityEnvironment:
    """A context for activities that a test controls.

    `info` is the activity's information about itself; `on_heartbeat` is called with the details of each heartbeat.
    `payload_converter` and `client` are what `activity.payload_converter()` and `activity.client()` return.
    `cancel` and `worker_shutdown` affect running activities and those run later. A sync function runs in the thread
    that calls `run`.
    """

    def __init__(self, **info: Any) -> None:
        self.info = replace(DEFAULT_INFO, **info)
        self.on_heartbeat: Callable[..., None] = _ignore_heartbeat
        self.payload_converter: DataConverter = DEFAULT
        self.client: Any = None
        self.cost: int | None = None
        """The cost that the activity reported."""
        self._cancelled, self._worker_shutdown = OneShotEvent(), OneShotEvent()
        self._stopped: ActivityCancellationDetails | None = None
        self._reach: list[Callable[[], object]] = []
        self._contexts: list[ActivityContext] = []

    @overload
    def run(
        self, fn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run an activity. If it is async, await the result.

        Args:
            fn: the activity, decorated or not.
            args: its positional arguments.
            kwargs: its keyword arguments.
        """
        called = fn if inspect.isroutine(fn) else type(fn).__call__
        if inspect.iscoroutinefunction(called):
            return self._run_async(fn, args, kwargs)
        return contextvars.copy_context().run(self._run_sync, fn, args, kwargs)

    def cancel(
        self,
        cancellation_details: ActivityCancellationDetails = CANCEL_REQUESTED,
    ) -> None:
        """Cancel the activity, as the response to a heartbeat would. May be called from any thread.

        Args:
            cancellation_details: what `activity.cancellation_details()` returns.
        """
        self._stopped = cancellation_details
        for context in self._contexts:
            context.stopped = cancellation_details
        self._cancelled.set()
        for each in tuple(self._reach):
            each()

    def worker_shutdown(self) -> None:
        """Notify the activity that its worker shuts down."""
        self._worker_shutdown.set()

    def _context(self, interruption: ThreadInterrupt | None) -> ActivityContext:
        context = ActivityContext(
            self.info,
            lambda details: self.on_heartbeat(*details),
            self._cancelled,
            self._worker_shutdown,
            interruption,
            converter=self.payload_converter,
            client=self.client,
            stopped=self._stopped,
        )
        self._contexts.append(context)
        return context

    def _run_sync(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        interruption = ThreadInterrupt()
        return self._reached(
            interruption.interrupt,
            self._context(interruption),
            lambda: interruption.run(lambda: fn(*args, **kwargs)),
        )

    async def _run_async(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        context = self._context(None)

        async def inside() -> Any:
            CURRENT.set(context)
            return await fn(*args, **kwargs)

        work = loop.create_task(inside())

        def stop() -> None:
            loop.call_soon_threadsafe(work.cancel)

        self._reach.append(stop)
        if self._cancelled.is_set():
            stop()
        try:
            return await work
        finally:
            self._reach.remove(stop)
            self.cost = context.cost

    def _reached(self, stop: Callable[[], object], context: ActivityContext, run: Callable[[], Any]) -> Any:
        CURRENT.set(context)
        self._reach.append(stop)
        if self._cancelled.is_set():
            stop()
        try:
            return run()
        finally:
            self._reach.remove(stop)
            self.cost = context.cost


def _ignore_heartbeat(*details: Any) -> None:
    """Discard heartbeats if the test does not ask for them."""
