"""Which run a caller means: the one that is named, the newest of a workflow id, or the newest of one of its chains.

The client that started a workflow names the chain that it began: if the id is used again later, its requests do not
reach the runs of another start.
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
    namespace: str
    workflow_id: str
    run_id: RunId | None = None
    """None: the current run."""
    chain: RunId | None = None
    """Any run of a chain, usually its first. The newest run of that chain is meant."""

    @property
    def is_bound(self) -> bool:
        """Whether the caller means certain runs, and not whichever the workflow id names."""
        return self.run_id is not None or self.chain is not None


async def on_run(ctx: EngineContext, address: Address, act: Callable[[Tx, Run], Awaitable[T]]) -> T:
    """Do something with the run that is meant, locked. It may be closed.

    A run that has continued as new meanwhile is not the one that is meant, unless it was named.
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
        f"{address.workflow_id!r} goes on in a new run too fast to be reached. Try again.",
        workflow_id=address.workflow_id,
    )


async def _has_moved(tx: Tx, run: Run, address: Address) -> bool:
    """Whether the workflow id names another run by now."""
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
    """The run that is meant; refuses one that is not the current run of its workflow id."""
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


def rejected(reason: Reason) -> dict[str, str]:
    """What a command that a run does not take is told besides its outcome."""
    return {"command_status": "rejected", "rejection_reason": reason.value}


def check_workflow(run: Run) -> None:
    """Standalone activities can be ended, but nobody can talk to them."""
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
