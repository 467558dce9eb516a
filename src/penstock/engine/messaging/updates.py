"""Updates: changes that callers ask of a run, applied by its code one after the other, with an answer."""

from __future__ import annotations

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import structural_limits
from penstock.core.history.payloads import update_accepted
from penstock.core.model import Blob, Run, RunId, Update, UpdateStatus
from penstock.engine.context import EngineContext
from penstock.engine.long_poll import wait_until
from penstock.engine.matching import update_validation
from penstock.engine.runs.address import Address, check_open, check_workflow, find, on_run
from penstock.engine.runs.history_writer import record_external_event
from penstock.engine.runs.idempotency import (
    IdempotentRequest,
    check_contract,
    contracts_of,
    retain,
    retained,
    retained_by_older_run,
)
from penstock.errors import Conflict
from penstock.ports.store import Tx
from penstock.ports.wakeups import run_topic


class UpdateSubmission(Struct, frozen=True):
    address: Address
    name: str
    arguments: Blob
    request_id: str | None = None

    @property
    def request(self) -> IdempotentRequest:
        return IdempotentRequest("update", self.name, self.arguments, self.request_id)


class UpdateResult(Struct, frozen=True):
    run: Run
    update: Update
    retained: bool = False
    timed_out: bool = False


async def accept(ctx: EngineContext, asked: UpdateSubmission, draining: asyncio.Event) -> UpdateResult:
    """Record an update, once for each request id, after the code has approved it where it wants to be asked."""
    before = await _approved(ctx, asked, draining)
    if before is not None:
        return before

    async def act(tx: Tx, run: Run) -> UpdateResult:
        again = await _before(tx, run, asked)
        if again is not None:
            return again
        check_open(run)
        structural_limits.check_update(run, ctx.bounds)
        run = replace(run, last_request=run.last_request + 1, open_updates=run.open_updates + 1)
        update = _new(run, asked, tx.now_ms)
        tx.updates.insert(update)
        run = await record_external_event(tx, run, [update_accepted(update)], update_id=update.update_id)
        tx.runs.save(run)
        retain(tx, run, asked.request, {"command_id": update.update_id, "outcome": None})
        return UpdateResult(run, update)

    return await on_run(ctx, asked.address, act)


async def _approved(
    ctx: EngineContext, asked: UpdateSubmission, draining: asyncio.Event
) -> UpdateResult | None:
    """The same update, if it was accepted before; else the run's code has let it pass."""

    async def operation(tx: Tx) -> tuple[Run, UpdateResult | None, bool]:
        run = await find(tx, asked.address)
        check_workflow(run)
        before = await _before(tx, run, asked)
        if before is not None:
            return run, before, False
        check_open(run)
        found = await contracts_of(ctx, tx, run)
        check_contract(found, run, asked.request)
        return run, None, found.validates(asked.name)

    try:
        run, before, validates = await ctx.store.read(operation)
    except Conflict as refusal:
        return await _accepted_by_older_run(ctx, asked, refusal)
    if validates:
        await update_validation.require_approval(ctx, run, asked.name, asked.arguments, draining)
    return before


async def _accepted_by_older_run(
    ctx: EngineContext, asked: UpdateSubmission, refusal: Conflict
) -> UpdateResult:
    run, receipt = await retained_by_older_run(ctx, asked.address, asked.request, refusal)

    async def operation(tx: Tx) -> Update | None:
        return await tx.updates.get(str(receipt["command_id"]))

    update = await ctx.store.read(operation)
    if update is None:
        raise refusal
    return UpdateResult(run, update, retained=True)


async def _before(tx: Tx, run: Run, asked: UpdateSubmission) -> UpdateResult | None:
    bound_to = run if asked.address.is_bound else None
    receipt = await retained(tx, run.namespace, run.workflow_id, asked.request, bound_to)
    update = None if receipt is None else await tx.updates.get(str(receipt["command_id"]))
    return None if update is None else UpdateResult(run, update, retained=True)


def _new(run: Run, asked: UpdateSubmission, now_ms: int) -> Update:
    return Update(
        update_id=f"{run.run_id}-u{run.last_request}",
        run_id=run.run_id,
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        number=run.last_request,
        name=asked.name,
        arguments=asked.arguments,
        request_id=asked.request_id,
        status=UpdateStatus.ACCEPTED,
        outcome=None,
        accepted_at_ms=now_ms,
    )


async def wait(
    ctx: EngineContext, answered: UpdateResult, wait_ms: int, draining: asyncio.Event
) -> UpdateResult:
    """Until the update was applied, or the wait is over. It may be applied in a run that continues its own."""

    async def look() -> Update | None:
        async def operation(tx: Tx) -> Update | None:
            return await tx.updates.get(answered.update.update_id)

        return await ctx.store.read(operation)

    async def seen() -> tuple[Update, bool]:
        update = await look() or answered.update
        return update, update.status is not UpdateStatus.ACCEPTED

    topic = run_topic(RunId(answered.update.run_id))
    update, done = await wait_until(ctx, topic, seen, wait_ms, draining)
    return replace(answered, update=update, timed_out=not done)
