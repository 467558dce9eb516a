"""The event loop on which workflow code runs: it has no clock and no sockets, and does the same each time."""

from __future__ import annotations

import asyncio
import decimal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from math import isfinite
from typing import Any, NoReturn, Protocol, TypeVar

from penstock.sdk.replay.errors import DeterminismViolationError

T = TypeVar("T")


class WorkflowFuture(asyncio.Future[T]):
    """A future whose place in a set does not depend on where it lies in memory."""

    number: int

    def __hash__(self) -> int:
        return self.number


class TimerFactory(Protocol):
    """Who starts and gives up the timers of a run."""

    def start_timer(self, delay_ms: int) -> WorkflowFuture[None]: ...


class WorkflowTask(asyncio.Task[T]):
    number: int = 0

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task and what it awaits.

        A frame of this module is on the stack meanwhile: `StepFuture.cancel` tells by it that a task was cancelled, not
        the handle of the step.
        """
        return super().cancel(msg)

    def __hash__(self) -> int:
        return self.number


class _TimerHandle(asyncio.TimerHandle):
    """What `call_at` gives back; cancelling it gives the timer up."""

    def __init__(self, when: float, callback: Any, args: Any, loop: WorkflowLoop, context: Any) -> None:
        super().__init__(when, callback, args, loop, context)
        self.timer: WorkflowFuture[None] | None = None


_IN_A_RUN: ContextVar[bool] = ContextVar("penstock_in_a_run", default=False)


def _prepare() -> None:
    """Of what is kept by context, amounts are what hurts most: each run computes with settings of its own."""
    _IN_A_RUN.set(True)
    decimal.setcontext(decimal.DefaultContext.copy())


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000) if isfinite(seconds) else sys.maxsize


class EvictedError(BaseException):
    """Raised in code whose run is no longer kept, when it goes on after it was told to end."""


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Runs what is ready until nothing is. Time stands still in between; it is told from outside."""

    def __init__(self, timers: TimerFactory) -> None:
        self._timers = timers
        self._ready: deque[asyncio.Handle] = deque()
        self._now_s = 0.0
        self._numbers = 0
        self._closed = False
        self.is_closing = False
        self.context = Context()
        """What all code of the run begins with: nothing of the worker's, and nothing of another run's."""
        self.context.run(_prepare)
        self.tasks: dict[int, WorkflowTask[Any]] = {}
        """Tasks that have not ended, by number: they are kept alive here."""
        self.on_error: Callable[[dict[str, Any]], None] = lambda _: None
        self.check_writable: Callable[[str], None] = lambda _: None
        """Raises where the code may only look."""

    def set_time(self, now_ms: int) -> None:
        self._now_s = now_ms / 1000

    @property
    def is_ready(self) -> bool:
        """Whether something waits to be run."""
        return bool(self._ready)

    def run_until_quiet(self) -> None:
        """Run everything that is ready, and what becomes ready by it."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            ready = self._ready
            while ready:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)

    # ── what asyncio asks of a loop ─────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, self._workflow_context(context))
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, self._workflow_context(context))
        delay_ms = _milliseconds(when - self._now_s)
        if delay_ms <= 0:
            self._ready.append(handle)
            return handle
        handle.timer = self._timers.start_timer(delay_ms)
        handle.timer.add_done_callback(
            lambda timer: None if timer.cancelled() else self._ready.append(handle)
        )
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio when somebody no longer waits for a timer."""
        timer = getattr(handle, "timer", None)
        if timer is not None and not timer.done():
            timer.cancel()

    def create_future(self) -> WorkflowFuture[Any]:
        if self.is_closing:
            raise EvictedError
        future: WorkflowFuture[Any] = WorkflowFuture(loop=self)
        future.number = self._next_number()
        return future

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> WorkflowTask[T]:
        self.check_writable("tasks")
        number = self._next_number()
        task: WorkflowTask[T] = WorkflowTask.__new__(WorkflowTask)
        task.number = number
        task.__init__(coro, loop=self, name=name or f"task-{number}", context=self._workflow_context(context))  # type: ignore[misc]
        self.tasks[number] = task
        task.add_done_callback(lambda _: self.tasks.pop(number, None))
        return task

    def _workflow_context(self, context: Context | None) -> Context | None:
        """The context in which something is run: that of the code that asked, or of the run, if nobody of it did."""
        return self.context.copy() if context is None and not _IN_A_RUN.get() else context

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        return None

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Forget what is ready; nothing runs here any more."""
        self._closed = True
        self._ready.clear()
        self.tasks.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.on_error(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    def get_task_factory(self) -> None:
        return None

    async def shutdown_asyncgens(self) -> None:
        return None

    def finish(self, generator: Any) -> None:
        """Called by Python for an async generator that nobody reads any more: its end is part of the code."""
        if not self._closed:
            self.create_task(generator.aclose(), name="end of a generator")

    # ── what workflow code must not do ──────────────────────────────────────────────────────────────────

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        self._refuse("asyncio.to_thread and run_in_executor", "run it in an activity")

    def call_soon_threadsafe(self, callback: Any, *args: Any, **_: Any) -> NoReturn:  # type: ignore[override]
        self._refuse("call_soon_threadsafe", "no other thread may reach into workflow code; send a signal")

    def run_forever(self) -> NoReturn:
        self._refuse("run_forever", "await what the code waits for")

    def run_until_complete(self, future: Any) -> NoReturn:
        self._refuse("run_until_complete", "await it")

    def stop(self) -> NoReturn:
        self._refuse("loop.stop", "return from the workflow")

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("opening a connection", "do it in an activity")

    async def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("opening a server", "do it in an activity")

    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("opening a socket", "do it in an activity")

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("looking up an address", "do it in an activity")

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("starting a process", "do it in an activity")

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("starting a process", "do it in an activity")

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise DeterminismViolationError(f"{what} does not work in workflow code: {instead}.")
