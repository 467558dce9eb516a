"""Tracks requests between clients, workers and the server of an environment, and awaited results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.testing.skippable_clock import release


@dataclass(eq=False, slots=True)
class ResultWait:
    """A request that waits for a result. While there is one, time may be skipped."""

    path: str
    given_up: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Fails if the result will never come."""


class RequestTracker:
    """Counts requests. Polls are not counted: a worker that polls is idle."""

    def __init__(self) -> None:
        self.moves = 0
        """Incremented whenever something begins or ends."""
        self.busy = 0
        """Requests in progress that do not wait for anything."""
        self.waits: set[ResultWait] = set()
        self._watchers: set[asyncio.Future[None]] = set()

    def note_activity(self) -> None:
        """Record that something began or ended."""
        self.moves += 1
        for each in self._watchers:
            release(each)

    async def active_since(self, moves: int, seconds: float) -> bool:
        """Wait until something begins or ends; False if nothing did within `seconds`."""
        if self.moves == moves:
            loop = asyncio.get_running_loop()
            stirred: asyncio.Future[None] = loop.create_future()
            late = loop.call_later(seconds, release, stirred)
            self._watchers.add(stirred)
            try:
                await stirred
            finally:
                self._watchers.discard(stirred)
                late.cancel()
        return self.moves != moves

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count a request during which time stands still."""
        self.busy += 1
        self.note_activity()
        try:
            yield
        finally:
            self.busy -= 1
            self.note_activity()

    @contextlib.contextmanager
    def poll(self) -> Iterator[None]:
        self.note_activity()
        try:
            yield
        finally:
            self.note_activity()

    @contextlib.contextmanager
    def wait(self, path: str) -> Iterator[ResultWait]:
        """Count a request that waits for a result."""
        wait = ResultWait(path)
        self.waits.add(wait)
        self.note_activity()
        try:
            yield wait
        finally:
            self.waits.discard(wait)
            wait.given_up.cancel()
            self.note_activity()
