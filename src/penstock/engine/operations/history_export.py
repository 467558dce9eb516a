"""Exporting histories: a summary of the run, then its events page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from penstock.core.audit.bundle import Bundle, Outline
from penstock.core.audit.trail import AuditTrail, is_close
from penstock.core.model import Instance, RecordedEvent, Run
from penstock.engine.context import EngineContext
from penstock.engine.runs.address import no_run
from penstock.engine.runs.run_lookup import Located, locate
from penstock.engine.visibility import audit_trail
from penstock.ports.store import Tx

EVENTS_AT_ONCE = 200


async def find(ctx: EngineContext, namespace: str, workflow_id: str, run_id: str | None = None) -> Bundle:
    """The bundle of the current run of a workflow id, or of a named run, as of now."""

    async def operation(tx: Tx) -> tuple[Located, int]:
        return await locate(tx, namespace, workflow_id, run_id), tx.now_ms

    found, now_ms = await ctx.store.read(operation, long=True)
    run, instance = found.run, found.instance
    return Bundle(run, instance.run_id, instance.run_count, now_ms, await outline(ctx, run))


async def of_run(ctx: EngineContext, run: Run) -> Bundle:
    """The bundle of a run that was read already."""

    async def operation(tx: Tx) -> tuple[Instance | None, int]:
        return await tx.runs.instance(run.namespace, run.workflow_id), tx.now_ms

    instance, now_ms = await ctx.store.read(operation, long=True)
    named = instance or Instance(run.namespace, run.workflow_id, run.run_id, run.run_number)
    return Bundle(run, named.run_id, named.run_count, now_ms, await outline(ctx, run))


async def outline(ctx: EngineContext, run: Run) -> Outline:
    """Summarise the events. They are read twice, so that a long history is never in memory as a whole."""
    takes_signals = await ctx.store.read(lambda tx: audit_trail.takes_signals(tx, run), long=True)
    found, trail = Outline(), AuditTrail(run, takes_signals=takes_signals)
    last: RecordedEvent | None = None
    async for page in pages(ctx, run):
        for event in page:
            for derived in trail.add(event):
                found.add_derived(derived)
            found.add(event)
            last = event
    closing = last if last is not None and is_close(last) else None
    for derived in await ctx.store.read(
        lambda tx: audit_trail.behind(tx, run, 1, run.last_sequence, closing), long=True
    ):
        found.add_derived(derived)
    found.derived.sort(key=lambda each: (each.sequence, each.place))
    return found


async def pages(ctx: EngineContext, run: Run) -> AsyncIterator[Sequence[RecordedEvent]]:
    """The history up to the last event at the time the run was read.

    Raises `NotFound` if the run is deleted meanwhile, so that a partial history is never taken for the whole.
    """
    after = 0
    while after < run.last_sequence:
        page = await _page(ctx, run, after)
        if not page:
            raise no_run(run.workflow_id, run.run_id)
        after = page[-1].sequence
        yield page


async def _page(ctx: EngineContext, run: Run, after: int) -> Sequence[RecordedEvent]:
    async def operation(tx: Tx) -> Sequence[RecordedEvent]:
        most = min(EVENTS_AT_ONCE, run.last_sequence - after)
        return await tx.histories.page(run.run_id, after, most)

    return await ctx.store.read(operation, long=True)
