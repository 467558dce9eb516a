"""Whether a backlog drains by itself: a forecast from what came and what went in the last minute.

It has three answers that a person acts upon differently: the backlog clears in about some time, it grows, or it stands
still. Paces of a single minute are coarse, so the time is an estimate and is never given without its state.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

_STEADY_SHARE = 0.02
"""Paces that differ by less than this share of the larger one are equal."""


class DrainState(StrEnum):
    """The values are API."""

    EMPTY = "empty"
    CLEARS = "clears"
    STEADY = "steady"
    GROWS = "grows"
    STALLED = "stalled"


class DrainForecast(Struct, frozen=True):
    """What becomes of a backlog if the last minute goes on."""

    state: DrainState
    clear_in_s: float | None = None
    grows_per_s: float | None = None


def drain_forecast(waiting: int, added: int, dispatched: int) -> DrainForecast:
    """The forecast for a backlog.

    Args:
        waiting: Tasks that wait now.
        added: Tasks that came in the last minute.
        dispatched: Tasks that were dispatched in the last minute.
    """
    if not waiting:
        return DrainForecast(DrainState.EMPTY)
    net = (dispatched - added) / 60
    if not dispatched and not added:
        return DrainForecast(DrainState.STALLED)
    if abs(net) * 60 <= _STEADY_SHARE * max(dispatched, added):
        return DrainForecast(DrainState.STEADY)
    if net < 0:
        return DrainForecast(DrainState.GROWS, grows_per_s=-net)
    return DrainForecast(DrainState.CLEARS, clear_in_s=waiting / net)
