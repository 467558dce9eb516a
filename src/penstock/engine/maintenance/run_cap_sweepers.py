"""Sweepers for caps on runs: one admits runs that wait to start, one counts runs that a new cap has missed.

`waiting_runs` is woken when a place is given back, when a run begins to wait and when a cap changes; and it is due
while any run waits, in case a wakeup was lost or a cap has expired. `uncounted_runs` counts open runs whose start was
being recorded while a cap was set (see `engine.limits.run_caps`); where none was changed lately it reads one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.limits import run_caps
from penstock.engine.maintenance.sweeper import LAZY_TICK_S, Sweeper
from penstock.engine.workflows import start_caps
from penstock.ports.store import Tx
from penstock.ports.tables.next_due import Due
from penstock.ports.wakeups import RUN_PLACES_TOPIC


def waiting_runs(ctx: EngineContext) -> Sweeper[int]:
    return Sweeper("waiting_runs", ctx, _lines, _admit, awaits=Due.RUN_PLACE, topic=RUN_PLACES_TOPIC)


async def _lines(ctx: EngineContext, limit: int) -> Sequence[int]:
    async def operation(tx: Tx) -> Sequence[int]:
        found: list[int] = []
        while len(found) < limit and (line := await tx.run_places.next_line(found[-1] if found else 0)):
            found.append(line)
        return found

    return await ctx.store.read(operation)


async def _admit(ctx: EngineContext, scope_id: int) -> bool:
    while await start_caps.take_turn(ctx, scope_id):
        pass
    return True


def uncounted_runs(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("uncounted_runs", ctx, _capped_namespaces, _count, pause_s=LAZY_TICK_S)


async def _capped_namespaces(ctx: EngineContext, limit: int) -> Sequence[str]:
    async def operation(tx: Tx) -> Sequence[str]:
        found: list[str] = []
        while len(found) < limit and (name := await tx.run_places.next_namespace(found[-1] if found else "")):
            found.append(name)
        return found

    return await ctx.store.read(operation)


async def _count(ctx: EngineContext, namespace: str) -> bool:
    await run_caps.adopt_latest(ctx, namespace)
    return True
