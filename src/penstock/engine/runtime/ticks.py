"""Beats that all who look by themselves keep in common: a server that has nothing to do wakes up once for them all."""

from __future__ import annotations

import asyncio

LATE_S = 0.001
"""A beat is a little late rather than early, which would make it two."""


def until_tick_s(beat_s: float) -> float:
    """How long it is until the next beat; whoever looks seldom does so when others do."""
    return beat_s - asyncio.get_running_loop().time() % beat_s + LATE_S if beat_s else 0.0
