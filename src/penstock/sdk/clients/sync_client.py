"""`SyncClient`: the client for code without asyncio. It wraps the async client, whose calls run in a thread."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from penstock.sdk.clients.change_sets.calls import ChangeSetClient
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.handles import ActivityHandle, WorkflowHandle, WorkflowUpdateHandle
from penstock.sdk.clients.operations.async_activity import AsyncActivityHandle
from penstock.sdk.clients.schedules.descriptions import ScheduleWarning
from penstock.sdk.clients.schedules.handle import ScheduleHandle
from penstock.sdk.clients.starts import ActivityStart

P = ParamSpec("P")
InnerT = TypeVar("InnerT")
FacadeT = TypeVar("FacadeT")
ResultT = TypeVar("ResultT")
OwnT = TypeVar("OwnT")

JOIN_SECONDS = 10.0


class LoopThread:
    """An event loop in its own thread, which any other thread can use."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine in that thread and wait for its result."""
        try:
            self._check()
            future: Future[ResultT] = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("The client was closed while this call waited") from None
        except BaseException:
            future.cancel()  # no effect if it has ended; otherwise the caller has given up
            raise

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("A SyncClient does not survive a fork: connect one in each process")
        if self._closed:
            raise RuntimeError("This client is closed; connect a new one")
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "A SyncClient was called on its own event loop, where it would deadlock."
                " Use Client, and await it, in async code such as interceptors and codecs."
            )

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run a last coroutine, cancel the others, and end the thread. A second call does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        try:
            if last is not None:
                self.wait(last())
        finally:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class _Facade(Generic[InnerT]):
    """An async object, and the thread in which it lives."""

    def __init__(self, thread: LoopThread, inner: InnerT) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return f"Sync{self._inner!r}"


# Wrappers


def _waits(
    call: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[Any, P], ResultT]:
    """Wrap a coroutine method as a blocking one."""

    @functools.wraps(call)
    def waiting(self: _Facade[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return self._thread.wait(call(self._inner, *args, **kwargs))

    return waiting


def _iterates(
    call: Callable[Concatenate[InnerT, P], AsyncIterator[ResultT]],
) -> Callable[Concatenate[Any, P], Iterator[ResultT]]:
    """Wrap an async iterator method as a blocking iterator."""

    @functools.wraps(call)
    def iterating(self: _Facade[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[ResultT]:
        items = call(self._inner, *args, **kwargs)
        try:
            while (item := self._thread.wait(_next(items))) is not _END:
                yield item
        finally:
            self._thread.wait(_close(items))

    return iterating


_END: Any = object()


async def _next(items: AsyncIterator[ResultT]) -> ResultT:
    return await anext(items, _END)


async def _close(items: AsyncIterator[Any]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()


def _wrapping(
    call: Callable[Concatenate[InnerT, P], Any], kind: Callable[[LoopThread, Any], FacadeT]
) -> Callable[Concatenate[Any, P], FacadeT]:
    """Wrap a method that returns a handle, or a coroutine of one, as one that returns a blocking handle."""

    @functools.wraps(call)
    def wrapped(self: _Facade[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> FacadeT:
        found = call(self._inner, *args, **kwargs)
        return kind(self._thread, self._thread.wait(found) if inspect.iscoroutine(found) else found)

    return wrapped


def _starts_update(
    call: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, WorkflowUpdateHandle[ResultT]]],
) -> Callable[Concatenate[Any, P], SyncWorkflowUpdateHandle[ResultT]]:
    return _wrapping(call, SyncWorkflowUpdateHandle[ResultT])


def _finds_update(
    call: Callable[Concatenate[InnerT, P], WorkflowUpdateHandle[ResultT]],
) -> Callable[Concatenate[Any, P], SyncWorkflowUpdateHandle[ResultT]]:
    return _wrapping(call, SyncWorkflowUpdateHandle[ResultT])


def _starts_workflow(
    call: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, WorkflowHandle[ResultT]]],
) -> Callable[Concatenate[Any, P], SyncWorkflowHandle[ResultT]]:
    return _wrapping(call, SyncWorkflowHandle[ResultT])


def _makes_run(
    call: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, WorkflowHandle[Any]]],
) -> Callable[Concatenate[Any, P], SyncWorkflowHandle[Any]]:
    return _wrapping(call, lambda thread, made: SyncWorkflowHandle[Any](thread, made))


def _starts_activity(
    call: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, ActivityHandle[ResultT]]],
) -> Callable[Concatenate[Any, P], SyncActivityHandle[ResultT]]:
    return _wrapping(call, SyncActivityHandle[ResultT])


