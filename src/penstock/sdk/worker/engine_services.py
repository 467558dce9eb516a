"""The seam between `Worker` and the engine that gives it tasks.

On our engine a worker polls its queues over the transport. A transport of another engine has a method `services`, and
the worker runs what it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.sdk.converters import DataConverter
from penstock.sdk.dispatch_options import ConfigGetter
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.registry import WorkerRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker as its program made it."""

    registry: WorkerRegistry
    options: WorkerOptions
    task_queues: Sequence[str]
    namespace: str
    identity: str
    build_id: str | None
    converter: DataConverter
    interceptors: Sequence[Any]
    dispatch: ConfigGetter
    executor: Any = None
    """The pool for sync activities, if the program gave one."""
    has_metrics: bool = False
    """Whether the program wants metrics of the worker."""


class WorkerServices(Protocol):
    """Runs the tasks of a worker, from `open` to `close`."""

    @property
    def killed(self) -> int:
        """Number of processes that were killed during shutdown."""

    async def open(self, stop: asyncio.Event) -> bool:
        """Start. Returns False if the worker is stopped before a server is reachable."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Run tasks until stopped. Raises fatal refusals of the server."""

    async def adjust(self, options: WorkerOptions) -> None:
        """Apply new options while running."""

    async def close(self) -> None:
        """Let running tasks end within the grace period."""
