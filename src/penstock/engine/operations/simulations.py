"""Simulations for clients: accept, run in a process of its own, keep the result, cancel.

The record is written first, so that every server can show it. The server that accepted it runs it; a cancellation on
another server is a write that the running one looks for while it waits. A record whose server stopped is shown as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from penstock.core.operations.simulations import (
    KEPT_MAX,
    OPEN_MAX,
    RESULT_BYTES_MAX,
    TIME_MAX_S,
    SimulationRecord,
    SimulationState,
)
from penstock.engine.context import EngineContext
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.simulation_process import SimulationFailure
from penstock.ports.store import Tx

LOOK_S = 2.0
"""How often a running simulation looks whether another server cancelled it."""
log = structlog.get_logger("penstock")


async def submit(
    ctx: EngineContext, namespace: str, request: dict[str, Any], job: bytes, author: str
) -> SimulationRecord:
    """Record a simulation and start it.

    Args:
        ctx: the server.
        namespace: whose load is simulated.
        request: what was asked, which is kept.
        job: what the process gets, with the state of the server.
        author: who asked.
    """

    async def operation(tx: Tx) -> SimulationRecord:
        known = [each.seen_at(tx.now_ms) for each in await tx.simulations.page(namespace, KEPT_MAX)]
        if sum(each.ended_at_ms is None for each in known) >= OPEN_MAX:
            message = f"{OPEN_MAX} simulations of this namespace are under way. Wait for one, or cancel it."
            raise Conflict(Reason.TOO_MANY_SIMULATIONS, message)
        if len(known) == KEPT_MAX:
            tx.simulations.delete(next(each for each in reversed(known) if each.ended_at_ms).simulation_id)
        record = SimulationRecord(
            ctx.entropy.new_id(), namespace, SimulationState.RUNNING, author, tx.now_ms, request
        )
        tx.simulations.create(record)
        return record

    record = await ctx.store.transact(operation, key=f"simulations:{namespace}")
    ctx.simulation_runs.start(record.simulation_id, partial(_run, ctx, record, job))
    return record


async def get(ctx: EngineContext, namespace: str, simulation_id: str) -> SimulationRecord:
    """A simulation as it stands."""

    async def operation(tx: Tx) -> SimulationRecord:
        found = await tx.simulations.get(namespace, simulation_id)
        if found is None:
            raise _unknown(simulation_id)
        return found.seen_at(tx.now_ms)

    return await ctx.store.read(operation)


async def page(ctx: EngineContext, namespace: str, limit: int) -> Sequence[SimulationRecord]:
    """The simulations of a namespace, newest first."""

    async def operation(tx: Tx) -> Sequence[SimulationRecord]:
        return [each.seen_at(tx.now_ms) for each in await tx.simulations.page(namespace, limit)]

    return await ctx.store.read(operation)


async def cancel(ctx: EngineContext, namespace: str, simulation_id: str) -> SimulationRecord:
    """End a simulation that is under way; one that has ended stays as it is."""
    await get(ctx, namespace, simulation_id)
    found = await _end(ctx, simulation_id, SimulationState.CANCELLED)
    ctx.simulation_runs.stop(simulation_id)
    if found is None:
        raise _unknown(simulation_id)
    return found


async def _run(ctx: EngineContext, record: SimulationRecord, job: bytes) -> None:
    try:
        async with ctx.simulation_runs.turn, asyncio.timeout(TIME_MAX_S):
            raw = await _unless_cancelled(ctx, record, ctx.simulations.run(job))
        if len(raw) > RESULT_BYTES_MAX:
            raise SimulationFailure("result_too_large", "The result is too large. Simulate fewer queues.")
        await _end(ctx, record.simulation_id, SimulationState.DONE, result=msgspec.json.decode(raw))
    except TimeoutError:
        problem = {"reason": "simulation_too_long", "message": f"It ran for more than {TIME_MAX_S} s."}
        await _end(ctx, record.simulation_id, SimulationState.FAILED, problem=problem)
    except SimulationFailure as failure:
        problem = {"reason": failure.reason, "message": failure.message}
        await _end(ctx, record.simulation_id, SimulationState.FAILED, problem=problem)
    except asyncio.CancelledError:
        problem = {"reason": "simulation_lost", "message": "The server that ran it stopped. Ask again."}
        await _end(ctx, record.simulation_id, SimulationState.FAILED, problem=problem)
        raise


async def _unless_cancelled(ctx: EngineContext, record: SimulationRecord, running: Any) -> bytes:
    """What the process returns; it is ended once the record is, which another server may have done."""
    task = asyncio.ensure_future(running)
    try:
        while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
            found = await ctx.store.read(
                lambda tx: tx.simulations.get(record.namespace, record.simulation_id)
            )
            if found is None or found.ended_at_ms is not None:
                raise SimulationFailure("simulation_cancelled", "It was cancelled.")
        return bytes(task.result())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _end(
    ctx: EngineContext, simulation_id: str, state: SimulationState, **found: Any
) -> SimulationRecord | None:
    """Record an end, unless there is one."""

    async def operation(tx: Tx) -> SimulationRecord | None:
        record = await tx.simulations.lock(simulation_id)
        if record is None or record.ended_at_ms is not None:
            return record
        ended = replace(record, state=state, ended_at_ms=tx.now_ms, **found)
        tx.simulations.save(ended)
        return ended

    return await ctx.store.transact(operation, key=f"simulation:{simulation_id}")


def _unknown(simulation_id: str) -> NotFound:
    message = f"There is no simulation {simulation_id}; results are kept for 7 days."
    return NotFound(Reason.SIMULATION_NOT_FOUND, message)
