"""Reading runs: descriptions, histories and results, with long polls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.core import json_text
from penstock.core.audit.trail import DerivedEvent, OperatorCommand, RequestEvent
from penstock.core.history.events import CLOSING
from penstock.core.messaging.contracts import MessageContracts
from penstock.core.model import (
    Activity,
    ActivityId,
    Instance,
    RecordedEvent,
    Run,
    RunHost,
    RunId,
    RunStatus,
    Task,
    TaskKind,
    TaskState,
    Update,
    task_id,
)
from penstock.engine.context import EngineContext
from penstock.engine.long_poll import wait_until
from penstock.engine.runs import operator_commands
from penstock.engine.runs.address import no_instance, no_run
from penstock.engine.runs.idempotency import contracts_of
from penstock.engine.runs.workflow_ids import newest_of_chain
from penstock.engine.visibility import audit_trail
from penstock.errors import NotFound, Reason
from penstock.ports.gather import gather
from penstock.ports.store import Tx
from penstock.ports.tables.runs import RunFilter
from penstock.ports.tables.visibility import PageStart
from penstock.ports.wakeups import end_topic, run_topic

UPDATES_SHOWN = 50
REQUESTS_SHOWN = 50
REQUESTS_AMONG = 1_000
"""How many of the last events are searched for requests."""
OPEN_ACTIVITIES_SHOWN = 25
OPEN_ACTIVITIES_READ_MAX = 500


class RunDescription(Struct, frozen=True):
    """A run, its position among the runs of its workflow id, and its live workflow task."""

    run: Run
    run_count: int
    is_current: bool
    live: Task | None = None
    activities: Sequence[Activity] = ()
    """The first of its open activities."""
    updates: Sequence[Update] = ()
    """Its latest updates, the newest first."""
    requests: Sequence[RequestEvent] = ()
    """The latest requests of callers, the newest first."""
    operator_commands: Sequence[OperatorCommand] = ()

    @property
    def status(self) -> str:
        leased = self.live is not None and self.live.state is TaskState.LEASED
        return "running" if leased and self.run.is_open else self.run.status.value


async def describe(
    ctx: EngineContext,
    namespace: str,
    workflow_id: str,
    run_id: str | None = None,
    host: RunHost = RunHost.WORKFLOW,
    chain: RunId | None = None,
) -> RunDescription:
    """The current run of a workflow id, or of one of its chains, or a named run."""

    async def operation(tx: Tx) -> RunDescription:
        instance, run = await find_run(tx, namespace, workflow_id, run_id, host, chain)
        (live, activities, updates), (requests, commands) = await gather(
            gather(_live_task(tx, run), _open_activities(tx, run), _latest_updates(tx, run)),
            gather(
                tx.histories.requests(run.run_id, run.last_sequence - REQUESTS_AMONG, REQUESTS_SHOWN),
                operator_commands.commands_of(tx, run),
            ),
        )
        is_current = run.run_id == instance.run_id
        return RunDescription(
            run, instance.run_count, is_current, live, activities, updates, requests, commands
        )

    return await ctx.store.read(operation)


async def _live_task(tx: Tx, run: Run) -> Task | None:
    """The run's workflow task, if it has one that has not ended."""
    if not run.is_open or not run.last_task:
        return None
    newest = await tx.tasks.get(task_id(run.run_id, run.last_task))
    return newest if newest is not None and newest.kind is TaskKind.WORKFLOW and newest.is_live else None


async def _latest_updates(tx: Tx, run: Run) -> Sequence[Update]:
    return await tx.updates.latest(run.run_id, UPDATES_SHOWN) if run.last_request else ()


async def _open_activities(tx: Tx, run: Run) -> Sequence[Activity]:
    """The first open activities of a run; none if there are more than `OPEN_ACTIVITIES_READ_MAX`."""
    if (
        run.host is not RunHost.WORKFLOW
        or not run.is_open
        or not 0 < run.open_activities <= OPEN_ACTIVITIES_READ_MAX
    ):
        return ()
    return [*await tx.activities.open_of(run.run_id)][:OPEN_ACTIVITIES_SHOWN]


