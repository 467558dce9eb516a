"""A worker at work: its parts put together, from the registration to the leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.sdk.activities.info import WorkerFacts
from penstock.sdk.activities.processes import all_in_processes
from penstock.sdk.activities.runner import ActivityRunner
from penstock.sdk.client import Client
from penstock.sdk.dispatching import InForce, no_configuration
from penstock.sdk.lease import lease_of
from penstock.sdk.replay.instance import WorkflowRun
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.activity_tasks import ActivityTasks
from penstock.sdk.worker.ahead import Ahead, Claimed, Dealings
from penstock.sdk.worker.beginning import beginning
from penstock.sdk.worker.cache import RunCache
from penstock.sdk.worker.crew import Crew
from penstock.sdk.worker.introduction import conveyed, introduction
from penstock.sdk.worker.leases import SHORT_LEASE_MS, Dropped
from penstock.sdk.worker.local_activities import LocalActivities
from penstock.sdk.worker.metrics import WorkerMetrics
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.plane import HISTORY_PAGE, TASK_KINDS, Plane
from penstock.sdk.worker.polling import Poller, Surroundings
from penstock.sdk.worker.questions import Questions
from penstock.sdk.worker.registration import Presence
from penstock.sdk.worker.registry import Registry
from penstock.sdk.worker.reports import Reports
from penstock.sdk.worker.room import Room
from penstock.sdk.worker.rounds import Line, Rounds
from penstock.sdk.worker.slots import Slots
from penstock.sdk.worker.trouble import Trouble
from penstock.sdk.worker.workflow_tasks import WorkflowTasks

Json = dict[str, Any]
QUERY_SLOTS = 10
WORKFLOW_BATCH_MAX = 50
"""Histories travel with workflow tasks: fewer in one answer."""
ACTIVITY_BATCH_MAX = 100
LAST_REPORTS_SECONDS = 10.0
"""How long the reports of what was ended may take."""


class Service:
    """Everything that a running worker consists of."""

    def __init__(
        self,
        client: Client,
        registry: Registry,
        options: WorkerOptions,
        *,
        task_queue: str,
        worker_id: str,
        build_id: str | None,
        executor: ThreadPoolExecutor | None,
        interceptors: Sequence[Any],
        metrics: WorkerMetrics,
        dispatch: InForce = no_configuration,
        room: Room | None = None,
        rank: int = 0,
    ) -> None:
        self._registry, self._options, self._metrics = registry, options, metrics
        self._dispatch = dispatch
        converter = client.data_converter
        self._has_codecs = bool(converter.codecs)
        self._trouble = Trouble(f"Worker {worker_id} on {task_queue}")
        dropped = self._dropped = Dropped(f"Worker {worker_id} on {task_queue}", metrics)
        self._plane = plane = Plane(client.transport, worker_id, task_queue, build_id)
        self._workflow_slots = Slots(options.max_concurrent_workflow_tasks if registry.workflows else 0)
        self._room = room or Room(options, converter, runs_activities=bool(registry.activities))
        self._activity_slots = self._room.slots
        self._query_slots = Slots(QUERY_SLOTS if registry.workflows else 0)
        self._reports = {
            kind: Reports(kind, plane, metrics, with_tracebacks=options.report_tracebacks)
            for kind in ("workflow", "activity")
        }
        definitions = list(registry.activities.values())
        self._runner = ActivityRunner(
            all_in_processes(definitions) if options.all_in_processes else definitions,
            converter,
            heartbeat=plane.beat,
            worker=WorkerFacts(client.namespace, task_queue, worker_id),
            executor=executor,
            thread_slots=options.threads_most,
            default_heartbeat_throttle_interval=options.default_heartbeat_throttle_interval,
            max_heartbeat_throttle_interval=options.max_heartbeat_throttle_interval,
            auto_heartbeat=options.auto_heartbeat,
            processes=self._room.processes,
            interceptors=interceptors,
            clock=getattr(client.transport, "clock", None),
        )
        self._cache: RunCache[WorkflowRun] = RunCache(options.max_cached_workflows, WorkflowRun.close)
        begin = beginning(registry, options, converter, client.namespace, interceptors, dispatch)
        self._local_slots = Slots(options.max_concurrent_local_activities)
        local = LocalActivities(self._runner, self._local_slots, client.namespace)
        self._workflows = WorkflowTasks(
            plane,
            self._reports["workflow"],
            self._cache,
            begin,
            local,
            metrics,
            options.sticky_queue_schedule_to_start_timeout,
            self._hands_back,
            dropped,
        )
        self._questions = Questions(
            plane, self._cache, begin, dropped, with_tracebacks=options.report_tracebacks
        )
        if options.all_in_processes and self._runner.is_all_in_processes:
            plane.lease_ms = SHORT_LEASE_MS
        self._activities = ActivityTasks(
            plane, self._reports["activity"], self._runner, self._hands_back, dropped
        )
        self._crews = {
            "workflow": Crew("workflow", self._workflow_slots, self._workflow_task, metrics),
            "activity": Crew("activity", self._activity_slots, self._activity_task, metrics),
            "query": Crew("query", self._query_slots, self._questions.query, metrics),
        }
        around = Surroundings(self._register, self._trouble, metrics)
        self._line = Line(task_queue, self._ask, self._start_activity, self._activities.hand_back, around)
        if self._room.ahead is not None:
            self._line.room = partial(self._room.ahead.room, task_queue)
        self._room.join(self._line, self._crews["activity"])
        self._dealings = Dealings(task_queue, rank, plane.start, plane.keep)
        self._presence = Presence(
            plane,
            self._introduction,
            self._free_slots,
            self._trouble,
            silent_kinds=tuple(
                kind
                for kind, slots in (("workflow", self._workflow_slots), ("activity", self._activity_slots))
                if not slots.total
            ),
            repeated=self._conveyed,
        )
        self._keeping: asyncio.Task[None] | None = None
        self._registered = False

    def _introduction(self) -> Json:
        return introduction(
            self._plane,
            self._registry,
            self._options,
            activity_places=self._room.places,
            has_codecs=self._has_codecs,
        )

    def _conveyed(self) -> Json:
        return conveyed(self._options, self._dispatch(), self._plane.task_queue)

    def adjust(self, options: WorkerOptions) -> None:
        """Go by other numbers. The room, which is for all queues, is resized by whoever has it."""
        self._options = options
        self._runner.resize(options.threads_most)
        self._local_slots.resize(options.max_concurrent_local_activities)
        if self._registry.workflows:
            self._workflow_slots.resize(options.max_concurrent_workflow_tasks)

    async def tell(self, options: WorkerOptions, activity_places: int) -> None:
        """Have the server know what this worker takes from now on."""
        if self._registered:
            await self._presence.tell(
                workflow=options.max_concurrent_workflow_tasks, activity=activity_places
            )

    async def introduce_again(self) -> None:
        """A registration says the worker's own rate, a heartbeat does not."""
        if self._registered:
            await self._presence.register()

    async def _workflow_task(self, task: Json) -> str:
        if task.get("task_kind") == "update_validation":
            return await self._questions.validate(task)
        return await self._workflows.handle(task)

    @property
    def killed(self) -> int:
        """Processes that were ended by force when the worker ended."""
        return self._runner.killed

    async def _register(self) -> None:
        await self._presence.register()

    async def _claimed(self, task: Json, ahead: Ahead) -> str:
        """A task that was claimed ahead: it runs when it has its place and its permit."""
        match await ahead.take(task, self._dealings):
            case Claimed.LOST:
                return self._dropped.note("activity", began=False) if lease_of(task).is_over else "lost"
            case Claimed.HAND_BACK:
                return await self._activities.hand_back(task)
            case Claimed.STARTED:
                try:
                    return await self._activities.handle(task)
                finally:
                    ahead.leave(self._dealings.queue)

    def _start_activity(self, task: Json) -> None:
        if self._room.ahead is not None:
            self._room.ahead.expect(self._dealings.queue)
        self._crews["activity"].start(task)

    async def _activity_task(self, task: Json) -> str:
        try:
            if self._room.ahead is not None:
                return await self._claimed(task, self._room.ahead)
            return await self._activities.handle(task)
        finally:
            self._metrics.level(names.STUCK_ACTIVITIES, self._runner.stuck)

    def _hands_back(self) -> bool:
        """Whether the server takes tasks back one by one."""
        batches = self._presence.server_capabilities.get("task_batches")
        return isinstance(batches, dict) and batches.get("hand_back") is True

    async def open(self, stop: asyncio.Event) -> bool:
        """Register; False when the worker is to stop before a server was there."""
        registering = asyncio.ensure_future(self._presence.register())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({registering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not registering.done():
                return False
            registering.result()
        finally:
            await _end(registering, stopping)
        self._registered = True
        if self._options.all_in_processes and self._room.places:
            self._room.processes.prepare(self._runner.targets)
        self._keeping = asyncio.ensure_future(self._presence.keep())
        return True

    async def serve(self, stop: asyncio.Event) -> None:
        """Poll until told to stop. What the server refuses for good is raised."""
        if not self._registered:
            return
        assert self._keeping is not None
        polling = [asyncio.ensure_future(poller.run()) for poller in self._pollers()]
        stopping = asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait(
                {*polling, self._keeping, stopping}, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                if each is not stopping:
                    _raise_first(each)
        finally:
            await _end(stopping, *polling)

    async def close(self) -> None:
        """Let what runs end, as long as it may; end the rest, report it, and leave."""
        grace = self._options.graceful_shutdown_timeout
        if self._room.ahead is not None:
            self._room.ahead.close()
        self._runner.shut_down()
        try:
            await asyncio.gather(
                self._runner.close(grace), self._crews["workflow"].finish(grace.total_seconds())
            )
            await asyncio.gather(*(crew.finish(LAST_REPORTS_SECONDS) for crew in self._crews.values()))
        finally:
            await self._leave()

    async def _leave(self) -> None:
        for crew in self._crews.values():
            await crew.abandon()
        if self._keeping is not None:
            await _end(self._keeping)
        if self._registered:
            self._registered = False
            await self._presence.leave()
        self._cache.clear()

    def _pollers(self) -> list[Poller | Rounds]:
        options = self._options
        around = Surroundings(self._presence.register, self._trouble, self._metrics)
        pollers: list[Poller | Rounds] = [
            Poller(
                "workflow",
                self._poll_workflows,
                self._crews["workflow"].start,
                self._workflow_slots,
                around,
                polls=options.max_concurrent_workflow_task_polls,
                batch_max=WORKFLOW_BATCH_MAX,
            ),
            Poller(
                "query",
                lambda _, poll_id: self._plane.poll_query(poll_id),
                self._crews["query"].start,
                self._query_slots,
                around,
                polls=1,
                batch_max=1,
            ),
        ]
        pollers += self._activity_pollers(around)
        return [poller for poller in pollers if poller.has_room]

    def _activity_pollers(self, around: Surroundings) -> list[Poller | Rounds]:
        """Polls of this queue for itself, or those of all queues that share the room."""
        if self._room.goes_round:
            rounds = self._room.rounds(self._line)
            return [] if rounds is None else [rounds]
        own = Poller(
            "activity",
            self._poll_activities,
            self._crews["activity"].start,
            self._activity_slots,
            around,
            polls=self._options.max_concurrent_activity_task_polls,
            batch_max=ACTIVITY_BATCH_MAX,
            pace=self._room.pace,
            hand_back=self._activities.hand_back if self._hands_back() else None,
        )
        return [own]

    async def _ask(self, tasks_max: int, poll_id: str, *, waits: bool) -> list[Json]:
        """A poll of a round, which may claim ahead and may not wait."""
        said = self._conveyed()
        if self._room.ahead is not None:
            await self._room.ahead.open.wait()
            said |= {"claim_lease_ms": self._options.claiming.lease_ms}
        if not waits:
            said |= {"timeout_seconds": 0}
        return await self._plane.poll("activity", tasks_max, poll_id, **said)

    async def _poll_workflows(self, tasks_max: int, poll_id: str) -> list[Json]:
        kinds = {"task_kinds": TASK_KINDS} if self._registry.validates else {}
        return await self._plane.poll("workflow", tasks_max, poll_id, history_page_size=HISTORY_PAGE, **kinds)

    async def _poll_activities(self, tasks_max: int, poll_id: str) -> list[Json]:
        return await self._plane.poll("activity", tasks_max, poll_id, **self._conveyed())

    def _free_slots(self) -> Json:
        self._metrics.level(names.STUCK_ACTIVITIES, self._runner.stuck)
        return {
            "workflow_available": max(0, self._workflow_slots.total - len(self._crews["workflow"])),
            "activity_available": self._room.available,
        }


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel and wait until they are over, whatever they say. Who waits here can be cancelled, too."""
    for each in tasks:
        each.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks)
        for each in done:
            if not each.cancelled():
                each.exception()


def _raise_first(task: asyncio.Task[Any]) -> None:
    """Raise what ended a task; of many that ended together, the first."""
    error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
