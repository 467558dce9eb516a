"""Resolving the run that a request addresses: by run id, by workflow id, or by chain.

A client that started a workflow addresses the chain it began: if the workflow id is reused later, its requests do not
reach runs of another start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from penstock.core.model import Run, RunHost, RunId
from penstock.engine.context import EngineContext
from penstock.engine.runs.workflow_ids import newest_of_chain
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx

T = TypeVar("T")
TRIES = 20


class Address(Struct, frozen=True):
    """The run that a request is for."""

    namespace: str
    workflow_id: str
    run_id: RunId | None = None
    """None: the current run."""
    chain: RunId | None = None
    """Any run of a chain, usually its first; addresses the newest run of that chain."""

    @property
    def is_bound(self) -> bool:
        """Whether the caller named a run or a chain rather than the current run."""
        return self.run_id is not None or self.chain is not None


async def on_run(ctx: EngineContext, address: Address, act: Callable[[Tx, Run], Awaitable[T]]) -> T:
    """Run `act` in a transaction that holds the lock of the addressed run, which may be closed.

    If the run continued as new before the lock was taken, the address is resolved again.
    """
    for _ in range(TRIES):
        run_id = await _find(ctx, address)

        async def operation(tx: Tx, run_id: RunId = run_id) -> list[T]:
            run = await tx.runs.lock(run_id)
            if run is None or (not run.is_open and await _has_moved(tx, run, address)):
                return []
            return [await act(tx, run)]

        done = await ctx.store.transact(operation, key=run_id)
        if done:
            return done[0]
    raise Conflict(
        Reason.RUN_NOT_ACTIVE,
        f"{address.workflow_id!r} continues as new too fast to be reached. Try again.",
        workflow_id=address.workflow_id,
    )


async def _has_moved(tx: Tx, run: Run, address: Address) -> bool:
    """Whether the address resolves to another run by now."""
    if address.run_id is not None:
        return False
    if address.chain is not None:
        return (await find(tx, address)).run_id != run.run_id
    instance = await tx.runs.instance(address.namespace, address.workflow_id)
    return instance is None or instance.run_id != run.run_id


async def _find(ctx: EngineContext, address: Address) -> RunId:
    async def operation(tx: Tx) -> RunId:
        return (await find(tx, address)).run_id

    return await ctx.store.read(operation)


async def find(tx: Tx, address: Address) -> Run:
    """Resolve an address. Raises `Conflict` if it names a run that is not the current one of its workflow id."""
    if address.chain is not None:
        return await _find_in_chain(tx, address, address.chain)
    found = await tx.runs.named(address.namespace, address.workflow_id, None)
    instance, run = found or (None, None)
    if instance is None or run is None:
        raise no_instance(address.workflow_id)
    if address.run_id is None or address.run_id == instance.run_id:
        return run
    named = await tx.runs.get(address.run_id)
    if named is None or (named.namespace, named.workflow_id) != (address.namespace, address.workflow_id):
        raise no_run(address.workflow_id, address.run_id)
    raise Conflict(
        Reason.HISTORICAL_RUN_COMMAND_REJECTED,
        f"{address.run_id} is not the current run of {address.workflow_id!r}.",
        workflow_id=address.workflow_id,
        run_id=instance.run_id,
        outcome="rejected_not_current",
        **rejected(Reason.HISTORICAL_RUN_COMMAND_REJECTED),
    )


async def _find_in_chain(tx: Tx, address: Address, chain: RunId) -> Run:
    run = await newest_of_chain(tx, address.namespace, address.workflow_id, chain)
    if run is None:
        raise no_run(address.workflow_id, chain)
    return run


def check_open(run: Run) -> None:
    if not run.is_open:
        raise Conflict(
            Reason.RUN_NOT_ACTIVE,
            f"The run is {run.status.value} already.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            status=run.status.value,
            outcome="rejected_not_active",
            **rejected(Reason.RUN_NOT_ACTIVE),
        )


def check_closed(run: Run, done: str) -> None:
    """Raise `Conflict` if a run is open. `done` says what is done to closed runs only."""
    if run.is_open:
        raise Conflict(
            Reason.RUN_NOT_CLOSED,
            f"The run is {run.status.value}: only a closed run can be {done}.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            status=run.status.value,
            outcome="rejected_run_not_closed",
            **rejected(Reason.RUN_NOT_CLOSED),
        )


def rejected(reason: Reason) -> dict[str, str]:
    """The error details of a command that a run rejected."""
    return {"command_status": "rejected", "rejection_reason": reason.value}


def check_workflow(run: Run) -> None:
    """Raise `NotFound` for the host run of a standalone activity: it takes no signals, updates or queries."""
    if run.host is not RunHost.WORKFLOW:
        raise no_instance(run.workflow_id)


def no_instance(workflow_id: str) -> NotFound:
    return NotFound(
        Reason.INSTANCE_NOT_FOUND, f"There is no workflow {workflow_id!r}.", workflow_id=workflow_id
    )


def no_run(workflow_id: str, run_id: str) -> NotFound:
    return NotFound(
        Reason.RUN_NOT_FOUND,
        f"Workflow {workflow_id!r} has no run {run_id!r}.",
        workflow_id=workflow_id,
        run_id=run_id,
    )
