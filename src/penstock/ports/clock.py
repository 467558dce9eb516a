"""The clock, injected so that tests control time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall-clock milliseconds for one node. On PostgreSQL decisions use the database's time instead."""

    def now_ms(self) -> int: ...
