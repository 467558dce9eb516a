"""A `Worker` on Temporal: one worker of temporalio for each queue.

Slots, polls, rates and durations of the worker, which a profile of a dispatch file may have set, become arguments of
`temporalio.worker.Worker`:

- slots go through a tuner with fixed suppliers, the only way to a true zero: temporalio takes 0 for 100;
- without activity slots the worker does not poll for activities (`no_remote_activities`), and rates are left out;
- where a queue or the worker has a rate, eager activities are off, because they pass both limiters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    Worker,
    WorkerTuner,
)

from penstock.dispatch import DispatchConfig
from penstock.engines.temporal.activities import TemporalActivities
from penstock.engines.temporal.definitions import temporal_class
from penstock.engines.temporal.lint import check_code
from penstock.engines.temporal.payloads import WITHOUT_TRACEBACKS
from penstock.engines.temporal.port import RunSettings
from penstock.engines.temporal.refusals import not_here
from penstock.engines.temporal.runner import GuardedRunner
from penstock.engines.temporal.support import check_support
from penstock.sdk.activities.info import WorkerIdentity
from penstock.sdk.worker.engine_services import WorkerSpec
from penstock.sdk.worker.error_policy import log
from penstock.sdk.worker.options import WorkerOptions

_TURN_S = 0.01


class TemporalServices:
    """Runs a worker with temporalio.

    Args:
        client: the connected client of temporalio.
        spec: the worker.
        allow_approximate: start in spite of settings that Temporal has nothing for.
    """

    def __init__(self, client: Client, spec: WorkerSpec, *, allow_approximate: bool) -> None:
        self._client, self._spec = client, spec
        if not spec.options.report_tracebacks:
            self._client = Client(**(client.config() | {"data_converter": WITHOUT_TRACEBACKS}))
        check_options(spec)
        for told in approximated_options(spec):
            log.warning(told)
        check_code(list(spec.registry.workflows.values()))
        for each in check_support(spec.dispatch(), allow_approximate=allow_approximate):
            log.warning("%s = %s is %s on Temporal: %s", each.path, each.value, each.level, each.how)
        self._activities = [self._activities_of(queue) for queue in spec.task_queues]
        self._workers = [
            self._worker(queue, activities)
            for queue, activities in zip(spec.task_queues, self._activities, strict=True)
        ]
        self._running: list[asyncio.Future[None]] = []

    @property
    def killed(self) -> int:
        return sum(each.runner.killed for each in self._activities)

    async def open(self, stop: asyncio.Event) -> bool:
        self._running = [asyncio.ensure_future(each.run()) for each in self._workers]
        for worker, running in zip(self._workers, self._running, strict=True):
            while not worker.is_running and not running.done():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(_TURN_S)  # a worker that has not begun cannot be shut down
        return not stop.is_set()

    async def serve(self, stop: asyncio.Event) -> None:
        stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait({stopping, *self._running}, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if each is not stopping:
                    each.result()
        finally:
            stopping.cancel()

    async def adjust(self, options: WorkerOptions) -> None:
        raise not_here("changing a running worker", "restart it with the new profile")

    async def close(self) -> None:
        """Shut down: temporalio gives running activities the grace period, then cancels them."""
        for activities in self._activities:
            activities.runner.shut_down()
        try:
            for worker, running in zip(self._workers, self._running, strict=True):
                if worker.is_running:
                    await worker.shutdown()
                else:
                    running.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
        finally:
            for activities in self._activities:
                await activities.runner.close()

    def _activities_of(self, queue: str) -> TemporalActivities:
        spec = self._spec
        where = WorkerIdentity(spec.namespace, queue, spec.identity)
        return TemporalActivities(
            list(spec.registry.activities.values()),
            spec.converter,
            where,
            _runner_options(spec),
            runs_local=spec.options.max_concurrent_local_activities > 0,
        )

    def _worker(self, queue: str, activities: TemporalActivities) -> Worker:
        spec, options = self._spec, self._spec.options
        settings = RunSettings(spec.converter, spec.dispatch, spec.interceptors)
        definitions = list(spec.registry.workflows.values()) if options.max_concurrent_workflow_tasks else []
        runner = GuardedRunner(definitions)
        return Worker(
            self._client,
            task_queue=queue,
            workflows=[temporal_class(each, settings) for each in definitions],
            activities=activities.functions,
            workflow_runner=runner,
            unsandboxed_workflow_runner=runner,
            identity=spec.identity,
            build_id=spec.build_id or spec.identity,
            debug_mode=options.debug_mode,
            **worker_arguments(options, spec.dispatch(), queue),
        )


def worker_arguments(options: WorkerOptions, config: DispatchConfig | None, queue: str) -> dict[str, Any]:
    """Return the arguments of `temporalio.worker.Worker` for the options of a worker.

    Args:
        options: the options.
        config: the dispatch configuration; it has the rate of the queue, unless the options have one.
        queue: the queue that the worker polls.
    """
    activities = options.max_concurrent_activity_tasks
    rate = queue_rate(options, config, queue)
    arguments: dict[str, Any] = {
        "tuner": _tuner(options),
        "workflow_task_executor": ThreadPoolExecutor(max(1, options.max_concurrent_workflow_tasks)),
        "max_cached_workflows": options.max_cached_workflows,
        "workflow_task_poller_behavior": PollerBehaviorSimpleMaximum(
            max(options.max_concurrent_workflow_task_polls, 2 if options.max_cached_workflows else 1)
        ),
        "no_remote_activities": activities == 0,
        "sticky_queue_schedule_to_start_timeout": options.sticky_queue_schedule_to_start_timeout,
        "max_heartbeat_throttle_interval": options.max_heartbeat_throttle_interval,
        "default_heartbeat_throttle_interval": options.default_heartbeat_throttle_interval,
        "graceful_shutdown_timeout": options.graceful_shutdown_timeout,
        "disable_eager_activity_execution": rate is not None or options.max_activities_per_second is not None,
    }
    if activities:
        arguments["activity_task_poller_behavior"] = PollerBehaviorSimpleMaximum(
            max(1, options.max_concurrent_activity_task_polls)
        )
        rates = {
            "max_activities_per_second": options.max_activities_per_second,
            "max_task_queue_activities_per_second": rate,
        }
        arguments |= {name: value for name, value in rates.items() if value is not None}
    return arguments


def queue_rate(options: WorkerOptions, config: DispatchConfig | None, queue: str) -> float | None:
    """Return the rate cap that this worker reports for its queue."""
    if options.max_task_queue_activities_per_second is not None or config is None:
        return options.max_task_queue_activities_per_second
    known = config.queue_options.get(queue)
    return None if known is None else known.max_task_queue_activities_per_second


def _tuner(options: WorkerOptions) -> WorkerTuner:
    """Return fixed slots. A cache needs two workflow task slots: one of them serves the sticky queue.

    Local activities of a worker without slots for them fail; they need one slot for that.
    """
    least = 2 if options.max_cached_workflows else 1
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(max(options.max_concurrent_workflow_tasks, least)),
        activity_supplier=FixedSizeSlotSupplier(options.max_concurrent_activity_tasks),
        local_activity_supplier=FixedSizeSlotSupplier(max(1, options.max_concurrent_local_activities)),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )


def _runner_options(spec: WorkerSpec) -> Mapping[str, Any]:
    """Return the options of our `ActivityRunner`. Processes, threads and automatic heartbeats are the worker's own."""
    options = spec.options
    return {
        "executor": spec.executor,
        "thread_slots": options.max_threads,
        "process_slots": options.process_slots or max(1, options.max_concurrent_activity_tasks),
        "process_start_method": options.process_start_method,
        "process_recycle_after": options.process_recycle_after,
        "default_heartbeat_throttle_interval": options.default_heartbeat_throttle_interval,
        "max_heartbeat_throttle_interval": options.max_heartbeat_throttle_interval,
        "auto_heartbeat": options.auto_heartbeat,
        "cancel_grace": timedelta(seconds=10),
        "interceptors": spec.interceptors,
    }


