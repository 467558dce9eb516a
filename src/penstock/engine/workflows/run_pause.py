"""Pause and resume of one run: none of its tasks is dispatched in between (`core/pauses.py`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Run
from penstock.engine.context import EngineContext
from penstock.engine.runs import operator_commands
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.held_tasks import apply_pauses, pause_by
from penstock.ports.store import Tx


class PauseOutcome(StrEnum):
    """Whether a pause or resume changed anything."""

    PAUSED = "paused"
    ALREADY_PAUSED = "already_paused"
    RESUMED = "resumed"
    NOT_PAUSED = "not_paused"


class PauseResult(Struct, frozen=True):
    """A run, and what a pause or resume did to it."""

    run: Run
    outcome: PauseOutcome


async def pause(ctx: EngineContext, address: Address, reason: str | None) -> PauseResult:
    """Dispatch no task of a run until it is resumed. What a worker runs already goes on, and its report is recorded."""

    async def act(tx: Tx, run: Run) -> PauseResult:
        check_workflow(run)
        check_open(run)
        if run.waits.paused is not None:
            return PauseResult(run, PauseOutcome.ALREADY_PAUSED)
        run = replace(run, waits=replace(run.waits, paused=pause_by(ctx, tx, reason)))
        await apply_pauses(tx, run)
        tx.runs.save(run)
        operator_commands.retain(ctx, tx, run, operator_commands.PAUSE, PauseOutcome.PAUSED, reason)
        return PauseResult(run, PauseOutcome.PAUSED)

    return await on_run(ctx, address, act)


async def resume(ctx: EngineContext, address: Address, reason: str | None) -> PauseResult:
    """Dispatch the tasks of a paused run again. Activities that are paused by themselves stay so."""

    async def act(tx: Tx, run: Run) -> PauseResult:
        check_workflow(run)
        check_open(run)
        if run.waits.paused is None:
            return PauseResult(run, PauseOutcome.NOT_PAUSED)
        run = replace(run, waits=replace(run.waits, paused=None))
        await apply_pauses(tx, run)
        tx.runs.save(run)
        operator_commands.retain(ctx, tx, run, operator_commands.RESUME, PauseOutcome.RESUMED, reason)
        return PauseResult(run, PauseOutcome.RESUMED)

    return await on_run(ctx, address, act)
