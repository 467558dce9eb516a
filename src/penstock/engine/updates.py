"""Updates: changes that callers ask of a run, applied by its code one after the other, with an answer."""

from __future__ import annotations

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import bounds
from penstock.core.history.payloads import update_accepted
from penstock.core.model import Blob, Run, RunId, Update, UpdateStatus
from penstock.engine import validation
from penstock.engine.addressing import Address, check_open, check_workflow, find, on_run
from penstock.engine.house import House
from penstock.engine.recording import tell
from penstock.engine.requests import (
    Request,
    check_contract,
    contracts_of,
    retain,
    retained,
    retained_of_old_run,
)
from penstock.engine.waiting import until
from penstock.errors import Conflict
from penstock.ports.store import Tx
from penstock.ports.wakeups import run_bell


class Asked(Struct, frozen=True):
    address: Address
    name: str
    arguments: Blob
    request_id: str | None = None

    @property
    def request(self) -> Request:
        return Request("update", self.name, self.arguments, self.request_id)


class Answered(Struct, frozen=True):
    run: Run
    update: Update
    retained: bool = False
    timed_out: bool = False


async def accept(house: House, asked: Asked, draining: asyncio.Event) -> Answered:
    """Record an update, once for each request id, after the code has approved it where it wants to be asked."""
    before = await _approved(house, asked, draining)
    if before is not None:
        return before

    async def act(tx: Tx, run: Run) -> Answered:
        again = await _before(tx, run, asked)
        if again is not None:
            return again
        check_open(run)
        bounds.check_update(run, house.bounds)
        run = replace(run, last_request=run.last_request + 1, open_updates=run.open_updates + 1)
        update = _new(run, asked, tx.now_ms)
        tx.updates.insert(update)
        run = await tell(tx, run, [update_accepted(update)], update_id=update.update_id)
        tx.runs.save(run)
        retain(tx, run, asked.request, {"command_id": update.update_id, "outcome": None})
        return Answered(run, update)

    return await on_run(house, asked.address, act)


async def _approved(house: House, asked: Asked, draining: asyncio.Event) -> Answered | None:
    """The same update, if it was accepted before; else the run's code has let it pass."""

    async def operation(tx: Tx) -> tuple[Run, Answered | None, bool]:
        run = await find(tx, asked.address)
        check_workflow(run)
        before = await _before(tx, run, asked)
        if before is not None:
            return run, before, False
        check_open(run)
        found = await contracts_of(house, tx, run)
        check_contract(found, run, asked.request)
        return run, None, found.validates(asked.name)

    try:
        run, before, validates = await house.store.read(operation)
    except Conflict as refusal:
        return await _before_it_moved(house, asked, refusal)
    if validates:
        await validation.require_approval(house, run, asked.name, asked.arguments, draining)
    return before


async def _before_it_moved(house: House, asked: Asked, refusal: Conflict) -> Answered:
    run, receipt = await retained_of_old_run(house, asked.address, asked.request, refusal)

    async def operation(tx: Tx) -> Update | None:
        return await tx.updates.get(str(receipt["command_id"]))

    update = await house.store.read(operation)
    if update is None:
        raise refusal
    return Answered(run, update, retained=True)


async def _before(tx: Tx, run: Run, asked: Asked) -> Answered | None:
    bound_to = run if asked.address.is_bound else None
    receipt = await retained(tx, run.namespace, run.workflow_id, asked.request, bound_to)
    update = None if receipt is None else await tx.updates.get(str(receipt["command_id"]))
    return None if update is None else Answered(run, update, retained=True)


def _new(run: Run, asked: Asked, now_ms: int) -> Update:
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


async def wait(house: House, answered: Answered, wait_ms: int, draining: asyncio.Event) -> Answered:
    """Until the update was applied, or the wait is over. It may be applied in a run that continues its own."""

    async def look() -> Update | None:
        async def operation(tx: Tx) -> Update | None:
            return await tx.updates.get(answered.update.update_id)

        return await house.store.read(operation)

    async def seen() -> tuple[Update, bool]:
        update = await look() or answered.update
        return update, update.status is not UpdateStatus.ACCEPTED

    bell = run_bell(RunId(answered.update.run_id))
    update, done = await until(house, bell, seen, wait_ms, draining)
    return replace(answered, update=update, timed_out=not done)
