"""Runs activity tasks and returns their outcomes."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from penstock.sdk.activities.context import ActivityContext
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.execution.clock import ActivityClock, MachineClock, TimerAlarm
from penstock.sdk.activities.execution.executor import ActivityExecutor
from penstock.sdk.activities.execution.heartbeats import Heartbeats, throttle_interval
from penstock.sdk.activities.execution.running_attempt import RunningAttempt, StopReason
from penstock.sdk.activities.execution.thread_pool import ActivityThreads
from penstock.sdk.activities.info import ActivityInfo, WorkerIdentity, info_of, last_heartbeat_details
from penstock.sdk.activities.outcomes import (
    WORKER_SHUTDOWN,
    CompletesAsync,
    Outcome,
    ProcessDied,
    RemoteFailure,
    cancelled,
    completed,
    dropped,
    failed,
    failure_body,
    let_go,
    timed_out,
)
from penstock.sdk.activities.process_pool.pool import ProcessPool, StartMethod, check_converter, target_of
from penstock.sdk.activities.registry import ActivityRegistry
from penstock.sdk.activities.thread_interrupt import ThreadInterrupt
from penstock.sdk.converters import DataConverter, Envelope
from penstock.sdk.failures import ApplicationError, is_cancelled_exception
from penstock.sdk.lease import Lease, lease_of

log = logging.getLogger(__name__)
KILL_SECONDS = 2.0
"""How long a process has to exit before it is killed."""

Task = Mapping[str, Any]
Heartbeat = Callable[[Task, dict[str, Any]], Awaitable[dict[str, Any]]]


class ActivityRunner:
    """Runs activity tasks. Activities that were asked to stop and do not are counted as `stuck`.

    `auto_heartbeat` applies to activities that do not configure it themselves. An activity that was asked to stop has
    `cancel_grace` to end; after that its process is killed.
    """

    def __init__(
        self,
        definitions: Sequence[ActivityDefinition],
        converter: DataConverter,
        *,
        heartbeat: Heartbeat,
        worker: WorkerIdentity,
        executor: Executor | None = None,
        thread_slots: int = 100,
        process_slots: int | None = None,
        process_start_method: StartMethod = "spawn",
        process_recycle_after: int | None = None,
        processes: ProcessPool | None = None,
        default_heartbeat_throttle_interval: timedelta = timedelta(seconds=30),
        max_heartbeat_throttle_interval: timedelta = timedelta(seconds=60),
        auto_heartbeat: bool | timedelta = False,
        cancel_grace: timedelta = timedelta(seconds=10),
        interceptors: Sequence[Any] = (),
        clock: ActivityClock | None = None,
        client: Any = None,
    ) -> None:
        if isinstance(executor, ProcessPoolExecutor):
            raise TypeError(
                'The executor is for threads. For a process use @activity.defn(runs_in="process")'
            )
        self._registry = ActivityRegistry(definitions)
        targets = _process_targets(definitions, converter)
        self._own_threads = None if executor is not None else ActivityThreads(max(1, thread_slots))
        self._processes = processes or ProcessPool(
            process_slots or max(1, thread_slots),
            converter,
            method=process_start_method,
            recycle_after=process_recycle_after,
        )
        self.targets = tuple(targets.values())
        """Targets that run in processes, as `module:name`."""
        self.is_all_in_processes = bool(definitions) and len(targets) == len(definitions)
        self.killed = 0
        """Number of processes killed because they did not exit with the worker."""
        around = [each for each in interceptors if hasattr(each, "intercept_activity")]
        threads = executor or self._own_threads
        assert threads is not None
        self._executor = ActivityExecutor(converter, threads, self._processes, targets, around)
        self._converter, self._heartbeat, self._worker = converter, heartbeat, worker
        self._throttle = (default_heartbeat_throttle_interval, max_heartbeat_throttle_interval)
        self._auto_heartbeat, self._grace_s = auto_heartbeat, cancel_grace.total_seconds()
        self._clock: ActivityClock = clock or MachineClock()
        self._client = client
        self._running: set[RunningAttempt] = set()
        self._by_task: dict[str, RunningAttempt] = {}
        self._stuck: set[asyncio.Future[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._shutting_down = False

    @property
    def stuck(self) -> int:
        """Activities that were asked to stop and still run. Each occupies a thread, or the event loop."""
        return len(self._stuck)

    async def run(self, task: Task) -> Outcome:
        """Run a polled activity task. Exceptions of the activity are part of the outcome."""
        try:
            info = info_of(task, self._worker, self._converter, self._clock.now())
        except Exception as error:
            return failed(failure_body(error, self._converter))
        return await self.run_as(info, task)

    async def run_as(self, info: ActivityInfo, task: Task) -> Outcome:
        """Run a task of another engine, whose information about itself is not in our form."""
        try:
            definition = self._registry.found(info.activity_type)
        except Exception as error:
            return failed(failure_body(error, self._converter))
        call, beats = self._attempt(definition, info, task)
        self._by_task[info.task_id] = call
        try:
            outcome = await self._run_attempt(call, task.get("arguments"))
            if outcome["action"] in ("fail", "let_go"):
                await beats.flush()
        finally:
            if self._by_task.get(info.task_id) is call:  # this worker may already run a later attempt
                del self._by_task[info.task_id]
            await beats.close()
        if call.not_begun:
            return dropped("lease_ended")
        return dropped("lease_lost") if call.lost else outcome

    def apply_heartbeat_response(self, task_id: str, response: Mapping[str, Any]) -> None:
        """Apply the response to a heartbeat that the worker sent itself to renew a lease."""
        call = self._by_task.get(task_id)
        if call is not None:
            _apply_response(call, response)

    def unknown(self, activity_type: str) -> str | None:
        """Return an error message for an activity type that is not registered; None if it is."""
        try:
            self._registry.found(activity_type)
        except ApplicationError as error:
            return error.message
        return None

    async def run_local(
        self, activity_type: str, arguments: Any, info: ActivityInfo, lease: Lease | None = None
    ) -> Outcome:
        """Run a local activity, unless the lease of its workflow task has expired.

        Its heartbeats are not sent. Cancelling this call stops it.
        """
        try:
            definition = self._registry.found(activity_type)
        except Exception as error:
            return failed(failure_body(error, self._converter))
        call = self._call(definition, info, _ignore_heartbeat, lease)
        outcome = await self._run_attempt(call, arguments)
        return dropped("lease_ended") if call.not_begun else outcome

    def resize(self, thread_slots: int) -> None:
        """Set the number of threads."""
        if self._own_threads is not None:
            self._own_threads.resize(thread_slots)

    def shut_down(self) -> None:
        """Notify activities that the worker shuts down. They continue."""
        self._shutting_down = True
        for call in self._running:
            call.shut_down()

    async def close(self, grace: timedelta = timedelta(0)) -> None:
        """Stop activities that do not end within the grace period, and release threads and processes."""
        self.shut_down()
        await self._wait_idle(grace.total_seconds())
        for call in tuple(self._running):
            call.stop(StopReason.SHUTDOWN)
        await self._idle.wait()
        await self._processes.close()
        if self._own_threads is not None:
            self._own_threads.shutdown()

    # One attempt

    def _attempt(
        self, definition: ActivityDefinition, info: ActivityInfo, task: Task
    ) -> tuple[RunningAttempt, Heartbeats]:
        every = self._every(definition, info)
        interval = throttle_interval(info.heartbeat_timeout, *self._throttle)
        beats = Heartbeats(
            partial(self._heartbeat, task),
            lambda response: _apply_response(call, response),
            interval if every is None else min(interval, every),
            self._clock,
            before=last_heartbeat_details(task),
        )
        call = self._call(definition, info, beats.beat, lease_of(task))
        if every is not None:
            beats.repeat_every(every)
        return call, beats

    def _call(
        self,
        definition: ActivityDefinition,
        info: ActivityInfo,
        send_heartbeat: Callable[[Any], None],
        lease: Lease | None,
    ) -> RunningAttempt:
        def heartbeat(details: tuple[Any, ...]) -> None:
            send_heartbeat(self._converter.encode_arguments(details, f"the heartbeat of {definition.label}"))

        interruption = ThreadInterrupt() if definition.kind == "thread" else None
        context = ActivityContext(
            info, heartbeat, interruption=interruption, converter=self._converter, client=self._client
        )
        call = RunningAttempt(definition, context, self._clock.now(), send_heartbeat, lease)
        if self._shutting_down:
            call.shut_down()
        return call

    def _every(self, definition: ActivityDefinition, info: ActivityInfo) -> timedelta | None:
        """Return the interval of automatic heartbeats; None for none."""
        auto = self._auto_heartbeat if definition.auto_heartbeat is None else definition.auto_heartbeat
        if isinstance(auto, timedelta):
            return auto
        if not auto:
            return None
        return min(self._throttle) if info.heartbeat_timeout is None else info.heartbeat_timeout / 2

    async def _run_attempt(self, call: RunningAttempt, arguments: Any) -> Outcome:
        self._running.add(call)
        self._idle.clear()
        work = asyncio.create_task(self._executor.perform(call, arguments))
        work.add_done_callback(lambda _: call.end())
        alarms: list[TimerAlarm] = []
        call.on_over = lambda: self._over(call, work, alarms)
        call.on_grace = lambda: alarms.append(self._clock.call_later(self._grace_of(call), call.give_up))
        deadline_s = call.deadline_s
        if deadline_s is not None:
            alarms.append(self._clock.call_later(deadline_s, partial(call.stop, StopReason.TIMED_OUT)))
        try:
            await call.ended
        except asyncio.CancelledError:
            call.stop(StopReason.SHUTDOWN)
            raise
        return self._outcome(call, work)

    def _grace_of(self, call: RunningAttempt) -> float:
        """Return the time an activity has to stop.

        A process has less after a timeout, a lost lease or a shutdown than after a cancel request.
        """
        hurry = call.definition.kind == "process" and call.why is not StopReason.CANCEL
        return min(KILL_SECONDS, self._grace_s) if hurry else self._grace_s

    def _over(self, call: RunningAttempt, work: asyncio.Task[Envelope], alarms: list[TimerAlarm]) -> None:
        for each in alarms:
            each.cancel()
        self._running.discard(call)
        if not self._running:
            self._idle.set()
        if not work.done():
            self._abandon(call, work)
        elif not work.cancelled():
            work.exception()  # the caller may have been cancelled

    def _abandon(self, call: RunningAttempt, work: asyncio.Task[Envelope]) -> None:
        self._stuck.add(work)
        work.add_done_callback(partial(self._abandoned_ended, call))
        log.error(
            "%s was asked to stop and still runs; it occupies its slot until it ends%s",
            call.definition.label,
            _stack(call, work),
            extra=call.context.info.ids,
        )

    def _abandoned_ended(self, call: RunningAttempt, work: asyncio.Future[Any]) -> None:
        self._stuck.discard(work)
        if not work.cancelled():
            work.exception()
        log.info(
            "%s has ended after it was asked to stop", call.definition.label, extra=call.context.info.ids
        )

    def _outcome(self, call: RunningAttempt, work: asyncio.Task[Envelope]) -> Outcome:
        if not work.done() or call.why is StopReason.TIMED_OUT:  # a result after the timeout does not count
            return self._stopped(call, asyncio.CancelledError())
        try:
            return completed(work.result(), call.context.cost)
        except CompletesAsync:
            return let_go()
        except (Exception, asyncio.CancelledError) as error:
            if call.why is not None and _is_stop(error):
                return self._stopped(call, error)
            return failed(failure_body(error, self._converter), call.context.cost)

    def _stopped(self, call: RunningAttempt, error: BaseException) -> Outcome:
        cost = call.context.cost
        match call.why:
            case StopReason.LOST:
                return dropped("lease_lost")
            case StopReason.SHUTDOWN if isinstance(error, ProcessDied):
                self.killed += 1
                return failed(failure_body(error, self._converter) | {"code": WORKER_SHUTDOWN}, cost)
            case StopReason.SHUTDOWN:
                return dropped("worker_shutdown")
            case StopReason.TIMED_OUT:
                return failed(timed_out(call.definition, call.timeout_kind, call.timeout_s), cost)
            case _:
                return failed(cancelled(error, self._converter), cost)

    async def _wait_idle(self, seconds: float) -> None:
        """Wait until nothing runs, for at most `seconds`."""
        sleeping = asyncio.create_task(self._clock.sleep(seconds))
        quiet = asyncio.create_task(self._idle.wait())
        await asyncio.wait({sleeping, quiet}, return_when=asyncio.FIRST_COMPLETED)
        for each in (sleeping, quiet):
            each.cancel()


def _process_targets(
    definitions: Sequence[ActivityDefinition], converter: DataConverter
) -> dict[str | None, str]:
    """Return the targets of activities that run in processes, by name, and check that processes can run them."""
    targets = {each.name: target_of(each) for each in definitions if each.kind == "process"}
    if targets:
        check_converter(converter)
    return targets


def _apply_response(call: RunningAttempt, response: Mapping[str, Any]) -> None:
    """Apply the server's response to a heartbeat."""
    if not response.get("can_continue", True):
        call.stop(StopReason.LOST)
        return
    if response.get("activity_paused"):
        call.context.paused.set()
    if response.get("cancel_requested"):
        call.stop(StopReason.CANCEL)


def _is_stop(error: BaseException) -> bool:
    """Whether the code ended because it was asked to stop."""
    if isinstance(error, RemoteFailure):
        return error.cancelled
    return isinstance(error, ProcessDied) or is_cancelled_exception(error)


def _stack(call: RunningAttempt, work: asyncio.Task[Envelope]) -> str:
    """Return the stack of the code as text to append to a message."""
    interruption = call.context.interruption
    frame = sys._current_frames().get(interruption.thread) if interruption and interruption.thread else None
    if frame is not None:
        return ":\n" + "".join(traceback.format_stack(frame))
    return "".join(
        f"\n  {each.f_code.co_filename}:{each.f_lineno} in {each.f_code.co_name}" for each in work.get_stack()
    )


def _ignore_heartbeat(details: Any) -> None:
    """Discard heartbeats of local activities."""
