"""`Worker`: runs workflows and activities of one or more task queues."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.dispatch import DispatchConfig
from penstock.sdk.activities.process_pool.pool import StartMethod, in_processes, processes_of
from penstock.sdk.clients.client import Client
from penstock.sdk.dispatch_options import Dispatch, config_getter
from penstock.sdk.plugins import Plugin, WorkerParts, checked_plugins, merged, of_workers
from penstock.sdk.worker.adjustable_options import AdjustableOptions, adjusted
from penstock.sdk.worker.claim_options import Claiming
from penstock.sdk.worker.engine_services import WorkerServices, WorkerSpec
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
_PLURALS = {"workflow": "workflows", "activity": "activities"}
NAMES_LOGGED_MAX = 10
TASK_TIMEOUT = timedelta(seconds=2)


class Worker:
    """Polls task queues and runs their workflow and activity tasks, from `run` until `shutdown`.

    A worker runs once; to run again, create another. Several workers may share a process, a client and an event loop.

    As an async context manager it runs in the background: the block starts when the worker is registered, and leaving
    it shuts the worker down.
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
        activity_executor: ThreadPoolExecutor | ProcessPoolExecutor | None = None,
        interceptors: Sequence[Any] = (),
        metrics: WorkerMetrics | None = None,
        task_timeout: timedelta | None = None,
        debug_mode: bool = False,
        on_fatal_error: Callable[[BaseException], Awaitable[None]] | None = None,
        dispatch: Dispatch | None = None,
        handle_signals: bool = True,
        default_logging: bool = True,
        report_tracebacks: bool = True,
        report_source_lines: bool | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> None:
        """Create a worker. It does not contact the server before `run`.

        Args:
            client: connected client. The worker uses its connection, namespace and data converter.
            task_queue: name of the task queue to serve. Give either this or `task_queues`.
            task_queues: several task queues that share the activity slots. A free slot goes to the first queue in
                this order that has a task. Workflow task slots are per queue.
            workflows: classes decorated with `@workflow.defn`.
            activities: functions decorated with `@activity.defn`.
            max_concurrent_workflow_tasks: workflow tasks that run at a time.
            max_concurrent_activity_tasks: activities that run at a time; 100 unless given.
            max_concurrent_activities: another name of `max_concurrent_activity_tasks`. Give one of the two.
            max_concurrent_local_activities: local activities that run at a time.
            max_concurrent_workflow_task_polls: open polls for workflow tasks.
            max_concurrent_activity_task_polls: open polls for activity tasks.
            max_cached_workflows: runs kept in memory between their tasks, so that the server sends only new events.
                With 0 every workflow task replays the whole history.
            sticky_queue_schedule_to_start_timeout: how long the next task of a cached run waits for this worker
                before any worker may have it.
            max_activities_per_second: activities that this worker starts per second; None is no limit.
            max_task_queue_activities_per_second: rate that the server enforces for the queue across all workers; None
                requests nothing. The most recent report of any worker applies.
            queue_rate_burst_seconds: seconds of unused queue rate that accumulate as burst; None requests nothing.
            default_heartbeat_throttle_interval: minimum time between two heartbeats sent for an activity that has no
                heartbeat timeout. With a timeout it is 80 % of the timeout.
            max_heartbeat_throttle_interval: upper bound of that interval.
            graceful_shutdown_timeout: how long running activities may continue after `shutdown` before they are
                cancelled and handed back.
            auto_heartbeat: whether the worker sends heartbeats for activities that do not configure this themselves,
                or the interval at which it does. None takes the value of `dispatch`.
            process_slots: processes for activities that run in a process; None is one per activity slot.
            process_start_method: how processes are started, `spawn` or `forkserver`.
            process_recycle_after: replace a process after this many activities; None is never.
            process_recycle_over_bytes: replace a process that uses more memory than this after an activity; None is
                never.
            all_in_processes: run activities in processes wherever possible, in processes that are started in advance.
            claiming: batch size and prefetch of activity tasks; None claims no more than can run.
            build_id: build of this worker's code, for build rollouts.
            identity: name under which the server knows this worker; None generates one from process, host and a
                random part.
            activity_executor: thread pool for sync activities; None creates one with a thread per slot. With a
                `ProcessPoolExecutor` they run in as many processes of the worker's own instead, as those with
                `runs_in="process"` do; nothing is submitted to it.
            interceptors: objects with links for activities or workflows, see `Interceptor`, outermost first. Those of
                the client that have such links go before them.
            metrics: receiver of the worker's metrics, see `WorkerMetrics`.
            task_timeout: fail a workflow task whose code does not yield to the event loop for this long. None takes
                the value of `dispatch`, or 2 seconds.
            debug_mode: disable that check, so that a debugger can stop workflow code.
            on_fatal_error: async function called with the error that ends `run`, before it is raised.
            dispatch: dispatch configuration that routes the activities of this worker's workflows. None takes the
                client's. It also supplies `auto_heartbeat`, `task_timeout` and the queue rate if they are not given.
            handle_signals: in the main thread, shut down on SIGTERM and Ctrl-C, and stop the process on a second
                signal. Handlers that the program has installed are not touched.
            default_logging: log to stderr while the worker runs if the program has not configured logging.
            report_tracebacks: include tracebacks in the failures reported to the server. The log has them in any
                case.
            report_source_lines: send the lines around each frame of a traceback, for the dashboard; None sends them
                if the server asks for them, as `penstock dev` does.
            plugins: plug-ins of this worker, behind those of the client.

        Raises:
            TypeError: an option has the wrong type.
            ValueError: an option is out of range, two definitions share a name, or something registered could never
                run.
        """
        arguments = dict(locals())
        self.task_queues = _queues(task_queue, task_queues)
        self.task_queue = self.task_queues[0]
        self.build_id = None if build_id is None else _name("build_id", build_id)
        self.identity = _name("identity", identity or f"{process_info.identity()}-{secrets.token_hex(4)}")
        self._plugins = merged(client.plugins, checked_plugins(plugins))
        config_of_plugins: WorkerParts = {
            "workflows": workflows,
            "activities": activities,
            "interceptors": merged(of_workers(client.interceptors), interceptors),
        }
        for each in self._plugins:
            config_of_plugins = each.configure_worker(config_of_plugins)
        self._registry = WorkerRegistry(config_of_plugins["workflows"], config_of_plugins["activities"])
        if isinstance(activity_executor, ProcessPoolExecutor):
            arguments["process_slots"] = process_slots or processes_of(activity_executor)
            self._registry.activities.update(in_processes(self._registry.activities))
            activity_executor = None
        self._dispatch = client.dispatch if dispatch is None else config_getter(dispatch)
        config = self._dispatch()
        self._options = WorkerOptions.of(
            arguments,
            max_concurrent_activity_tasks=_one_of(max_concurrent_activity_tasks, max_concurrent_activities),
            auto_heartbeat=_auto_heartbeat(auto_heartbeat, config),
            claiming=claiming or Claiming(),
            task_timeout=_task_timeout(task_timeout, config),
        )
        _check_slots(self._registry, self._options)
        self._client = client
        self._executor = activity_executor
        self._interceptors = tuple(config_of_plugins["interceptors"])
        self._metrics: WorkerMetrics = metrics or NullMetrics()
        self._on_fatal_error = on_fatal_error
        self._handles_signals = handle_signals
        self._logs_by_default = default_logging
        self._signal: signal.Signals | None = None
        self._service: WorkerServices | None = None
        self._adjusting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._up = asyncio.Event()
        self._ended = asyncio.Event()
        self._began = False
        self._running: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self.killed = 0
        """Number of processes killed at shutdown while they ran a task."""

    def __repr__(self) -> str:
        served = f"task_queue={self.task_queue!r}"
        if len(self.task_queues) > 1:
            served = f"task_queues={self.task_queues!r}"
        return f"Worker({self.identity!r}, {served})"

    @property
    def is_running(self) -> bool:
        """Whether the worker is registered and polls for tasks."""
        return self._up.is_set() and not self._ended.is_set()

    @property
    def is_shutdown(self) -> bool:
        return self._ended.is_set()

    async def run(self) -> None:
        """Poll for tasks until `shutdown`, or until this call is cancelled, which shuts the worker down as well.

        Also returns after SIGTERM and Ctrl-C, once the shutdown is complete; see `handle_signals`. Raises fatal
        refusals of the server, such as an invalid token or an unknown namespace.
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
                if signals is not None and signals.second_signal is not None:
                    raise SystemExit(128 + signals.second_signal) from None
                raise

    def _stop_on(self, number: signal.Signals) -> None:
        """Shut down on a signal, and cancel the `async with` block, if there is one."""
        self._signal = number
        self._stop.set()
        if self._body is not None:
            self._body.cancel()

    async def _run(self) -> None:
        try:
            await self._serve_within(self._plugins)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if self._on_fatal_error is not None:
                await self._on_fatal_error(error)
            raise
        finally:
            self._ended.set()

    async def _serve_within(self, plugins: Sequence[Plugin]) -> None:
        """Serve inside of `run_worker` of each plug-in, the first outermost."""
        if not plugins:
            await self._serve()
            return
        await plugins[0].run_worker(self, lambda worker: worker._serve_within(plugins[1:]))

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
        """The first log line: what the worker serves, where, and with how many slots."""
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
        """Change concurrency or rate limits while the worker runs. Options that are left out keep their values.

        Running tasks continue: with fewer slots, nothing new starts until enough have ended. Changing a kind from or
        to zero slots needs a new worker.

        Args:
            numbers: any of `max_concurrent_workflow_tasks`, `max_concurrent_activity_tasks` (or
                `max_concurrent_activities`), `max_concurrent_local_activities`, `max_activities_per_second`,
                `max_task_queue_activities_per_second`, `queue_rate_burst_seconds` and `graceful_shutdown_timeout`, as
                in `Worker(...)`.
        """
        async with self._adjusting:
            self._options = adjusted(self._options, numbers)
            if self._service is not None:
                await self._service.adjust(self._options)

    def _put_together(self) -> WorkerServices:
        """Create what runs the tasks: on our engine, the services of the queues."""
        engine = getattr(self._client.transport, "services", None)
        if engine is None:
            return self._queue_services()
        services: WorkerServices = engine(
            WorkerSpec(
                registry=self._registry,
                options=self._options,
                task_queues=self.task_queues,
                namespace=self._client.namespace,
                identity=self.identity,
                build_id=self.build_id,
                converter=self._client.data_converter,
                interceptors=self._interceptors,
                dispatch=self._dispatch,
                executor=self._executor,
                has_metrics=not isinstance(self._metrics, NullMetrics),
            )
        )
        return services

    def _queue_services(self) -> QueueServices:
        """Create a service for each queue, sharing one slot pool. Each registers under its own worker id."""
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
        """Request a shutdown without waiting for it. Call it in the worker's event loop."""
        self._stop.set()

    async def shutdown(self) -> None:
        """Stop polling, let running tasks end, and deregister. Returns when that is done. May be called repeatedly."""
        self._stop.set()
        if self._began:
            await self._ended.wait()

    async def __aenter__(self) -> Self:
        """Run in the background.

        The block starts when the worker is registered, and is cancelled if the worker fails.
        """
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
    """Return the first few names; a definition without a name matches any."""
    names = sorted("any" if each is None else each for each in known)
    more = len(names) - NAMES_LOGGED_MAX
    return ", ".join(names[:NAMES_LOGGED_MAX]) + (f" and {more} more" if more > 0 else "")


