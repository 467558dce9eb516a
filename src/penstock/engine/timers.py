"""Firing: a durable timer that is due becomes an event of its run."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.history.decide import timer_payload
from penstock.core.history.events import EventType
from penstock.core.model import Event, TimerState, run_of
from penstock.core.timers import iso
from penstock.engine.house import House
from penstock.engine.recording import tell
from penstock.ports.store import Tx


async def fire(house: House, timer_id: str) -> bool:
    """Fire a timer once; one that was cancelled or has fired is left alone."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_of(timer_id))
        timer = await tx.timers.get(timer_id)
        if run is None or timer is None or timer.state is not TimerState.OPEN or timer.fire_at_ms > tx.now_ms:
            return False
        tx.timers.save(replace(timer, state=TimerState.FIRED))
        run = replace(run, open_timers=run.open_timers - 1)
        event = Event(EventType.TIMER_FIRED, timer_payload(timer) | {"fired_at": iso(tx.now_ms)})
        run = await tell(tx, run, [event])
        tx.runs.save(run)
        return True

    return await house.store.transact(operation, key=run_of(timer_id))
