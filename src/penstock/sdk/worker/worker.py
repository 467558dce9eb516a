"""The worker: a process's offer to run workflows and activities of one task queue."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.dispatch import DispatchConfig
from penstock.sdk.activities.process_pool.pool import StartMethod
from penstock.sdk.clients.client import Client
from penstock.sdk.dispatch_options import Dispatch, config_getter
from penstock.sdk.worker.adjustable_options import AdjustableOptions, adjusted
from penstock.sdk.worker.claim_options import Claiming
from penstock.sdk.worker.error_policy import log
from penstock.sdk.worker.lifecycle import process_info
from penstock.sdk.worker.lifecycle.default_logging import default_logging
from penstock.sdk.worker.lifecycle.stop_signals import stopped_by_signals
from penstock.sdk.worker.matching.slot_pool import SlotPool
from penstock.sdk.worker.metrics import NullMetrics, WorkerMetrics
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.queue_service import QueueService
from penstock.sdk.worker.queue_services import QueueServices
from penstock.sdk.worker.registry import WorkerRegistry

NAME_MAX = 255
NAMES_LOGGED_MAX = 10
TASK_TIMEOUT = timedelta(seconds=2)


class Worker:
    """Takes tasks from a queue and runs them, from `run` until `shutdown`.

    A worker runs once: to run again, make another. Several may share a process, a client and a loop.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str | None = None,
        task_queues: Sequence[str] = (),
        workflows: Sequence[type] = (),
        activities: Sequence[Callable[..., Any]] = (),
        max_concurrent_workflow_tasks: int = 100,
        max_concurrent_activity_tasks: int | None = None,
        max_concurrent_activities: int | None = None,
        max_concurrent_local_activities: int = 100,
        max_concurrent_workflow_task_polls: int = 2,
        max_concurrent_activity_task_polls: int = 2,
        max_cached_workflows: int = 1000,
        sticky_queue_schedule_to_start_timeout: timedelta = timedelta(seconds=10),
        max_activities_per_second: float | None = None,
        max_task_queue_activities_per_second: float | None = None,
        queue_rate_burst_seconds: float | None = None,
        default_heartbeat_throttle_interval: timedelta = timedelta(seconds=30),
        max_heartbeat_throttle_interval: timedelta = timedelta(seconds=60),
        graceful_shutdown_timeout: timedelta = timedelta(0),
        auto_heartbeat: bool | timedelta | None = None,
        process_slots: int | None = None,
        process_start_method: StartMethod = "spawn",
        process_recycle_after: int | None = None,
        process_recycle_over_bytes: int | None = None,
        all_in_processes: bool = False,
        claiming: Claiming | None = None,
        build_id: str | None = None,
        identity: str | None = None,
        activity_executor: ThreadPoolExecutor | None = None,
        interceptors: Sequence[Any] = (),
        metrics: WorkerMetrics | None = None,
        task_timeout: timedelta | None = None,
        debug_mode: bool = False,
        on_fatal_error: Callable[[BaseException], Awaitable[None]] | None = None,
        dispatch: Dispatch | None = None,
        handle_signals: bool = True,
        default_logging: bool = True,
        report_tracebacks: bool = True,
    ) -> None:
        """`dispatch` says where the activities of its workflows go, and how; unless given, it is the client's.

        It also gives what is left out here of `auto_heartbeat`, `task_timeout` and the rate cap of the task queue.

        With `task_queues` it serves several: their activities share its places, and the first queue goes first.

        `handle_signals`: in the main thread, SIGTERM and Ctrl-C shut it down gracefully, and a second one ends the
        process at once. Handlers that the program has set are left alone; False leaves all signals alone.
        `default_logging`: if the program has not configured logging, log to stderr while it runs.
        `report_tracebacks`: failures that it reports to the server carry their tracebacks; its log always has them.
        """
        self.task_queues = _queues(task_queue, task_queues)
        self.task_queue = self.task_queues[0]
        self.build_id = None if build_id is None else _name("build_id", build_id)
        self.identity = _name("identity", identity or f"{process_info.identity()}-{secrets.token_hex(4)}")
        self._registry = WorkerRegistry(workflows, activities)
        self._dispatch = client.dispatch if dispatch is None else config_getter(dispatch)
        config = self._dispatch()
        self._options = WorkerOptions(
            max_concurrent_workflow_tasks=max_concurrent_workflow_tasks,
            max_concurrent_activity_tasks=_one_of(max_concurrent_activity_tasks, max_concurrent_activities),
            max_concurrent_local_activities=max_concurrent_local_activities,
            max_concurrent_workflow_task_polls=max_concurrent_workflow_task_polls,
            max_concurrent_activity_task_polls=max_concurrent_activity_task_polls,
            max_cached_workflows=max_cached_workflows,
            sticky_queue_schedule_to_start_timeout=sticky_queue_schedule_to_start_timeout,
            max_activities_per_second=max_activities_per_second,
            max_task_queue_activities_per_second=max_task_queue_activities_per_second,
            queue_rate_burst_seconds=queue_rate_burst_seconds,
            default_heartbeat_throttle_interval=default_heartbeat_throttle_interval,
            max_heartbeat_throttle_interval=max_heartbeat_throttle_interval,
            graceful_shutdown_timeout=graceful_shutdown_timeout,
            auto_heartbeat=_auto_heartbeat(auto_heartbeat, config),
            process_slots=process_slots,
            process_start_method=process_start_method,
            process_recycle_after=process_recycle_after,
            process_recycle_over_bytes=process_recycle_over_bytes,
            all_in_processes=all_in_processes,
            claiming=claiming or Claiming(),
            task_timeout=_task_timeout(task_timeout, config),
            debug_mode=debug_mode,
            report_tracebacks=report_tracebacks,
        )
        _check_room(self._registry, self._options)
        self._client = client
        self._executor = activity_executor
        self._interceptors = tuple(interceptors)
        self._metrics: WorkerMetrics = metrics or NullMetrics()
        self._on_fatal_error = on_fatal_error
        self._handles_signals = handle_signals
        self._logs_by_default = default_logging
        self._signal: signal.Signals | None = None
        self._service: QueueServices | None = None
        self._adjusting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._up = asyncio.Event()
        self._ended = asyncio.Event()
        self._began = False
        self._running: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self.killed = 0
        """Processes that had to be ended by force when it ended; each had a task."""

    def __repr__(self) -> str:
        served = f"task_queue={self.task_queue!r}"
        if len(self.task_queues) > 1:
            served = f"task_queues={self.task_queues!r}"
        return f"Worker({self.identity!r}, {served})"

    @property
    def is_running(self) -> bool:
        """Whether it is registered and takes tasks."""
        return self._up.is_set() and not self._ended.is_set()

    @property
    def is_shutdown(self) -> bool:
        return self._ended.is_set()

    async def run(self) -> None:
        """Take tasks until `shutdown`, or until this is cancelled, which shuts down as well.

        Returns after SIGTERM and Ctrl-C, too, when everything has been shut down; see `handle_signals`.
        Raises what the server refuses for good: a token that is wrong, a namespace that is not there.
        """
        if self._began:
            raise RuntimeError("A worker runs once: make another one")
        self._began = True
        with (
            default_logging(wanted=self._logs_by_default),
            stopped_by_signals(
                self._stop_on, wanted=self._handles_signals, ends_block=self._running is not None
            ) as signals,
        ):
            try:
                await self._run()
            except asyncio.CancelledError:
                if signals is not None and signals.hurried_by is not None:
                    raise SystemExit(128 + signals.hurried_by) from None
                raise

    def _stop_on(self, number: signal.Signals) -> None:
        """Shut down because of a signal. A block that the worker runs for is ended, too."""
        self._signal = number
        self._stop.set()
        if self._body is not None:
            self._body.cancel()

    async def _run(self) -> None:
        try:
            await self._serve()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if self._on_fatal_error is not None:
                await self._on_fatal_error(error)
            raise
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        service = self._service = self._put_together()
        try:
            if await service.open(self._stop):
                log.info("%s", self._introduction())
                self._up.set()
            await service.serve(self._stop)
        finally:
            await service.close()
            self.killed = service.killed
            log.info("Worker %s has shut down", self.identity)

    def _introduction(self) -> str:
        """What it serves, where and how much of it at once: the first line of its log."""
        options, registry = self._options, self._registry
        parts = [f"task queue {', '.join(self.task_queues)}"]
        for noun, known, slots in (
            ("workflows", registry.workflows, options.max_concurrent_workflow_tasks),
            ("activities", registry.activities, options.max_concurrent_activity_tasks),
        ):
            if known:
                parts.append(f"{noun} {_listed(known)} ({slots} slots)")
        where = getattr(self._client.transport, "url", None) or "its server"
        build = "" if self.build_id is None else f", build {self.build_id}"
        return (
            f"Worker {self.identity}{build} is connected to {where}, namespace {self._client.namespace},"
            f" and takes tasks: {', '.join(parts)}"
        )

    async def adjust(self, **numbers: Unpack[AdjustableOptions]) -> None:
        """Change how much it does at once, or how fast, while it runs; what is left out stays.

        What runs goes on: with fewer places, nothing new is started until enough has ended. No places at all where
        there were some, or some where there were none, need another worker.
        """
        async with self._adjusting:
            self._options = adjusted(self._options, numbers)
            if self._service is not None:
                await self._service.adjust(self._options)

    def _put_together(self) -> QueueServices:
        """A service for each queue, in one room. The server knows each by a name of its own."""
        slot_pool = SlotPool(
            self._options,
            self._client.data_converter,
            runs_activities=bool(self._registry.activities),
            queues=len(self.task_queues),
        )
        several = len(self.task_queues) > 1
        services = [
            QueueService(
                self._client,
                self._registry,
                self._options,
                task_queue=queue,
                worker_id=f"{self.identity}/{queue}" if several else self.identity,
                build_id=self.build_id,
                executor=self._executor,
                interceptors=self._interceptors,
                metrics=self._metrics,
                dispatch=self._dispatch,
                slot_pool=slot_pool,
                rank=rank,
            )
            for rank, queue in enumerate(self.task_queues)
        ]
        return QueueServices(services, slot_pool, self._options)

    def begin_shutdown(self) -> None:
        """Ask it to shut down, without waiting for it. From the loop that it runs in."""
        self._stop.set()

    async def shutdown(self) -> None:
        """Take nothing new, let what runs end, and leave. Returns when that is done; may be called more than once."""
        self._stop.set()
        if self._began:
            await self._ended.wait()

    async def __aenter__(self) -> Self:
        """Run in the background; the block begins when the worker is registered, and is cancelled if it breaks."""
        body = asyncio.current_task()
        assert body is not None, "async with runs in a task"
        self._running = asyncio.ensure_future(self.run())
        up = asyncio.ensure_future(self._up.wait())
        try:
            await asyncio.wait({self._running, up}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            up.cancel()
        if self._running.done():
            self._running.result()
        if self._signal is not None:
            await self._leave()
            raise SystemExit(128 + self._signal)
        self._running.add_done_callback(lambda running: _break(running, body))
        self._body = body
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._running is not None
        assert self._body is not None
        broke = self._running.done() and not self._running.cancelled() and self._running.exception()
        if broke:
            self._body.uncancel()
            raise broke from None
        await self._leave()
        if self._signal is not None and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise SystemExit(128 + self._signal) from None

    async def _leave(self) -> None:
        assert self._running is not None
        self._stop.set()
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            raise


def _listed(known: Mapping[str | None, Any]) -> str:
    """The first names of many; a definition without a name takes any."""
    names = sorted("any" if each is None else each for each in known)
    more = len(names) - NAMES_LOGGED_MAX
    return ", ".join(names[:NAMES_LOGGED_MAX]) + (f" and {more} more" if more > 0 else "")


def _break(running: asyncio.Task[None], body: asyncio.Task[Any]) -> None:
    if not running.cancelled() and running.exception() is not None:
        body.cancel()


def _one_of(tasks: int | None, alias: int | None) -> int:
    if tasks is not None and alias is not None:
        raise TypeError(
            "max_concurrent_activities is another name of max_concurrent_activity_tasks: give one of them"
        )
    given = alias if tasks is None else tasks
    return 100 if given is None else given


def _auto_heartbeat(given: bool | timedelta | None, config: DispatchConfig | None) -> bool | timedelta:
    if given is not None:
        return given
    return config is not None and config.auto_heartbeat


def _task_timeout(given: timedelta | None, config: DispatchConfig | None) -> timedelta:
    configured = None if config is None else config.worker_config.task_timeout
    return given or configured or TASK_TIMEOUT


def _queues(one: str | None, several: Sequence[str]) -> tuple[str, ...]:
    if isinstance(several, str):
        raise TypeError("task_queues is a list: task_queues=[…]")
    if (one is None) == (not several):
        raise TypeError("A worker serves a queue: give task_queue=…, or task_queues=[…] for several")
    named = (one,) if one is not None else tuple(several)
    found = tuple(_name("task_queue", each) for each in named)
    if len(set(found)) < len(found):
        raise ValueError(f"task_queues names a queue twice: {', '.join(found)}")
    return found


def _name(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {type(text).__name__}")
    if not text or len(text) > NAME_MAX or not text.isprintable():
        raise ValueError(f"{what} is 1 to {NAME_MAX} visible characters, not {text!r}")
    return text


def _check_room(registry: WorkerRegistry, options: WorkerOptions) -> None:
    """Whatever is registered needs a place to run, and the other way round at least one kind has places."""
    workflow, activity = options.max_concurrent_workflow_tasks, options.max_concurrent_activity_tasks
    if registry.workflows and workflow and not options.max_concurrent_workflow_task_polls:
        raise ValueError(
            "workflows are registered, but max_concurrent_workflow_task_polls is 0: none would be taken"
        )
    if registry.activities and activity and not options.max_concurrent_activity_task_polls:
        raise ValueError(
            "activities are registered, but max_concurrent_activity_task_polls is 0: none would be taken"
        )
    if registry.workflows and not workflow:
        raise ValueError(
            "workflows are registered, but max_concurrent_workflow_tasks is 0: none would ever run"
        )
    if registry.activities and not activity and not registry.workflows:
        raise ValueError(
            "activities are registered, but max_concurrent_activity_tasks is 0: none would ever run"
        )
    if registry.activities and not activity and not options.max_concurrent_local_activities:
        raise ValueError(
            "activities are registered, but max_concurrent_activity_tasks and max_concurrent_local_activities are 0:"
            " none would ever run"
        )
