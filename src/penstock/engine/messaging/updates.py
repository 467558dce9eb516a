"""Updates: requests that a run's code applies one after the other and answers."""

from __future__ import annotations

import asyncio
import json

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
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx
from penstock.ports.wakeups import run_topic


class UpdateSubmission(Struct, frozen=True):
    """An update to a run."""

    address: Address
    name: str
    arguments: Blob
    request_id: str | None = None

    @property
    def request(self) -> IdempotentRequest:
        return IdempotentRequest("update", self.name, self.arguments, self.request_id)


class UpdateResult(Struct, frozen=True):
    """An accepted update and its state; `timed_out` if the caller's wait ended before it was applied."""

    run: Run
    update: Update
    retained: bool = False
    timed_out: bool = False


async def accept(ctx: EngineContext, submission: UpdateSubmission, draining: asyncio.Event) -> UpdateResult:
    """Validate an update where its handler declares a validator, then record it once per request id."""
    before = await _validate(ctx, submission, draining)
    if before is not None:
        return before

    async def act(tx: Tx, run: Run) -> UpdateResult:
        again = await _retained_update(tx, run, submission)
        if again is not None:
            return again
        check_open(run)
        structural_limits.check_update(run, ctx.bounds)
        run = replace(run, last_request=run.last_request + 1, open_updates=run.open_updates + 1)
        update = _new(run, submission, tx.now_ms)
        tx.updates.insert(update)
        run = await record_external_event(
            tx, run, [update_accepted(update, ctx.caller)], update_id=update.update_id
        )
        tx.runs.save(run)
        retain(tx, run, submission.request, {"command_id": update.update_id, "outcome": None})
        return UpdateResult(run, update)

    return await on_run(ctx, submission.address, act)


async def _validate(
    ctx: EngineContext, submission: UpdateSubmission, draining: asyncio.Event
) -> UpdateResult | None:
    """Return the update if it was accepted before; else validate it. Raises if it is rejected."""

    async def operation(tx: Tx) -> tuple[Run, UpdateResult | None, bool]:
        run = await find(tx, submission.address)
        check_workflow(run)
        before = await _retained_update(tx, run, submission)
        if before is not None:
            return run, before, False
        check_open(run)
        found = await contracts_of(ctx, tx, run)
        check_contract(found, run, submission.request)
        return run, None, found.validates(submission.name)

    try:
        run, before, validates = await ctx.store.read(operation)
    except Conflict as refusal:
        return await _accepted_by_older_run(ctx, submission, refusal)
    if validates:
        await update_validation.require_approval(ctx, run, submission.name, submission.arguments, draining)
    return before


async def _accepted_by_older_run(
    ctx: EngineContext, submission: UpdateSubmission, refusal: Conflict
) -> UpdateResult:
    run, receipt = await retained_by_older_run(ctx, submission.address, submission.request, refusal)

    update = await ctx.store.read(lambda tx: tx.updates.get(str(receipt["command_id"])))
    if update is None:
        raise refusal
    return UpdateResult(run, update, retained=True)


async def _retained_update(tx: Tx, run: Run, submission: UpdateSubmission) -> UpdateResult | None:
    bound_to = run if submission.address.is_bound else None
    receipt = await retained(tx, run.namespace, run.workflow_id, submission.request, bound_to)
    update = None if receipt is None else await tx.updates.get(str(receipt["command_id"]))
    return None if update is None else UpdateResult(run, update, retained=True)


def _new(run: Run, submission: UpdateSubmission, now_ms: int) -> Update:
    return Update(
        update_id=f"{run.run_id}-u{run.last_request}",
        run_id=run.run_id,
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        number=run.last_request,
        name=submission.name,
        arguments=submission.arguments,
        request_id=submission.request_id,
        status=UpdateStatus.ACCEPTED,
        outcome=None,
        accepted_at_ms=now_ms,
    )


async def wait(
    ctx: EngineContext, result: UpdateResult, wait_ms: int, draining: asyncio.Event
) -> UpdateResult:
    """Wait until the update was applied, possibly in a successor run, or until the wait is over."""

    async def load() -> Update | None:
        return await ctx.store.read(lambda tx: tx.updates.get(result.update.update_id))

    async def check() -> tuple[Update, bool]:
        update = await load() or result.update
        return update, update.status is not UpdateStatus.ACCEPTED

    topic = run_topic(RunId(result.update.run_id))
    update, done = await wait_until(ctx, topic, check, wait_ms, draining)
    return replace(result, update=update, timed_out=not done)


async def find_update(ctx: EngineContext, namespace: str, workflow_id: str, update_id: str) -> UpdateResult:
    """An update of a workflow in its present state, by its id or that of its request. Raises `NotFound`."""

    async def operation(tx: Tx) -> UpdateResult:
        update = await tx.updates.get(update_id)
        if update is None:
            asked = await tx.requests.get(namespace, workflow_id, "update", update_id)
            if asked is not None:
                update = await tx.updates.get(str(json.loads(asked.receipt)["command_id"]))
        run = None if update is None else await tx.runs.get(update.run_id)
        if update is None or run is None or (run.namespace, run.workflow_id) != (namespace, workflow_id):
            raise NotFound(
                Reason.UPDATE_NOT_FOUND,
                f"The workflow {workflow_id!r} has no update {update_id!r}.",
                workflow_id=workflow_id,
                update_id=update_id,
            )
        return UpdateResult(run, update)

    return await ctx.store.read(operation)
