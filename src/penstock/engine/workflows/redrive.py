"""Redrive: a new run that continues a failed one and reuses the results of its completed steps."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import waits
from penstock.core.history import lineage, redrive
from penstock.core.history.payloads import started
from penstock.core.history.redrive import RedriveStart
from penstock.core.model import NO_LINEAGE, Blob, Instance, RecordedEvent, Run, RunHost, RunId, RunStatus
from penstock.core.timestamps import earliest
from penstock.engine.context import EngineContext
from penstock.engine.runs.address import Address, on_run, rejected
from penstock.engine.runs.history_writer import append, buffer_events, enqueue_workflow_task
from penstock.engine.runs.idempotency import IdempotentRequest, retain, retained
from penstock.engine.workflows.successors import pinned
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx

EVENTS_AT_ONCE = 1000
OUTCOME = "redriven"


class Redriven(Struct, frozen=True):
    """The run that continues the failed one."""

    run: Run
    failed_run_id: RunId
    reused_events: int


async def redrive_run(
    ctx: EngineContext, namespace: str, workflow_id: str, run_id: RunId | None, request_id: str | None
) -> Redriven:
    """Continue a failed run by a new one, which replays what the failed one had completed.

    The failed run must be the current one of its workflow id; it stays as it is. The new run has no parent: the parent
    of the failed one has its failure already. A request repeated under its id gets the run of the first.
    """
    request = IdempotentRequest("redrive", run_id or "", Blob(""), request_id)
    new_id = RunId(ctx.entropy.new_id())

    async def act(tx: Tx, run: Run) -> Redriven:
        await _check_failed(tx, run)
        part = redrive.restart(await _history(tx, run.run_id))
        if part is None:
            raise _refused(run, "Its history has messages of streams, which another run cannot take over.")
        new = await _begin(tx, run, new_id, part)
        receipt = {
            "run_id": new.run_id,
            "outcome": OUTCOME,
            "failed_run_id": run.run_id,
            "reused_events": len(part.events),
        }
        retain(tx, new, request, receipt)
        return Redriven(new, run.run_id, len(part.events))

    before = await _repeated(ctx, namespace, workflow_id, request)
    if before is not None:
        return before
    return await on_run(ctx, Address(namespace, workflow_id, run_id), act)


async def _repeated(
    ctx: EngineContext, namespace: str, workflow_id: str, request: IdempotentRequest
) -> Redriven | None:
    async def operation(tx: Tx) -> Redriven | None:
        receipt = await retained(tx, namespace, workflow_id, request)
        run = None if receipt is None else await tx.runs.get(RunId(receipt["run_id"]))
        if receipt is None or run is None:
            return None
        return Redriven(run, RunId(receipt["failed_run_id"]), receipt["reused_events"])

    return await ctx.store.read(operation)


async def _check_failed(tx: Tx, run: Run) -> None:
    if run.host is not RunHost.WORKFLOW or run.status is not RunStatus.FAILED:
        raise _refused(run, f"It is {run.status.value}; only a failed workflow is redriven.")
    instance = await tx.runs.instance(run.namespace, run.workflow_id)
    if instance is None or instance.run_id != run.run_id:
        raise _refused(run, "It is no longer the current run of its workflow id.")


def _refused(run: Run, why: str) -> Conflict:
    return Conflict(
        Reason.RUN_NOT_REDRIVABLE,
        f"The run {run.run_id} cannot be redriven. {why}",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        status=run.status.value,
        **rejected(Reason.RUN_NOT_REDRIVABLE),
    )


async def _history(tx: Tx, run_id: RunId) -> Sequence[RecordedEvent]:
    events: list[RecordedEvent] = []
    while page := await tx.histories.page(run_id, len(events), EVENTS_AT_ONCE):
        events += page
    return events


async def _begin(tx: Tx, failed: Run, run_id: RunId, part: RedriveStart) -> Run:
    run = _successor(failed, run_id, tx.now_ms, await pinned(tx, failed.namespace, failed.task_queue))
    run = append(tx, run, [started(run)])
    copies = [
        RecordedEvent(run_id, each.sequence, each.type, each.payload, tx.now_ms, None) for each in part.events
    ]
    tx.histories.append(copies)
    run = replace(
        run,
        last_sequence=1 + len(copies),
        last_step=part.last_step,
        last_request=failed.last_request,
        unseen_signals=len(part.signals),
        waits=replace(run.waits, concurrent=part.concurrent),
    )
    run = buffer_events(tx, run, part.signals)
    run = await enqueue_workflow_task(tx, run)
    tx.runs.insert(run)
    tx.runs.succeed(Instance(run.namespace, run.workflow_id, run.run_id, run.run_number))
    return run


def _successor(failed: Run, run_id: RunId, now_ms: int, build_id: str | None) -> Run:
    """The new run, with the start of the failed one and timeouts that count from now."""
    execution_s, run_s = failed.execution_timeout_s, failed.run_timeout_s
    execution_at_ms = None if execution_s is None else now_ms + execution_s * 1000
    run_at_ms = None if run_s is None else now_ms + run_s * 1000
    return Run(
        run_id=run_id,
        namespace=failed.namespace,
        workflow_id=failed.workflow_id,
        run_number=failed.run_number + 1,
        host=failed.host,
        workflow_type=failed.workflow_type,
        task_queue=failed.task_queue,
        business_key=failed.business_key,
        level=failed.level,
        key=failed.key,
        weight_milli=failed.weight_milli,
        compatibility=build_id,
        input=failed.input,
        memo=failed.memo,
        search_attributes=failed.search_attributes,
        execution_timeout_s=execution_s,
        run_timeout_s=run_s,
        execution_deadline_at_ms=execution_at_ms,
        run_deadline_at_ms=run_at_ms,
        started_at_ms=max(now_ms, failed.started_at_ms),
        last_progress_at_ms=now_ms,
        deadline_at_ms=earliest(execution_at_ms, run_at_ms),
        lineage=replace(NO_LINEAGE, continued_from=failed.run_id, first_run_id=lineage.first_of(failed)),
        waits=waits.NEW_RUN_DELIVERING_CANCEL if failed.waits.receives_cancel else waits.NEW_RUN,
    )