class RunsPage(Struct, frozen=True):
    """Some runs of a workflow id."""

    runs: Sequence[Run]
    run_count: int
    """How many runs the id has had, including deleted ones."""
    current_run_id: RunId


async def runs_of(
    ctx: EngineContext, namespace: str, workflow_id: str, after: PageStart | None, limit: int
) -> RunsPage:
    """The runs of a workflow, the oldest first."""

    async def operation(tx: Tx) -> RunsPage:
        instance = await tx.runs.instance(namespace, workflow_id)
        if instance is None:
            raise no_instance(workflow_id)
        runs = await tx.runs.of_instance(namespace, workflow_id, after, limit)
        return RunsPage(runs, instance.run_count, instance.run_id)

    return await ctx.store.read(operation, long=True)


class HistoryPage(Struct, frozen=True):
    """Some events of a run."""

    run: Run
    events: Sequence[RecordedEvent]
    more: bool
    derived: Sequence[DerivedEvent] = ()
    """What follows from the events: see `core.audit.trail`."""
    declared: MessageContracts | None = None
    """What the registered workers declare for the run's type, if the page begins with its start."""


async def history(
    ctx: EngineContext,
    namespace: str,
    workflow_id: str,
    run_id: str,
    after: int,
    limit: int,
    wait_ms: int = 0,
    draining: asyncio.Event | None = None,
    *,
    audit: bool = False,
) -> HistoryPage:
    """Events after a sequence number; with `wait_ms`, waits for the first one or the end of the run.

    With `audit` also the events that follow from them.
    """

    async def operation(tx: Tx) -> HistoryPage:
        run = await tx.runs.get(RunId(run_id))
        if run is None or run.workflow_id != workflow_id or run.namespace != namespace:
            raise no_run(workflow_id, run_id)
        events = await tx.histories.page(run.run_id, after, limit)
        more = bool(events) and events[-1].sequence < run.last_sequence
        if not audit:
            return HistoryPage(run, events, more)
        declared = await contracts_of(ctx, tx, run) if after == 0 else None
        return HistoryPage(run, events, more, await audit_trail.of_page(tx, run, events), declared)

    if wait_ms <= 0:
        return await ctx.store.read(operation, long=True)

    async def check() -> tuple[HistoryPage, bool]:
        found = await ctx.store.read(operation)
        return found, bool(found.events) or not found.run.is_open

    found, _ = await wait_until(ctx, run_topic(run_id), check, wait_ms, draining or asyncio.Event())
    return found


async def history_back(
    ctx: EngineContext,
    namespace: str,
    workflow_id: str,
    run_id: str,
    before: int | None,
    limit: int,
    *,
    audit: bool = False,
) -> HistoryPage:
    """Events before a sequence number, or the last ones, newest first; with `audit` also what follows from them."""

    async def operation(tx: Tx) -> HistoryPage:
        run = await tx.runs.get(RunId(run_id))
        if run is None or run.workflow_id != workflow_id or run.namespace != namespace:
            raise no_run(workflow_id, run_id)
        upto = run.last_sequence + 1 if before is None else before
        events = await tx.histories.page_back(run.run_id, upto, limit)
        more = bool(events) and events[-1].sequence > 1
        derived = await audit_trail.of_page(tx, run, events[::-1]) if audit else ()
        return HistoryPage(run, events, more, derived)

    return await ctx.store.read(operation, long=True)


class RunResult(Struct, frozen=True):
    """A run, and the payload of its closing event if it failed."""

    run: Run
    failure: dict[str, Any] | None = None


