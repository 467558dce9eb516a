"""Redrive: a new run that continues a failed one and reuses the results of its completed steps."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import redrive
from penstock.core.history.redrive import RedriveStart
from penstock.core.model import Blob, RecordedEvent, Run, RunHost, RunId, RunStatus
from penstock.core.reset.decision_points import copied
from penstock.engine.context import EngineContext
from penstock.engine.runs.address import Address, on_run, rejected
from penstock.engine.runs.history_writer import buffer_events, enqueue_workflow_task
from penstock.engine.runs.idempotency import IdempotentRequest, retain, retained
from penstock.engine.workflows import start_caps
from penstock.engine.workflows.copies.run_copies import Source, copy_of, successor, take_id, whole_history
from penstock.engine.workflows.start_caps import first_task_at_ms
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx

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
        history = await whole_history(tx, run.run_id)
        part = redrive.restart(history)
        if part is None:
            raise _refused(run, "Its history has messages of streams, which another run cannot take over.")
        new = await _begin(ctx, tx, run, new_id, history, part)
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


async def _begin(
    ctx: EngineContext,
    tx: Tx,
    failed: Run,
    run_id: RunId,
    history: Sequence[RecordedEvent],
    part: RedriveStart,
) -> Run:
    run = await successor(tx, Source(failed, failed, failed.run_number + 1), run_id)
    caps = await start_caps.of_start(ctx, tx, run)
    if caps is not None:
        run = await caps.admit(run, tx.now_ms)
    through = 1 + len(part.events)
    copies = copied(failed.lineage.copies, failed.run_id, through)
    run = replace(run, lineage=replace(run.lineage, copies=copies), last_request=failed.last_request)
    tx.histories.append(copy_of(run, failed, history[:through]))
    run = replace(
        run,
        last_sequence=through,
        last_step=part.last_step,
        unseen_signals=len(part.signals),
        waits=replace(run.waits, concurrent=part.concurrent),
    )
    run = buffer_events(tx, run, part.signals)
    run = await enqueue_workflow_task(tx, run, at_ms=first_task_at_ms(run, tx.now_ms))
    take_id(tx, run)
    start_caps.record(caps)
    return run