def _finds_workflow(
    call: Callable[Concatenate[InnerT, P], WorkflowHandle[ResultT]],
) -> Callable[Concatenate[Any, P], SyncWorkflowHandle[ResultT]]:
    return _wrapping(call, SyncWorkflowHandle[ResultT])


def _finds_activity(
    call: Callable[Concatenate[InnerT, P], ActivityHandle[ResultT]],
) -> Callable[Concatenate[Any, P], SyncActivityHandle[ResultT]]:
    return _wrapping(call, SyncActivityHandle[ResultT])


def _finds_async_activity(
    call: Callable[Concatenate[InnerT, P], AsyncActivityHandle],
) -> Callable[Concatenate[Any, P], SyncAsyncActivityHandle]:
    return _wrapping(call, SyncAsyncActivityHandle)


def _finds_schedule(
    call: Callable[Concatenate[InnerT, P], ScheduleHandle | Coroutine[Any, Any, ScheduleHandle]],
) -> Callable[Concatenate[Any, P], SyncScheduleHandle]:
    return _wrapping(call, SyncScheduleHandle)


def _connects(call: Callable[P, Coroutine[Any, Any, Client]]) -> Callable[P, SyncClient]:
    @functools.wraps(call)
    def connecting(*args: P.args, **kwargs: P.kwargs) -> SyncClient:
        thread = LoopThread()
        try:
            return SyncClient(thread, thread.wait(call(*args, **kwargs)))
        except BaseException:
            thread.close()
            raise

    return connecting


# Public classes


class SyncWorkflowUpdateHandle(_Facade[WorkflowUpdateHandle[OwnT]], Generic[OwnT]):
    """Blocking version of `WorkflowUpdateHandle`."""

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def workflow_id(self) -> str:
        return self._inner.workflow_id

    @property
    def workflow_run_id(self) -> str | None:
        return self._inner.workflow_run_id

    def result(self, *, timeout: timedelta | float | None = None) -> OwnT:
        return self._thread.wait(self._inner.result(timeout=timeout))


class SyncWorkflowHandle(_Facade[WorkflowHandle[OwnT]], Generic[OwnT]):
    """Blocking version of `WorkflowHandle`."""

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def run_id(self) -> str | None:
        return self._inner.run_id

    @property
    def first_execution_run_id(self) -> str | None:
        return self._inner.first_execution_run_id

    @property
    def is_new(self) -> bool | None:
        return self._inner.is_new

    @property
    def result_run_id(self) -> str | None:
        return self._inner.result_run_id

    def result(self, *, timeout: timedelta | float | None = None) -> OwnT:
        return self._thread.wait(self._inner.result(timeout=timeout))

    signal = _waits(WorkflowHandle[Any].signal)
    query = _waits(WorkflowHandle[Any].query)
    execute_update = _waits(WorkflowHandle[Any].execute_update)
    start_update = _starts_update(WorkflowHandle[Any].start_update)
    get_update_handle = _finds_update(WorkflowHandle[Any].get_update_handle)
    get_update_handle_for = _finds_update(WorkflowHandle[Any].get_update_handle_for)
    current_details = _waits(WorkflowHandle[Any].current_details)
    cancel = _waits(WorkflowHandle[Any].cancel)
    terminate = _waits(WorkflowHandle[Any].terminate)
    pause = _waits(WorkflowHandle[Any].pause)
    resume = _waits(WorkflowHandle[Any].resume)
    reset = _makes_run(WorkflowHandle[Any].reset)
    fork = _makes_run(WorkflowHandle[Any].fork)
    rerun = _makes_run(WorkflowHandle[Any].rerun)
    delete = _waits(WorkflowHandle[Any].delete)
    describe = _waits(WorkflowHandle[Any].describe)
    fetch_history = _waits(WorkflowHandle[Any].fetch_history)
    fetch_history_events = _iterates(WorkflowHandle[Any].fetch_history_events)


class SyncActivityHandle(_Facade[ActivityHandle[OwnT]], Generic[OwnT]):
    """Blocking version of `ActivityHandle`."""

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def run_id(self) -> str | None:
        return self._inner.run_id

    @property
    def is_new(self) -> bool | None:
        return self._inner.is_new

    def result(self, *, timeout: timedelta | float | None = None) -> OwnT:
        return self._thread.wait(self._inner.result(timeout=timeout))

    cancel = _waits(ActivityHandle[Any].cancel)
    pause = _waits(ActivityHandle[Any].pause)
    resume = _waits(ActivityHandle[Any].resume)
    reset = _waits(ActivityHandle[Any].reset)
    run_now = _waits(ActivityHandle[Any].run_now)
    update_options = _waits(ActivityHandle[Any].update_options)
    describe = _waits(ActivityHandle[Any].describe)


