"""Where simulations run: a process of their own, never the server's loop."""

from __future__ import annotations

from typing import Protocol


class SimulationFailure(Exception):
    """A simulation that has no result, with a stable reason."""

    def __init__(self, reason: str, message: str) -> None:
        """Describe why.

        Args:
            reason: a word that programs branch on.
            message: for people.
        """
        super().__init__(message)
        self.reason, self.message = reason, message


class SimulationProcess(Protocol):
    async def run(self, job: bytes) -> bytes:
        """Run a job and return its result as JSON; cancelling the call ends the process.

        Raises:
            SimulationFailure: it has no result.
        """
        ...


class NoSimulations:
    """Of a server that cannot start processes."""

    async def run(self, job: bytes) -> bytes:
        raise SimulationFailure("simulations_unavailable", "This server runs no simulations.")
