"""What tests of workers share: what a worker tells of itself, and a transport that is watched or cut."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock.sdk import activity
from penstock.sdk.connection.transport import Transport
from penstock.sdk.failures import Unreachable

Json = dict[str, Any]


class Numbers:
    """Counts what a worker tells of itself."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.timings: Counter[str] = Counter()
        self.levels: dict[tuple[str, ...], float] = {}

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        self.counts[name, *labels.values()] += by

    def timing(self, name: str, seconds: float, **labels: str) -> None:
        self.timings[name] += 1

    def level(self, name: str, value: float, **labels: str) -> None:
        self.levels[name, *labels.values()] = value


class Gates:
    """An activity that tells which ones run, and ends each when it is let go."""

    def __init__(self, *, opened: bool = False) -> None:
        self.ran: list[str] = []
        self.running: set[str] = set()
        self.peak = 0
        self._opened = asyncio.Event()
        self._own: dict[str, asyncio.Event] = {}
        self._news = asyncio.Event()
        if opened:
            self._opened.set()

    @activity.defn(name="pass_gate")
    async def pass_gate(self, name: str) -> str:
        self.ran.append(name)
        self.running.add(name)
        self.peak = max(self.peak, len(self.running))
        self._news.set()
        try:
            await self._until_let_go(name)
        finally:
            self.running.discard(name)
            self._news.set()
        return name

    async def _until_let_go(self, name: str) -> None:
        own = self._own.setdefault(name, asyncio.Event())
        if not self._opened.is_set():
            await own.wait()

    def open(self) -> None:
        """Let go all that run, and all that come."""
        self._opened.set()
        for each in self._own.values():
            each.set()

    def let_go(self, name: str) -> None:
        self._own[name].set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._news.clear()
            await self._news.wait()


class Watched:
    """A transport that keeps what a worker asks, and may refuse it or lose the answer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.asked: list[tuple[str, Json]] = []
        self.loses: Callable[[str], bool] = lambda _: False
        """Of which paths the answer is lost on the way."""
        self.refuses: Callable[[str], Exception | None] = lambda _: None
        """Which paths are refused instead of asked."""
        self._news = asyncio.Event()

    async def control(self, method: str, path: str, body: Json | None = None, **how: Any) -> Json:
        return await self._transport.control(method, path, body, **how)

    async def work(self, path: str, body: Json, **how: Any) -> Json:
        self.asked.append((path, body))
        self._news.set()
        refused = self.refuses(path)
        if refused is not None:
            raise refused
        answer = await self._transport.work(path, body, **how)
        if self.loses(path):
            raise Unreachable("the answer was lost")
        return answer

    async def close(self) -> None:
        await self._transport.close()

    def of(self, ending: str) -> list[Json]:
        """The bodies of what was asked at paths with an ending."""
        return [body for path, body in self.asked if path.endswith(ending)]

    async def until(self, ending: str, times: int = 1) -> None:
        """Wait until something was asked so often."""
        while len(self.of(ending)) < times:
            self._news.clear()
            await self._news.wait()
