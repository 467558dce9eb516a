"""New runs that are made from another one: what redrive, rerun, reset and fork have in common.

A request names a *source*: any run of a workflow id. It is carried out under the locks of the id's newest run, which
starts and continuations take too, and of the source, so that nothing deletes it meanwhile. A new run of the same id
begins only while no run is open under it (`one-open-run`), joins the chain of its source, and has no parent: the parent
of the source has its outcome already.

Locks are taken in one order, the newest run before the source. An operation that waited for the lock of a run that is
no longer the newest reads the id again, as starts do (`runs/workflow_ids.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text, waits
from penstock.core.attribution import Caller
from penstock.core.history import lineage, recorder
from penstock.core.history.events import EventType
from penstock.core.history.payloads import started
from penstock.core.model import NO_LINEAGE, Instance, RecordedEvent, Run, RunHost, RunId
from penstock.core.timestamps import earliest
from penstock.engine.context import EngineContext
from penstock.engine.runs import workflow_ids
from penstock.engine.runs.address import no_instance, no_run, rejected
from penstock.engine.runs.idempotency import IdempotentRequest, retain, retained
from penstock.engine.runs.workflow_ids import Replaced
from penstock.engine.workflows.successors import pinned
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx

EVENTS_AT_ONCE: Final = 1_000


class Source(Struct, frozen=True):
    """The run that a new one is made from, and the newest run of its id, both locked; they may be the same."""

    run: Run
    newest: Run
    next_number: int

    @property
    def is_newest(self) -> bool:
        return self.run.run_id == self.newest.run_id


class SourceAddress(Struct, frozen=True):
    """The workflow id and run that a request names as its source; without a run, the newest one."""

    namespace: str
    workflow_id: str
    run_id: RunId | None = None


class MadeRun(Struct, frozen=True):
    """A run that was made from another one."""

    run: Run
    source_run_id: RunId
    reused_events: int = 0


async def make_run(
    ctx: EngineContext,
    address: SourceAddress,
    request: IdempotentRequest,
    make: Callable[[Tx, Source], Awaitable[MadeRun]],
) -> MadeRun:
    """Carry out `make` in a transaction; a request repeated under its id gets the run of the first."""

    async def operation(tx: Tx) -> MadeRun:
        source = await _lock_source(tx, address)
        before = await made_before(tx, address, request)
        if before is not None:
            return before
        made = await make(tx, source)
        receipt = {
            "run_id": made.run.run_id,
            "outcome": "made",
            "source_run_id": made.source_run_id,
            "reused_events": made.reused_events,
        }
        retain(tx, replace(made.run, workflow_id=address.workflow_id), request, receipt)
        return made

    return await ctx.store.transact(operation, key=f"workflow:{address.namespace}:{address.workflow_id}")


async def made_by_earlier_request(
    ctx: EngineContext, address: SourceAddress, request: IdempotentRequest
) -> MadeRun | None:
    """`made_before` in a transaction of its own: what was made is not made ready again."""
    if request.request_id is None:
        return None
    return await ctx.store.read(lambda tx: made_before(tx, address, request))


async def made_before(tx: Tx, address: SourceAddress, request: IdempotentRequest) -> MadeRun | None:
    """The run that an earlier request with the same id made."""
    receipt = await retained(tx, address.namespace, address.workflow_id, request)
    run = None if receipt is None else await tx.runs.get(RunId(receipt["run_id"]))
    if receipt is None or run is None:
        return None
    return MadeRun(run, RunId(receipt["source_run_id"]), receipt["reused_events"])


async def _lock_source(tx: Tx, address: SourceAddress) -> Source:
    newest = await _lock_newest(tx, address)
    if address.run_id is None or address.run_id == newest.run.run_id:
        return Source(newest.run, newest.run, newest.next_number)
    run = await tx.runs.lock(address.run_id)
    if run is None or (run.namespace, run.workflow_id) != (address.namespace, address.workflow_id):
        raise no_run(address.workflow_id, address.run_id)
    return Source(run, newest.run, newest.next_number)


async def _lock_newest(tx: Tx, address: SourceAddress) -> Replaced:
    for _ in range(workflow_ids.TRIES):
        _, newest = await tx.runs.named(address.namespace, address.workflow_id, None) or (None, None)
        if newest is None or newest.host is not RunHost.WORKFLOW:
            raise no_instance(address.workflow_id)
        locked = await workflow_ids.lock_newest(tx, newest)
        if locked is not None:
            return locked
    raise workflow_ids.busy(address.workflow_id)


def check_none_open(source: Source) -> None:
    """Raise `Conflict` if another run than the source is open under its workflow id."""
    newest = source.newest
    if newest.is_open and not source.is_newest:
        raise Conflict(
            Reason.ANOTHER_RUN_OPEN,
            f"The run {newest.run_id} of {newest.workflow_id!r} is open. Terminate it first, or fork the run "
            f"{source.run.run_id} under another workflow id.",
            workflow_id=newest.workflow_id,
            run_id=source.run.run_id,
            open_run_id=newest.run_id,
            **rejected(Reason.ANOTHER_RUN_OPEN),
        )


class StartFields(Struct, frozen=True):
    """Memo and search attributes as a run started with them: its row has those of its end."""

    memo: str
    search_attributes: str


async def start_fields(tx: Tx, run: Run) -> StartFields:
    """Read them from the first event."""
    first = await tx.histories.page(run.run_id, 0, 1)
    return start_fields_of(first[0]) if first else StartFields(run.memo, run.search_attributes)


def start_fields_of(first: RecordedEvent) -> StartFields:
    payload: dict[str, Any] = json_text.read(first.payload)
    return StartFields(
        json_text.written(payload.get("memo", {})), json_text.written(payload.get("search_attributes", {}))
    )


async def is_concurrent(tx: Tx, run: Run) -> bool:
    """Whether the code of a run, which may be closed, is known to be concurrent."""
    decided = await tx.histories.last_of_type(run.run_id, [EventType.WORKFLOW_TASK_COMPLETED])
    return decided is not None


async def successor(tx: Tx, source: Source, run_id: RunId) -> Run:
    """The next run of the source's workflow id, with the start of the source and timeouts that count from now."""
    before, now_ms = source.run, tx.now_ms
    execution_s, run_s = before.execution_timeout_s, before.run_timeout_s
    execution_at_ms = None if execution_s is None else now_ms + execution_s * 1000
    run_at_ms = None if run_s is None else now_ms + run_s * 1000
    receives_cancel = before.waits.receives_cancel or await is_concurrent(tx, before)
    return Run(
        run_id=run_id,
        namespace=before.namespace,
        workflow_id=before.workflow_id,
        run_number=source.next_number,
        host=before.host,
        workflow_type=before.workflow_type,
        task_queue=before.task_queue,
        business_key=before.business_key,
        level=before.level,
        key=before.key,
        weight_milli=before.weight_milli,
        compatibility=await pinned(tx, before.namespace, before.task_queue),
        input=before.input,
        memo=before.memo,
        search_attributes=before.search_attributes,
        execution_timeout_s=execution_s,
        run_timeout_s=run_s,
        execution_deadline_at_ms=execution_at_ms,
        run_deadline_at_ms=run_at_ms,
        started_at_ms=workflow_ids.started_at_ms(source.newest, now_ms),
        last_progress_at_ms=now_ms,
        deadline_at_ms=earliest(execution_at_ms, run_at_ms),
        lineage=replace(
            NO_LINEAGE,
            continued_from=before.run_id,
            first_run_id=lineage.first_of(before),
            concurrency_key=before.lineage.concurrency_key,
            unique_key=before.lineage.unique_key,
            unique_until=before.lineage.unique_until,
        ),
        waits=waits.NEW_RUN_DELIVERING_CANCEL if receives_cancel else waits.NEW_RUN,
    )


