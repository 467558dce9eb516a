"""Worker registration, heartbeats and deregistration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.rate_reports import RateReport
from penstock.core.model import Cohort, TaskId, WorkerRecord, WorkerStatus
from penstock.core.operations import journal_lines
from penstock.core.scheduling.cohorts import DRAINING, status_now
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.limits.rate_reports import report_rate
from penstock.engine.matching.query_tasks import notify_pollers
from penstock.engine.workers.blocked_runs import unblock
from penstock.engine.workflows import workflow_reports
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx


class Registration(Struct, frozen=True):
    """A worker's registration request."""

    namespace: str
    worker_id: str | None
    task_queue: str
    runtime: str
    sdk_version: str | None = None
    build_id: str | None = None
    workflow_types: tuple[str, ...] = ()
    activity_types: tuple[str, ...] = ()
    fingerprints: Mapping[str, str] | None = None
    workflow_slots: int = 100
    activity_slots: int = 100
    advertised: Mapping[str, Any] | None = None
    task_slots: Mapping[str, Any] | None = None
    process_metrics: Mapping[str, Any] | None = None
    heartbeat_interval_s: int | None = None
    activities_per_second_micro: int | None = None
    """The rate it reports for its queue, in activities per million seconds; None: none."""
    activities_burst_ms: int | None = None


async def register(ctx: EngineContext, request: Registration) -> WorkerRecord:
    """Create or renew a registration. Raises `Conflict` if an active worker's workflow code would change."""
    worker = await _register(ctx, request)
    await _report_rate(ctx, worker, request.activities_per_second_micro, request.activities_burst_ms)
    return worker


async def _report_rate(
    ctx: EngineContext, worker: WorkerRecord, micro: int | None, burst_ms: int | None
) -> None:
    if micro is not None:
        report = RateReport(micro, worker.worker_id, burst_ms)
        await report_rate(ctx, worker.namespace, worker.task_queue, report)


async def _register(ctx: EngineContext, request: Registration) -> WorkerRecord:
    worker_id = request.worker_id or f"worker-{ctx.entropy.new_id()}"

    async def operation(tx: Tx) -> WorkerRecord:
        before = await tx.workers.get(request.namespace, worker_id)
        is_active = before is not None and _status_now(ctx, before, tx.now_ms) is WorkerStatus.ACTIVE
        fingerprints = _merged_fingerprints(before, request, is_active=is_active)
        cohort = await tx.cohorts.get(request.namespace, request.task_queue, request.build_id or "")
        worker = WorkerRecord(
            namespace=request.namespace,
            worker_id=worker_id,
            task_queue=request.task_queue,
            runtime=request.runtime,
            sdk_version=request.sdk_version,
            build_id=request.build_id,
            workflow_types=request.workflow_types,
            activity_types=request.activity_types,
            fingerprints=fingerprints,
            workflow_slots=request.workflow_slots,
            activity_slots=request.activity_slots,
            status=_status(cohort),
            advertised=request.advertised or {},
            task_slots=request.task_slots,
            process_metrics=request.process_metrics,
            heartbeat_interval_s=request.heartbeat_interval_s,
            registered_at_ms=before.registered_at_ms if before else tx.now_ms,
            heartbeat_at_ms=tx.now_ms,
            updated_at_ms=tx.now_ms,
            session_at_ms=_session_at_ms(before, request, tx.now_ms),
        )
        tx.workers.save(worker)
        if ctx.store.journals and not (is_active and _runs_the_same(before, worker)):
            tx.journal.append(journal_lines.worker(worker, _journal_state(worker), tx.now_ms))
        return worker

    worker = await ctx.store.transact(operation, key=f"worker:{request.namespace}:{worker_id}")
    await unblock(ctx, worker)
    return worker


def _runs_the_same(before: WorkerRecord | None, worker: WorkerRecord) -> bool:
    """Whether nothing changed that a claim looks at."""
    return before is not None and _capacity(before) == _capacity(worker)


def _capacity(worker: WorkerRecord) -> tuple[Any, ...]:
    types = worker.activity_types, worker.workflow_types, worker.build_id
    return worker.task_queue, worker.activity_slots, worker.workflow_slots, *types, worker.session_at_ms


def _journal_state(worker: WorkerRecord) -> str:
    return "draining" if worker.status is WorkerStatus.DRAINING else "registered"


def _session_at_ms(before: WorkerRecord | None, request: Registration, now_ms: int) -> int:
    """The session start: unchanged if the same process registers again, else now, with all slots free."""
    process = _process(request.process_metrics)
    same = before is not None and process is not None and process == _process(before.process_metrics)
    return before.session_at_ms if before is not None and same else now_ms