async def result(
    ctx: EngineContext,
    namespace: str,
    workflow_id: str,
    run_id: str | None,
    wait_ms: int,
    draining: asyncio.Event,
    host: RunHost = RunHost.WORKFLOW,
    chain: RunId | None = None,
) -> RunResult:
    """The result of a workflow or standalone activity, waiting up to `wait_ms` for it to close.

    Follows continue-as-new to the last run unless `run_id` is given; `chain` excludes runs of other starts.
    """

    async def operation(tx: Tx) -> tuple[RunResult, bool]:
        _, run = await find_run(tx, namespace, workflow_id, run_id, host, chain)
        if run.is_open or run.status is RunStatus.COMPLETED:
            return RunResult(run), not run.is_open
        return RunResult(run, _closing_payload(await tx.histories.last_of_type(run.run_id, CLOSING))), True

    async def check() -> tuple[RunResult, bool]:
        return await ctx.store.read(operation)

    found, _ = await wait_until(ctx, end_topic(namespace, workflow_id), check, wait_ms, draining)
    return found


async def find_run(
    tx: Tx, namespace: str, workflow_id: str, run_id: str | None, host: RunHost, chain: RunId | None = None
) -> tuple[Instance, Run]:
    """The named run, the newest of a chain, or the newest of the workflow id."""
    if chain is not None:
        last = await newest_of_chain(tx, namespace, workflow_id, chain)
        if last is None:
            raise no_run(workflow_id, chain)
        run_id = last.run_id
    found = await tx.runs.named(namespace, workflow_id, None if run_id is None else RunId(run_id))
    if found is None:
        raise _no_instance(workflow_id, host)
    instance, run = found
    if run is None or run.workflow_id != workflow_id or run.namespace != namespace:
        raise no_run(workflow_id, run_id or instance.run_id)
    if run.host is not host:
        raise _no_instance(workflow_id, host)
    return instance, run


async def task_history(ctx: EngineContext, run_id: RunId, after: int, limit: int) -> HistoryPage:
    """Another page for the worker that holds the run's workflow task; the history cannot grow meanwhile."""

    async def operation(tx: Tx) -> HistoryPage:
        run = await tx.runs.get(run_id)
        assert run is not None
        events = await tx.histories.page(run_id, after, limit)
        return HistoryPage(run, events, bool(events) and events[-1].sequence < run.last_sequence)

    return await ctx.store.read(operation, long=True)


class StandaloneView(Struct, frozen=True):
    """A standalone activity and its host run."""

    run: Run
    activity: Activity
    failure: dict[str, Any] | None = None
    """The payload of its closing event if it failed; read only where one activity is described."""


async def describe_activity(
    ctx: EngineContext, namespace: str, activity_id: str, run_id: str | None = None
) -> StandaloneView:
    """A standalone activity: the newest with its id, or that of the named run."""

    async def operation(tx: Tx) -> StandaloneView:
        _, run = await find_run(tx, namespace, activity_id, run_id, RunHost.ACTIVITY)
        activity = await tx.activities.get(ActivityId(f"{run.run_id}-a1"))
        assert activity is not None
        failure = None
        if not run.is_open and run.status is not RunStatus.COMPLETED:
            failure = _closing_payload(await tx.histories.last_of_type(run.run_id, CLOSING))
        return StandaloneView(run, activity, failure)

    return await ctx.store.read(operation)


async def page_activities(
    ctx: EngineContext, narrow: RunFilter, after: PageStart | None, limit: int
) -> Sequence[StandaloneView]:
    async def operation(tx: Tx) -> Sequence[StandaloneView]:
        runs = await tx.runs.page(narrow, after, limit)
        found = await tx.activities.get_many([ActivityId(f"{run.run_id}-a1") for run in runs])
        return [
            StandaloneView(run, activity)
            for run, activity in zip(runs, found, strict=True)
            if activity is not None
        ]

    return await ctx.store.read(operation, long=True)


def _closing_payload(event: RecordedEvent | None) -> dict[str, Any] | None:
    return None if event is None else {"event_type": event.type} | json_text.read(event.payload)


def _no_instance(workflow_id: str, host: RunHost) -> NotFound:
    if host is RunHost.WORKFLOW:
        return no_instance(workflow_id)
    return NotFound(
        Reason.ACTIVITY_NOT_FOUND, f"There is no activity {workflow_id!r}.", activity_id=workflow_id
    )
