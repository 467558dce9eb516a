"""Rerun: a closed run once more, from its start, as a new run of the same workflow id."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.core.history.payloads import started
from penstock.core.model import Blob, RunId
from penstock.engine.context import EngineContext
from penstock.engine.runs import operator_commands
from penstock.engine.runs.address import check_closed
from penstock.engine.runs.history_writer import append, enqueue_workflow_task
from penstock.engine.runs.idempotency import IdempotentRequest
from penstock.engine.workflows import start_caps
from penstock.engine.workflows.copies import run_copies
from penstock.engine.workflows.copies.run_copies import MadeRun, Source, SourceAddress
from penstock.engine.workflows.start_caps import first_task_at_ms
from penstock.ports.store import Tx

OUTCOME: Final = "rerun"


async def rerun(
    ctx: EngineContext, address: SourceAddress, reason: str | None = None, request_id: str | None = None
) -> MadeRun:
    """Start a closed run again with its input, memo, search attributes, priority and timeouts; it stays as it is.

    Args:
        ctx: The server.
        address: The closed run, which need not be the newest of its workflow id.
        reason: Kept in the audit trail of the closed run.
        request_id: Identifies the request: a repetition gets the run of the first.
    """
    request = IdempotentRequest("rerun request", address.run_id or "", Blob(""), request_id)
    new_id = RunId(ctx.entropy.new_id())

    async def make(tx: Tx, source: Source) -> MadeRun:
        check_closed(source.run, "rerun")
        run_copies.check_none_open(source)
        at_start = await run_copies.start_fields(tx, source.run)
        run = await run_copies.successor(tx, source, new_id)
        run = replace(run, memo=at_start.memo, search_attributes=at_start.search_attributes)
        caps = await start_caps.of_start(ctx, tx, run)
        if caps is not None:
            run = await caps.admit(run, tx.now_ms)
        run = append(tx, run, [started(run, ctx.caller)])
        run = await enqueue_workflow_task(tx, run, at_ms=first_task_at_ms(run, tx.now_ms))
        run_copies.take_id(tx, run)
        start_caps.record(caps)
        operator_commands.retain(ctx, tx, source.run, operator_commands.RERUN, new_id, reason)
        return MadeRun(run, source.run.run_id)

    return await run_copies.make_run(ctx, address, request, make)
