"""Deletion of one closed run by a caller, and the records of such deletions, which stay.

A run is deleted in the two phases of retention (`retention.py`): one transaction removes its row and writes the record,
its other rows follow in batches. So there is a record of exactly the runs that are gone. External payloads that nothing
else uses are deleted after their margin (`payloads/collection.py`).

Records are retained requests under the empty workflow id, which no workflow can have: the primary key then holds the
log of a namespace in order of time, and retention, which deletes by run, does not reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import structlog
from msgspec import Struct

from penstock.core import json_text
from penstock.core.attribution import PRINCIPAL, caused_by
from penstock.core.model import RetainedRequest, Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.operations import retention
from penstock.engine.operations.retention import Obstacle, PruneScope
from penstock.engine.runs.address import check_closed, no_run, rejected
from penstock.engine.runs.run_lookup import locate
from penstock.errors import Conflict, PenstockError, Reason
from penstock.ports.store import Tx
from penstock.ports.tables.visibility import PageStart

KIND: Final = "deletion"
_NO_WORKFLOW: Final = ""
_LAST: Final = PageStart(10**15 - 1, "~")
log = structlog.get_logger("penstock.deletion")


class Deletion(Struct, frozen=True):
    """The record of a deleted run: no payloads, memo or search attributes of it."""

    workflow_id: str
    run_id: RunId
    run_number: int
    workflow_type: str
    status: str
    closed_reason: str | None
    started_at_ms: int
    closed_at_ms: int | None
    events: int
    at_ms: int
    reason: str | None = None
    archived: bool = False
    """Whether the history had been archived; the archive keeps its copy."""
    principal: Any = None

    @property
    def place(self) -> PageStart:
        return PageStart(self.at_ms, self.run_id)


async def delete_run(
    ctx: EngineContext, namespace: str, workflow_id: str, run_id: str | None, reason: str | None
) -> Deletion:
    """Delete a closed run with all that belongs to it. The run before it becomes the current one of its id, if any."""
    run = await ctx.store.read(lambda tx: _find(tx, namespace, workflow_id, run_id))
    check_closed(run, "deleted")
    made: list[Deletion] = []

    def record(tx: Tx, found: Run) -> None:
        made[:] = [_record(ctx, tx, found, reason)]

    done = await retention.prune(ctx, run.run_id, namespace, PruneScope.NAMED, record)
    if done.obstacle is not None:
        raise _refused(run, done.obstacle)
    deleted = made[0]
    log.info("run_deleted", namespace=namespace, workflow_id=workflow_id, run_id=run.run_id, reason=reason)
    return deleted


async def deletions(
    ctx: EngineContext, namespace: str, workflow_id: str | None, after: PageStart | None, limit: int
) -> Sequence[Deletion]:
    """The records of deletions in a namespace, the newest first."""

    async def operation(tx: Tx) -> Sequence[Deletion]:
        found = await tx.requests.deletions(namespace, workflow_id, _key(after or _LAST), limit)
        return [_read(each) for each in found]

    return await ctx.store.read(operation)


async def _find(tx: Tx, namespace: str, workflow_id: str, run_id: str | None) -> Run:
    return (await locate(tx, namespace, workflow_id, run_id)).run


def _record(ctx: EngineContext, tx: Tx, run: Run, reason: str | None) -> Deletion:
    fields = {
        "run_number": run.run_number,
        "workflow_type": run.workflow_type,
        "status": run.status.value,
        "closed_reason": run.closed_reason,
        "started_at_ms": run.started_at_ms,
        "closed_at_ms": run.closed_at_ms,
        "events": run.last_sequence,
        "reason": reason,
        "archived": run.archived_at_ms is not None,
    } | caused_by(ctx.caller)
    retained = RetainedRequest(
        namespace=run.namespace,
        workflow_id=_NO_WORKFLOW,
        kind=KIND,
        request_id=_key(PageStart(tx.now_ms, run.run_id)),
        run_id=run.run_id,
        number=run.run_number,
        name=run.workflow_id,
        digest="",
        receipt=json_text.written(fields),
        at_ms=tx.now_ms,
    )
    tx.requests.insert(retained)
    return _read(retained)


def _key(place: PageStart) -> str:
    """The key of a record: keys are in order of time."""
    return f"{place.started_at_ms:015d}:{place.run_id}"


def _read(retained: RetainedRequest) -> Deletion:
    fields: dict[str, Any] = json_text.read(retained.receipt)
    return Deletion(
        workflow_id=retained.name,
        run_id=retained.run_id,
        at_ms=retained.at_ms,
        principal=fields.pop(PRINCIPAL, None),
        **fields,
    )


def _refused(run: Run, obstacle: Obstacle) -> PenstockError:
    if obstacle is Obstacle.GONE:
        return no_run(run.workflow_id, run.run_id)
    return Conflict(
        Reason.RUN_IN_USE,
        "The closed run is still needed, for a moment. Nothing was deleted.",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        status=run.status.value,
        obstacle=obstacle.value,
        **rejected(Reason.RUN_IN_USE),
    )
