"""Simulations that a server runs for its clients: what was asked, how far it is, and what was found."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

KEPT_MS = 7 * 24 * 3_600_000
KEPT_MAX = 100
"""So many of a namespace are kept; the oldest that have ended go first."""
OPEN_MAX = 10
"""So many of a namespace may be under way."""
TIME_MAX_S = 300
"""How long one may run."""
RESULT_BYTES_MAX = 4_000_000
_LOST_AFTER_MS = 2 * OPEN_MAX * TIME_MAX_S * 1_000
"""One that has not ended by then was lost with the server that ran it."""


class SimulationState(StrEnum):
    """The values are API."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SimulationRecord(Struct, frozen=True):
    """A simulation. It is under way until `ended_at_ms` is set."""

    simulation_id: str
    namespace: str
    state: SimulationState
    author: str
    created_at_ms: int
    request: dict[str, Any]
    """What was asked, without the state of the server."""
    ended_at_ms: int | None = None
    result: Any = None
    problem: dict[str, str] | None = None
    """Why it failed: `reason` and `message`."""

    def seen_at(self, now_ms: int) -> SimulationRecord:
        """The record as it is to be shown: one whose server stopped has failed."""
        if self.ended_at_ms is not None or now_ms - self.created_at_ms < _LOST_AFTER_MS:
            return self
        problem = {"reason": "simulation_lost", "message": "The server that ran it stopped. Ask again."}
        return replace(self, state=SimulationState.FAILED, problem=problem, ended_at_ms=now_ms)


def encoded(record: SimulationRecord) -> str:
    return msgspec.json.encode(record).decode()


def decoded(document: str) -> SimulationRecord:
    return msgspec.json.decode(document, type=SimulationRecord)
