"""Everything that serves one task queue, from registration to deregistration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.sdk.activities.execution.runner import ActivityRunner
from penstock.sdk.activities.info import WorkerIdentity
from penstock.sdk.activities.process_pool.pool import all_in_processes
from penstock.sdk.clients.client import Client
from penstock.sdk.dispatch_options import ConfigGetter, no_configuration
from penstock.sdk.lease import lease_of
from penstock.sdk.replay.instance import WorkflowRun
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import ErrorPolicy
from penstock.sdk.worker.execution.activity_tasks import ActivityTasks
from penstock.sdk.worker.execution.local_activities import LocalActivities
from penstock.sdk.worker.execution.report_batcher import ReportBatcher
from penstock.sdk.worker.execution.run_cache import RunCache
from penstock.sdk.worker.execution.run_factory import run_factory
from penstock.sdk.worker.execution.task_runner import TaskRunner
from penstock.sdk.worker.execution.workflow_queries import WorkflowQueries
from penstock.sdk.worker.execution.workflow_tasks import WorkflowTasks
from penstock.sdk.worker.lease_renewal import SHORT_LEASE_MS, DroppedTasks
from penstock.sdk.worker.lifecycle.registration import WorkerRegistration
from penstock.sdk.worker.lifecycle.registration_body import registration_body, reported_rates
from penstock.sdk.worker.matching.poller import PollContext, Poller
from penstock.sdk.worker.matching.prefetcher import ClaimOutcome, Prefetcher, QueueOps
from penstock.sdk.worker.matching.round_robin_poller import PolledQueue, RoundRobinPoller
from penstock.sdk.worker.matching.slot_pool import SlotPool
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.metrics import WorkerMetrics
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.registry import WorkerRegistry
from penstock.sdk.worker.worker_api import HISTORY_PAGE, TASK_KINDS, WorkerApi

Json = dict[str, Any]
QUERY_SLOTS = 10
WORKFLOW_BATCH_MAX = 50
"""Responses contain histories, so batches of workflow tasks are smaller."""
ACTIVITY_BATCH_MAX = 100
LAST_REPORTS_SECONDS = 10.0
"""How long the final reports of cancelled tasks may take."""


class QueueService:
    """The parts of a running worker for one task queue."""

    def __init__(
        self,
        client: Client,
        registry: WorkerRegistry,
        options: WorkerOptions,
        *,
        task_queue: str,
        worker_id: str,
        build_id: str | None,
        executor: ThreadPoolExecutor | None,
        interceptors: Sequence[Any],
        metrics: WorkerMetrics,
        dispatch: ConfigGetter = no_configuration,
        slot_pool: SlotPool | None = None,
        rank: int = 0,
    ) -> None:
        self._registry, self._options, self._metrics = registry, options, metrics
        self._dispatch = dispatch
        converter = client.data_converter
        self._has_codecs = bool(converter.codecs)
        self._error_policy = ErrorPolicy(f"Worker {worker_id} on {task_queue}")
        dropped = self._dropped = DroppedTasks(f"Worker {worker_id} on {task_queue}", metrics)
        self._api = api = WorkerApi(client.transport, worker_id, task_queue, build_id)
        self._workflow_slots = Slots(options.max_concurrent_workflow_tasks if registry.workflows else 0)
        self._slot_pool = slot_pool or SlotPool(options, converter, runs_activities=bool(registry.activities))
        self._activity_slots = self._slot_pool.slots
        self._query_slots = Slots(QUERY_SLOTS if registry.workflows else 0)
        self._reports = {
            kind: ReportBatcher(
                kind,
                api,
                metrics,
                with_tracebacks=options.report_tracebacks,
                sends_source_lines=self._sends_source_lines,
            )
            for kind in ("workflow", "activity")
        }
        definitions = list(registry.activities.values())
        self._runner = ActivityRunner(
            all_in_processes(definitions) if options.all_in_processes else definitions,
            converter,
            heartbeat=api.activity_heartbeat,
            worker=WorkerIdentity(client.namespace, task_queue, worker_id),
            executor=executor,
            thread_slots=options.max_threads,
            default_heartbeat_throttle_interval=options.default_heartbeat_throttle_interval,
            max_heartbeat_throttle_interval=options.max_heartbeat_throttle_interval,
            auto_heartbeat=options.auto_heartbeat,
            processes=self._slot_pool.processes,
            interceptors=interceptors,
            clock=getattr(client.transport, "clock", None),
            client=client,
        )
        self._cache: RunCache[WorkflowRun] = RunCache(options.max_cached_workflows, WorkflowRun.close)
        begin = run_factory(registry, options, converter, client.namespace, interceptors, dispatch)
        self._local_slots = Slots(options.max_concurrent_local_activities)
        local = LocalActivities(self._runner, self._local_slots, client.namespace)
        self._workflows = WorkflowTasks(
            api,
            self._reports["workflow"],
            self._cache,
            begin,
            local,
            metrics,
            options.sticky_queue_schedule_to_start_timeout,
            self._hands_back,
            dropped,
        )
        self._queries = WorkflowQueries(
            api, self._cache, begin, dropped, with_tracebacks=options.report_tracebacks
        )
        if options.all_in_processes and self._runner.is_all_in_processes:
            api.lease_ms = SHORT_LEASE_MS
        self._activities = ActivityTasks(
            api, self._reports["activity"], self._runner, self._hands_back, dropped
        )
        self._task_runners = {
            "workflow": TaskRunner("workflow", self._workflow_slots, self._workflow_task, metrics),
            "activity": TaskRunner("activity", self._activity_slots, self._activity_task, metrics),
            "query": TaskRunner("query", self._query_slots, self._queries.query, metrics),
        }
        poll_context = PollContext(self._register, self._error_policy, metrics)
        self._polled_queue = PolledQueue(
            task_queue, self._poll_round, self._start_activity, self._activities.hand_back, poll_context
        )
        if self._slot_pool.prefetcher is not None:
            self._polled_queue.capacity = partial(self._slot_pool.prefetcher.capacity, task_queue)
        self._slot_pool.join(self._polled_queue, self._task_runners["activity"])
        self._queue_ops = QueueOps(task_queue, rank, api.start, api.renew_activity)
        self._registration = WorkerRegistration(
            api,
            self._registration_body,
            self._free_slots,
            self._error_policy,
            unused_kinds=tuple(
                kind
                for kind, slots in (("workflow", self._workflow_slots), ("activity", self._activity_slots))
                if not slots.total
            ),
            reported_rates=self._reported_rates,
        )
        self._heartbeats: asyncio.Task[None] | None = None
        self._registered = False

    def _registration_body(self) -> Json:
        return registration_body(
            self._api,
            self._registry,
            self._options,
            activity_slots=self._slot_pool.activity_slots,
            has_codecs=self._has_codecs,
        )

    def _reported_rates(self) -> Json:
        return reported_rates(self._options, self._dispatch(), self._api.task_queue)

    def adjust(self, options: WorkerOptions) -> None:
        """Apply new options. The shared slot pool is resized by its owner."""
        self._options = options
        self._runner.resize(options.max_threads)
        self._local_slots.resize(options.max_concurrent_local_activities)
        if self._registry.workflows:
            self._workflow_slots.resize(options.max_concurrent_workflow_tasks)

    async def report_slots(self, options: WorkerOptions, activity_slots: int) -> None:
        """Report the new numbers of slots to the server."""
        if self._registered:
            await self._registration.report_slots(
                workflow=options.max_concurrent_workflow_tasks, activity=activity_slots
            )

    async def register_again(self) -> None:
        """Register again to report the worker's own rate, which heartbeats do not carry."""
        if self._registered:
            await self._registration.register()

    async def _workflow_task(self, task: Json) -> str:
        if task.get("task_kind") == "update_validation":
            return await self._queries.validate(task)
        return await self._workflows.handle(task)

    def _sends_source_lines(self) -> bool:
        wanted = self._options.report_source_lines
        return self._registration.asks_source_lines if wanted is None else wanted

    @property
    def killed(self) -> int:
        """Number of processes that were killed during shutdown."""
        return self._runner.killed

    async def _register(self) -> None:
        await self._registration.register()

    async def _run_prefetched(self, task: Json, prefetcher: Prefetcher) -> str:
        """Run a prefetched task once it has a slot and a permit."""
        match await prefetcher.take(task, self._queue_ops):
            case ClaimOutcome.LOST:
                return self._dropped.note("activity", began=False) if lease_of(task).is_over else "lost"
            case ClaimOutcome.HAND_BACK:
                return await self._activities.hand_back(task)
            case ClaimOutcome.STARTED:
                try:
                    return await self._activities.handle(task)
                finally:
                    prefetcher.leave(self._queue_ops.queue)

    def _start_activity(self, task: Json) -> None:
        if self._slot_pool.prefetcher is not None:
            self._slot_pool.prefetcher.expect(self._queue_ops.queue)
        self._task_runners["activity"].start(task)

    async def _activity_task(self, task: Json) -> str:
        try:
            if self._slot_pool.prefetcher is not None:
                return await self._run_prefetched(task, self._slot_pool.prefetcher)
            return await self._activities.handle(task)
        finally:
            self._metrics.level(names.STUCK_ACTIVITIES, self._runner.stuck)

    def _hands_back(self) -> bool:
        """Whether the server accepts tasks handed back one by one."""
        batches = self._registration.server_capabilities.get("task_batches")
        return isinstance(batches, dict) and batches.get("hand_back") is True

    async def open(self, stop: asyncio.Event) -> bool:
        """Register. Returns False if the worker is stopped before a server is reachable."""
        registering = asyncio.ensure_future(self._registration.register())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({registering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not registering.done():
                return False
            registering.result()
        finally:
            await _end(registering, stopping)
        self._registered = True
        if self._options.all_in_processes and self._slot_pool.activity_slots:
            self._slot_pool.processes.prepare(self._runner.targets)
        self._heartbeats = asyncio.ensure_future(self._registration.send_heartbeats())
        return True

    async def serve(self, stop: asyncio.Event) -> None:
        """Poll until stopped. Raises fatal refusals of the server."""
        if not self._registered:
            return
        assert self._heartbeats is not None
        polling = [asyncio.ensure_future(poller.run()) for poller in self._pollers()]
        stopping = asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait(
                {*polling, self._heartbeats, stopping}, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                if each is not stopping:
                    _raise_first(each)
        finally:
            await _end(stopping, *polling)

    async def close(self) -> None:
        """Let running tasks end within the grace period, cancel and report the rest, and deregister."""
        grace = self._options.graceful_shutdown_timeout
        if self._slot_pool.prefetcher is not None:
            self._slot_pool.prefetcher.close()
        self._runner.shut_down()
        try:
            await asyncio.gather(
                self._runner.close(grace), self._task_runners["workflow"].finish(grace.total_seconds())
            )
            await asyncio.gather(
                *(task_runner.finish(LAST_REPORTS_SECONDS) for task_runner in self._task_runners.values())
            )
        finally:
            await self._deregister()

    async def _deregister(self) -> None:
        for task_runner in self._task_runners.values():
            await task_runner.abandon()
        if self._heartbeats is not None:
            await _end(self._heartbeats)
        if self._registered:
            self._registered = False
            await self._registration.deregister()
        self._cache.clear()

    def _pollers(self) -> list[Poller | RoundRobinPoller]:
        options = self._options
        poll_context = PollContext(self._registration.register, self._error_policy, self._metrics)
        pollers: list[Poller | RoundRobinPoller] = [
            Poller(
                "workflow",
                self._poll_workflows,
                self._task_runners["workflow"].start,
                self._workflow_slots,
                poll_context,
                polls=options.max_concurrent_workflow_task_polls,
                batch_max=WORKFLOW_BATCH_MAX,
            ),
            Poller(
                "query",
                lambda _, poll_id: self._api.poll_query(poll_id),
                self._task_runners["query"].start,
                self._query_slots,
                poll_context,
                polls=1,
                batch_max=1,
            ),
        ]
        pollers += self._activity_pollers(poll_context)
        return [poller for poller in pollers if poller.has_slots]

    def _activity_pollers(self, poll_context: PollContext) -> list[Poller | RoundRobinPoller]:
        """Return the poller of this queue, or the shared one if this queue runs it."""
        if self._slot_pool.uses_round_robin:
            shared_poller = self._slot_pool.shared_poller(self._polled_queue)
            return [] if shared_poller is None else [shared_poller]
        own = Poller(
            "activity",
            self._poll_activities,
            self._task_runners["activity"].start,
            self._activity_slots,
            poll_context,
            polls=self._options.max_concurrent_activity_task_polls,
            batch_max=ACTIVITY_BATCH_MAX,
            rate_limiter=self._slot_pool.rate_limiter,
            hand_back=self._activities.hand_back if self._hands_back() else None,
        )
        return [own]

    async def _poll_round(self, tasks_max: int, poll_id: str, *, waits: bool) -> list[Json]:
        """Poll for the round-robin poller, which may prefetch and may not want to wait."""
        fields = self._reported_rates()
        if self._slot_pool.prefetcher is not None:
            await self._slot_pool.prefetcher.open.wait()
            fields |= {"claim_lease_ms": self._options.claiming.lease_ms}
        if not waits:
            fields |= {"timeout_seconds": 0}
        return await self._api.poll("activity", tasks_max, poll_id, **fields)

    async def _poll_workflows(self, tasks_max: int, poll_id: str) -> list[Json]:
        kinds = {"task_kinds": TASK_KINDS} if self._registry.validates else {}
        return await self._api.poll("workflow", tasks_max, poll_id, history_page_size=HISTORY_PAGE, **kinds)

    async def _poll_activities(self, tasks_max: int, poll_id: str) -> list[Json]:
        return await self._api.poll("activity", tasks_max, poll_id, **self._reported_rates())

    def _free_slots(self) -> Json:
        self._metrics.level(names.STUCK_ACTIVITIES, self._runner.stuck)
        return {
            "workflow_available": max(0, self._workflow_slots.total - len(self._task_runners["workflow"])),
            "activity_available": self._slot_pool.available,
        }


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, ignoring their errors. The wait can itself be cancelled."""
    for each in tasks:
        each.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks)
        for each in done:
            if not each.cancelled():
                each.exception()


def _raise_first(task: asyncio.Task[Any]) -> None:
    """Raise the error that ended a task; of an exception group, the first."""
    error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