class SyncChangeSetClient(_Facade[ChangeSetClient]):
    """Blocking version of `ChangeSetClient`."""

    new = _waits(ChangeSetClient.new)
    edit = _waits(ChangeSetClient.edit)
    get = _waits(ChangeSetClient.get)
    plan = _waits(ChangeSetClient.plan)
    approve = _waits(ChangeSetClient.approve)
    unapprove = _waits(ChangeSetClient.unapprove)
    apply = _waits(ChangeSetClient.apply)
    withdraw = _waits(ChangeSetClient.withdraw)
    rollback = _waits(ChangeSetClient.rollback)
    list = _iterates(ChangeSetClient.list)


class SyncAsyncActivityHandle(_Facade[AsyncActivityHandle]):
    """Blocking version of `AsyncActivityHandle`."""

    @property
    def id(self) -> str:
        return self._inner.id

    heartbeat = _waits(AsyncActivityHandle.heartbeat)
    complete = _waits(AsyncActivityHandle.complete)
    fail = _waits(AsyncActivityHandle.fail)
    report_cancellation = _waits(AsyncActivityHandle.report_cancellation)


class SyncScheduleHandle(_Facade[ScheduleHandle]):
    """Blocking version of `ScheduleHandle`."""

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def warnings(self) -> Sequence[ScheduleWarning]:
        return self._inner.warnings

    describe = _waits(ScheduleHandle.describe)
    update = _waits(ScheduleHandle.update)
    pause = _waits(ScheduleHandle.pause)
    unpause = _waits(ScheduleHandle.unpause)
    trigger = _waits(ScheduleHandle.trigger)
    backfill = _waits(ScheduleHandle.backfill)
    delete = _waits(ScheduleHandle.delete)
    fetch_history_events = _iterates(ScheduleHandle.fetch_history_events)


class SyncClient(_Facade[Client]):
    """Blocking version of `Client`. Any thread may use it. Close it, or use it as a context manager."""

    connect = staticmethod(_connects(Client.connect))

    def close(self) -> None:
        """Close all connections and end the thread. Pending calls are cancelled."""
        self._thread.close(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        return self._inner.namespace

    start_workflow = _starts_workflow(Client.start_workflow)
    execute_workflow = _waits(Client.execute_workflow)
    get_workflow_handle = _finds_workflow(Client.get_workflow_handle)
    get_workflow_handle_for = _finds_workflow(Client.get_workflow_handle_for)
    start_update_with_start_workflow = _starts_update(Client.start_update_with_start_workflow)
    execute_update_with_start_workflow = _waits(Client.execute_update_with_start_workflow)
    list_workflows = _iterates(Client.list_workflows)
    count_workflows = _waits(Client.count_workflows)
    register_search_attribute = _waits(Client.register_search_attribute)
    preview_batch = _waits(Client.preview_batch)
    cancel_workflows = _waits(Client.cancel_workflows)
    terminate_workflows = _waits(Client.terminate_workflows)
    signal_workflows = _waits(Client.signal_workflows)
    start_activity = _starts_activity(Client.start_activity)
    execute_activity = _waits(Client.execute_activity)
    get_activity_handle = _finds_activity(Client.get_activity_handle)
    get_async_activity_handle = _finds_async_activity(Client.get_async_activity_handle)
    list_activities = _iterates(Client.list_activities)
    create_schedule = _finds_schedule(Client.create_schedule)
    get_schedule_handle = _finds_schedule(Client.get_schedule_handle)
    list_schedules = _iterates(Client.list_schedules)
    preview_schedule = _waits(Client.preview_schedule)

    @property
    def change_sets(self) -> SyncChangeSetClient:
        """The change sets of the namespace."""
        return SyncChangeSetClient(self._thread, self._inner.change_sets)

    pause_schedules = _waits(Client.pause_schedules)
    resume_schedules = _waits(Client.resume_schedules)

    def start_activities(
        self, starts: Sequence[ActivityStart[ResultT]], *, return_exceptions: bool = False
    ) -> list[SyncActivityHandle[ResultT]]:
        """Start many standalone activities in few requests. Each succeeds or is refused on its own.

        Args:
            starts: the activities to start.
            return_exceptions: return refusals in place of handles. Otherwise the first one is raised, after all
                starts were sent.
        """
        work = self._inner.start_activities(starts, return_exceptions=return_exceptions)
        found: list[Any] = self._thread.wait(work)
        return [
            SyncActivityHandle(self._thread, each) if isinstance(each, ActivityHandle) else each
            for each in found
        ]