def _break(running: asyncio.Task[None], body: asyncio.Task[Any]) -> None:
    if not running.cancelled() and running.exception() is not None:
        body.cancel()


def _one_of(tasks: int | None, alias: int | None) -> int:
    if tasks is not None and alias is not None:
        raise TypeError(
            "max_concurrent_activities is another name of max_concurrent_activity_tasks: pass one of them"
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
        raise TypeError("A worker needs a queue: pass task_queue=…, or task_queues=[…] for several")
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


def _check_slots(registry: WorkerRegistry, options: WorkerOptions) -> None:
    """Check that everything registered has slots and polls."""
    for kind, known in (("workflow", registry.workflows), ("activity", registry.activities)):
        slots = getattr(options, f"max_concurrent_{kind}_tasks")
        if known and slots and not getattr(options, f"max_concurrent_{kind}_task_polls"):
            raise ValueError(
                f"{_PLURALS[kind]} are registered, but max_concurrent_{kind}_task_polls is 0: none would ever run"
            )
    if registry.workflows and not options.max_concurrent_workflow_tasks:
        raise ValueError(
            "workflows are registered, but max_concurrent_workflow_tasks is 0: none would ever run"
        )
    if registry.activities and not options.max_concurrent_activity_tasks:
        _check_local_slots(registry, options)


def _check_local_slots(registry: WorkerRegistry, options: WorkerOptions) -> None:
    """A worker without activity slots may still run its activities as local ones of its workflows."""
    if not registry.workflows:
        raise ValueError(
            "activities are registered, but max_concurrent_activity_tasks is 0: none would ever run"
        )
    if not options.max_concurrent_local_activities:
        raise ValueError(
            "activities are registered, but max_concurrent_activity_tasks and max_concurrent_local_activities are 0:"
            " none would ever run"
        )
