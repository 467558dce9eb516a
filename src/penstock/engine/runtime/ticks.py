"""Ticks shared by all periodic tasks, so that an idle server wakes up once for all of them."""

from __future__ import annotations

import asyncio

LATE_S = 0.001
"""Ticks are a little late rather than early: waking early would tick twice."""


def until_tick_s(tick_s: float) -> float:
    """Seconds until the next multiple of `tick_s` on the event loop's clock, which aligns all periodic tasks."""
    return tick_s - asyncio.get_running_loop().time() % tick_s + LATE_S if tick_s else 0.0
