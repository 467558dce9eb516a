"""Simulations that were asked for over the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.core.operations.simulations import SimulationRecord


class Simulations(Protocol):
    async def get(self, namespace: str, simulation_id: str) -> SimulationRecord | None: ...
    async def lock(self, simulation_id: str) -> SimulationRecord | None:
        """The record, locked until the commit."""
        ...

    async def page(self, namespace: str, limit: int) -> Sequence[SimulationRecord]:
        """Those of a namespace, newest first."""
        ...

    async def any_before(self, created_ms: int) -> bool: ...
    def create(self, record: SimulationRecord) -> None: ...
    def save(self, record: SimulationRecord) -> None: ...
    def delete(self, simulation_id: str) -> None: ...
    def forget(self, created_ms: int) -> None:
        """Delete those that were created before an instant."""
        ...
