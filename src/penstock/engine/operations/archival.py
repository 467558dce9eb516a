"""Archiving closed runs: marking them, and writing their histories to the archive if one is configured."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Run
from penstock.engine.context import EngineContext
from penstock.engine.operations import history_export
from penstock.engine.runs import operator_commands
from penstock.engine.runs.address import check_closed, no_run
from penstock.engine.runs.run_lookup import locate
from penstock.errors import Unavailable
from penstock.ports.store import Tx


class ArchiveOutcome(StrEnum):
    """Whether the run was archived by this request or before."""

    ARCHIVED = "archived"
    NOT_NEEDED = "archive_not_needed"


class Archived(Struct, frozen=True):
    """A run and the outcome of archiving it."""

    run: Run
    outcome: ArchiveOutcome


async def archive(
    ctx: EngineContext,
    namespace: str,
    workflow_id: str,
    run_id: str | None = None,
    reason: str | None = None,
) -> Archived:
    """Archive a closed run. Its history is unchanged: the closing event remains the last one."""
    run = await _find(ctx, namespace, workflow_id, run_id)
    check_closed(run, "archived")
    await keep(ctx, run)

    async def operation(tx: Tx) -> Archived:
        found = await tx.runs.lock(run.run_id)
        if found is None:
            raise no_run(workflow_id, run.run_id)
        if found.archived_at_ms is not None:
            return Archived(found, ArchiveOutcome.NOT_NEEDED)
        archived = replace(found, archived_at_ms=tx.now_ms)
        tx.runs.save(archived)
        operator_commands.retain(ctx, tx, found, operator_commands.ARCHIVE, ArchiveOutcome.ARCHIVED, reason)
        return Archived(archived, ArchiveOutcome.ARCHIVED)

    return await ctx.store.transact(operation, key=run.run_id)


async def keep(ctx: EngineContext, run: Run) -> None:
    """Write a closed run to the archive, if there is one and it lacks the run. Raises `Unavailable` on failure."""
    if ctx.archive is None or await ctx.archive.holds(run):
        return
    bundle = await history_export.of_run(ctx, run)
    try:
        await ctx.archive.put(bundle, history_export.pages(ctx, run))
    except Unavailable as error:
        ctx.upkeep.record_archive_failure(error.message)
        raise
    ctx.upkeep.record_archived()


async def _find(ctx: EngineContext, namespace: str, workflow_id: str, run_id: str | None) -> Run:
    async def operation(tx: Tx) -> Run:
        return (await locate(tx, namespace, workflow_id, run_id)).run

    return await ctx.store.read(operation, long=True)