def check_options(spec: WorkerSpec) -> None:
    """Refuse options of a worker that Temporal has nothing for."""
    options = spec.options
    if not options.claiming.is_plain:
        raise not_here("claiming: batches and prefetch of tasks", "Temporal hands out one task for each poll")
    if options.all_in_processes:
        raise not_here("all_in_processes", "mark the activities with runs_in='process'")
    if spec.has_metrics:
        raise not_here("metrics of a worker", "temporalio has metrics of its own: set its Runtime")
    if options.process_recycle_over_bytes is not None:
        raise not_here("process_recycle_over_bytes")
    if options.report_source_lines:
        raise not_here("report_source_lines", "they are for the dashboard of our server")
    if len(spec.task_queues) > 1:
        raise not_here(
            "a worker of several task queues that share their slots", "run one worker for each queue"
        )


def approximated_options(spec: WorkerSpec) -> Iterator[str]:
    """Yield what becomes of options that Temporal enforces in another way. Those of a dispatch file are told by it."""
    if spec.dispatch() is not None:
        return
    options = spec.options
    if options.task_timeout != WorkerOptions().task_timeout and not options.debug_mode:
        yield "task_timeout is approximated on Temporal: code that blocks for 2 s fails its workflow task"
    if options.queue_rate_burst_seconds is not None:
        yield "queue_rate_burst_seconds is approximated on Temporal: the burst is that of its own rate limiter"