def take_id(tx: Tx, run: Run) -> None:
    """Record a new run, and point its workflow id and its unique key, if no other run has taken that, at it."""
    source = run.lineage.continued_from
    if run.lineage.unique_key is not None and source is not None:
        tx.unique_keys.hand_on(source, run.run_id)
    tx.runs.insert(run)
    tx.runs.succeed(Instance(run.namespace, run.workflow_id, run.run_id, run.run_number))


# ── Copies of histories ─────────────────────────────────────────────────────────────────────────────────────


async def whole_history(tx: Tx, run_id: RunId) -> Sequence[RecordedEvent]:
    """All events of a run."""
    events: list[RecordedEvent] = []
    while page := await tx.histories.page(run_id, len(events), EVENTS_AT_ONCE):
        events += page
    return events


def copy_of(run: Run, source: Run, history: Sequence[RecordedEvent]) -> Sequence[RecordedEvent]:
    """The events of a new run: its own start in place of the source's, and the others with the new run's ids."""
    return with_start(run, [renamed_event(event, source.run_id, run.run_id) for event in history], None)


def with_start(run: Run, history: Sequence[RecordedEvent], caller: Caller | None) -> Sequence[RecordedEvent]:
    """Events of a copy with the start of the new run as the first one.

    Times stay, because the code's clock goes by them, and so do the ids of workflow tasks, which tell one decision from
    the next.
    """
    fields = start_fields_of(history[0])
    began = replace(run, last_sequence=0, memo=fields.memo, search_attributes=fields.search_attributes)
    first = recorder.record(began, [started(began, caller)], history[0].recorded_at_ms)
    return [*first.lines, *history[1:]]


def as_started(source: Run, run_id: RunId, fields: StartFields) -> Run:
    """A run as it was before its first event, under another id."""
    return replace(
        source,
        run_id=run_id,
        memo=fields.memo,
        search_attributes=fields.search_attributes,
        waits=waits.NEW_RUN,
        last_step=0,
        unseen_signals=0,
    )


def renamed_event(event: RecordedEvent, source: RunId, run_id: RunId) -> RecordedEvent:
    """An event of a copy. Ids of a run's steps, waits and updates begin with the id of the run."""
    return replace(event, run_id=run_id, payload=renamed(event.payload, source, run_id))


def renamed(text: str, source: RunId, run_id: RunId) -> str:
    """JSON text in which ids that begin with the source's id begin with that of the new run."""
    return text.replace(f'"{source}-', f'"{run_id}-')
