"""Timers: a due timer becomes an event of its run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.history import parallel_groups
from penstock.core.history.events import EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT, timer_payload
from penstock.core.model import NewEvent, Timer, TimerState, run_of
from penstock.core.timestamps import iso
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import record_external_event
from penstock.ports.store import Tx


async def fire(ctx: EngineContext, timer_id: str) -> bool:
    """Fire a due, open timer; returns whether it was open and due."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_of(timer_id))
        timer = await tx.timers.get(timer_id)
        if run is None or timer is None or timer.state is not TimerState.OPEN or timer.fire_at_ms > tx.now_ms:
            return False
        if not run.is_open:
            tx.timers.save(replace(timer, state=TimerState.CANCELLED))
            return True
        tx.timers.save(replace(timer, state=TimerState.FIRED))
        run = replace(run, open_timers=run.open_timers - 1)
        run = await record_external_event(tx, run, _events(timer, tx.now_ms))
        tx.runs.save(run)
        return True

    return await ctx.store.transact(operation, key=run_of(timer_id))


def _events(timer: Timer, now_ms: int) -> Sequence[NewEvent]:
    """The events of a fired timer. The timer of a condition inside a selection also records the wait's timeout."""
    payload = timer_payload(timer) | {"fired_at": iso(now_ms)}
    fired = NewEvent(EventType.TIMER_FIRED, payload)
    if payload.get("timer_kind") != CONDITION_TIMEOUT or parallel_groups.PATH not in payload:
        return [fired]
    return [fired, NewEvent(EventType.CONDITION_WAIT_TIMED_OUT, payload)]


async def cancel(tx: Tx, timer_id: str) -> None:
    """Cancel a timer if it is still open."""
    timer = await tx.timers.get(timer_id)
    if timer is not None and timer.state is TimerState.OPEN:
        tx.timers.save(replace(timer, state=TimerState.CANCELLED))