def _process(metrics: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """The identity of a process, if the worker reports all parts of it."""
    identity = tuple((metrics or {}).get(name) for name in ("host", "process_id", "process_started_at"))
    return None if None in identity else identity


def _status_now(ctx: EngineContext, worker: WorkerRecord, now_ms: int) -> WorkerStatus:
    return status_now(worker, now_ms, ctx.settings.polls.worker_stale_after_ms)


def _merged_fingerprints(
    before: WorkerRecord | None, request: Registration, *, is_active: bool
) -> dict[str, str]:
    """The workflow definitions after the registration.

    An active worker may not change them: a process polling under its id would replay with other code. A draining or
    dead worker may return with new code.
    """
    incoming = dict(request.fingerprints or {})
    if before is None:
        return incoming
    if is_active:
        for workflow_type, fingerprint in incoming.items():
            if before.fingerprints.get(workflow_type, fingerprint) != fingerprint:
                raise Conflict(
                    Reason.WORKFLOW_DEFINITION_CHANGED,
                    f"Worker {before.worker_id!r} is active with another definition of {workflow_type!r}.",
                    worker_id=before.worker_id,
                    workflow_type=workflow_type,
                    remediation="Restart the changed process with a new worker_id, or stop the other process first: "
                    "when it has deregistered, or is stale, its id may be used with new code.",
                )
    advertised = set(request.workflow_types) | set(incoming)
    kept = {name: value for name, value in before.fingerprints.items() if name in advertised}
    return kept | incoming


def _status(cohort: Cohort | None) -> WorkerStatus:
    drained = cohort is not None and cohort.drain_intent == DRAINING
    return WorkerStatus.DRAINING if drained else WorkerStatus.ACTIVE


async def heartbeat(
    ctx: EngineContext,
    namespace: str,
    worker_id: str,
    task_slots: Mapping[str, Any] | None,
    process_metrics: Mapping[str, Any] | None,
    heartbeat_interval_s: int | None,
    activities_per_second_micro: int | None = None,
    activities_burst_ms: int | None = None,
    slots: tuple[int | None, int | None] = (None, None),
) -> WorkerRecord:
    """Record a heartbeat, and what it reports of slots, process metrics and the queue's rate; None: unchanged.

    `slots` are the worker's slots for workflow and for activity tasks.
    """

    async def operation(tx: Tx) -> WorkerRecord:
        worker = await tx.workers.get(namespace, worker_id)
        if worker is None:
            raise NotFound(
                Reason.WORKER_NOT_REGISTERED,
                f"Worker {worker_id!r} is not registered in this namespace.",
                worker_id=worker_id,
            )
        before = worker
        cohort = await tx.cohorts.get(namespace, worker.task_queue, worker.build_id or "")
        worker = replace(
            worker,
            status=_status(cohort),
            workflow_slots=worker.workflow_slots if slots[0] is None else slots[0],
            activity_slots=worker.activity_slots if slots[1] is None else slots[1],
            task_slots=task_slots if task_slots is not None else worker.task_slots,
            process_metrics=process_metrics if process_metrics is not None else worker.process_metrics,
            heartbeat_interval_s=heartbeat_interval_s or worker.heartbeat_interval_s,
            heartbeat_at_ms=tx.now_ms,
            updated_at_ms=tx.now_ms,
        )
        tx.workers.heartbeat(worker)
        if ctx.store.journals and (before.status is not worker.status or not _runs_the_same(before, worker)):
            tx.journal.append(journal_lines.worker(worker, _journal_state(worker), tx.now_ms))
        return worker

    worker = await ctx.store.transact(operation, key=f"worker:{namespace}:{worker_id}")
    await _report_rate(ctx, worker, activities_per_second_micro, activities_burst_ms)
    return worker


class DeregisterResult(Struct, frozen=True):
    """How many leased tasks of a deregistered worker were requeued."""

    worker_id: str
    workflow_tasks: int
    activity_tasks: int


async def deregister(ctx: EngineContext, namespace: str, worker_id: str) -> DeregisterResult:
    """Remove a registration and requeue its leased tasks at once. Tasks sticky to it become available to all."""

    async def operation(tx: Tx) -> Sequence[TaskId]:
        worker = await tx.workers.get(namespace, worker_id)
        if worker is None:
            raise NotFound(
                Reason.WORKER_NOT_FOUND,
                f"There is no worker {worker_id!r} in this namespace.",
                worker_id=worker_id,
            )
        tx.workers.delete(namespace, worker_id)
        if ctx.store.journals:
            tx.journal.append(journal_lines.worker(worker, "left", tx.now_ms))
        await notify_pollers(tx, namespace, worker.task_queue)
        return await tx.tasks.leased_by(namespace, worker_id)

    held = await ctx.store.transact(operation, key=f"worker:{namespace}:{worker_id}")
    workflow = activity = 0
    for task_id in held:
        if await workflow_reports.reclaim(ctx, task_id, expired_only=False):
            workflow += 1
        elif await activity_reports.reclaim(ctx, task_id, expired_only=False):
            activity += 1
    return DeregisterResult(worker_id, workflow, activity)


async def describe(ctx: EngineContext, namespace: str, worker_id: str) -> WorkerRecord:
    async def operation(tx: Tx) -> WorkerRecord:
        worker = await tx.workers.get(namespace, worker_id)
        if worker is None:
            raise NotFound(
                Reason.WORKER_NOT_FOUND,
                f"There is no worker {worker_id!r} in this namespace.",
                worker_id=worker_id,
            )
        return worker

    return await ctx.store.read(operation)


class WorkerList(Struct, frozen=True):
    """Workers as of `now_ms`."""

    workers: Sequence[WorkerRecord]
    now_ms: int


async def list_workers(ctx: EngineContext, namespace: str, task_queue: str | None) -> WorkerList:
    async def operation(tx: Tx) -> WorkerList:
        return WorkerList(await tx.workers.list(namespace, task_queue), tx.now_ms)

    return await ctx.store.read(operation, long=True)
