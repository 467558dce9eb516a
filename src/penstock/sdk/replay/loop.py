"""The deterministic event loop of workflow code.

Theory of operation
-------------------
Workflow code is ordinary asyncio code: `await`, tasks, `gather`, `timeout`, `TaskGroup`, locks and queues all work,
because the standard library implements them on top of `AbstractEventLoop`. What differs between two executions on
asyncio's own loop is removed here:

- time: `time()` returns the time of the last applied event and stands still while code runs. A delay becomes a timer
  command through `TimerFactory`, and its callback is ready when the history has the `TimerFired` event;
- I/O: there is none. Sockets, subprocesses, executors and threads raise an error that names the alternative;
- order: callbacks run in FIFO order from one queue until it is empty (`run_until_quiet`). Nothing is added from
  outside meanwhile, so the order depends only on the code and on the order of inputs;
- hashing: asyncio keeps tasks and futures in sets (`wait`, `TaskGroup`), whose order depends on the hash.
  `WorkflowFuture` and `WorkflowTask` hash by a number assigned at creation instead of by address;
- context: each run has its own `contextvars.Context`, with nothing of the worker's or of another run's in it;
- garbage collection: unfinished async generators are closed by `finish` on this loop, as part of the code.

The loop is not run by asyncio. `WorkflowRun` sets it as the running loop of the thread, calls `run_until_quiet`, and
restores the previous one. When the queue is empty, the code waits for something that only the history can bring.

Invariant `replay-is-deterministic` (its half in this module): given the same code and the same sequence of inputs,
callbacks run in the same order, and tasks and futures get the same numbers.

On eviction, tasks are cancelled; code that continues regardless gets `EvictedError` at its next await.

Rejected:
- asyncio's loop with a patched clock: its selector, the order of timers with equal deadlines, and the sets above
  stay non-deterministic;
- a scheduler of our own with its own primitives: users would have to learn them, and libraries written for asyncio
  would not work.
"""

from __future__ import annotations

import asyncio
import decimal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from math import isfinite
from typing import Any, NoReturn, Protocol, TypeVar

from penstock.sdk.replay.errors import DeterminismViolationError

T = TypeVar("T")


class WorkflowFuture(asyncio.Future[T]):
    """A future that hashes by number, so that its position in a set does not depend on its address."""

    number: int

    def __hash__(self) -> int:
        return self.number


class TimerFactory(Protocol):
    """Starts the timers of a run."""

    def start_timer(self, delay_ms: int) -> WorkflowFuture[None]: ...


class WorkflowTask(asyncio.Task[T]):
    number: int = 0

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task and what it awaits.

        A frame of this module is on the stack meanwhile. `StepFuture.cancel` uses it to tell that a task was
        cancelled, not the handle of the step.
        """
        return super().cancel(msg)

    def __hash__(self) -> int:
        return self.number


class _TimerHandle(asyncio.TimerHandle):
    """The result of `call_at`. Cancelling it cancels the timer."""

    def __init__(self, when: float, callback: Any, args: Any, loop: WorkflowLoop, context: Any) -> None:
        super().__init__(when, callback, args, loop, context)
        self.timer: WorkflowFuture[None] | None = None


_IN_A_RUN: ContextVar[bool] = ContextVar("penstock_in_a_run", default=False)


def _prepare() -> None:
    """Mark the context as that of a run, and give it decimal settings that the worker cannot change."""
    _IN_A_RUN.set(True)
    decimal.setcontext(decimal.DefaultContext.copy())


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000) if isfinite(seconds) else sys.maxsize


class EvictedError(BaseException):
    """Raised in code of an evicted run that continues after its cancellation."""


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Runs ready callbacks until none is left. Time stands still meanwhile; `set_time` advances it."""

    def __init__(self, timers: TimerFactory) -> None:
        self._timers = timers
        self._ready: deque[asyncio.Handle] = deque()
        self._now_s = 0.0
        self._numbers = 0
        self._closed = False
        self.is_closing = False
        self.context = Context()
        """The initial context of all code of the run."""
        self.context.run(_prepare)
        self.tasks: dict[int, WorkflowTask[Any]] = {}
        """Tasks that have not ended, by number. This keeps them alive."""
        self.on_error: Callable[[dict[str, Any]], None] = lambda _: None
        self.check_writable: Callable[[str], None] = lambda _: None
        """Raises if the code may only read."""

    def set_time(self, now_ms: int) -> None:
        self._now_s = now_ms / 1000

    @property
    def is_ready(self) -> bool:
        """Whether a callback is ready."""
        return bool(self._ready)

    def run_until_quiet(self) -> None:
        """Run all ready callbacks, including those that become ready meanwhile."""
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

    # ── AbstractEventLoop ───────────────────────────────────────────────────────────────────────────────

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
        """Called by asyncio when a timer handle is cancelled."""
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
        """Return the context of a callback: that of the calling code, or that of the run if the caller is not part of
        it.
        """
        return self.context.copy() if context is None and not _IN_A_RUN.get() else context

    def new_context(self) -> Context:
        """Return a context for a task with a value of its own: a copy of that of the calling code, or of the run."""
        return copy_context() if _IN_A_RUN.get() else self.context.copy()

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
        """Discard ready callbacks. Nothing runs on this loop afterwards."""
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
        """Called by Python for an unfinished async generator that is no longer referenced: closing it is part of the
        code.
        """
        if not self._closed:
            self.create_task(generator.aclose(), name="end of a generator")

    # ── unsupported in workflow code ────────────────────────────────────────────────────────────────────

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
