"""Waiting for something to be true in the store: woken by a bell, looking anyway once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.engine.house import House
from penstock.ports.wakeups import Bell

T = TypeVar("T")
LOOK_AGAIN_S = 1.0


async def until(
    house: House,
    bell: Bell,
    look: Callable[[], Awaitable[tuple[T, bool]]],
    wait_ms: int,
    draining: asyncio.Event,
    *,
    look_again_s: float = LOOK_AGAIN_S,
) -> tuple[T, bool]:
    """What was seen last, and whether it is what was waited for; the server's leaving ends the wait."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_ms / 1000
    changed = asyncio.Event()
    silence = house.wakeups.listen(bell, changed.set)
    try:
        while True:
            changed.clear()
            seen, done = await look()
            left = ends_at - loop.time()
            if done or left <= 0 or draining.is_set():
                return seen, done
            await first_of(changed, draining, timeout_s=min(left, look_again_s))
    finally:
        silence()


async def first_of(*events: asyncio.Event, timeout_s: float) -> None:
    """Until one of the events is set, or it is time to look anyway."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
