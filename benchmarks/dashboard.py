"""What the dashboard costs beside a million runs: each page, and fifty pages that stay open.

Pages are measured in this process, and judged by its CPU time where the machine is shared (`dashboard_pages`). Open
pages are streams of a real server, which does the same work with them and without them in turn. What they cost is taken
from the CPU time of the server, which depends far less on neighbours than rates do:

- *of a core*: CPU seconds a second of a server that does nothing else, less those without open pages;
- *dispatch rate*: what is left of one core while the server works. A task costs so much CPU without open pages; what
  the server used beyond that with them, a second, it could not use for tasks.

Rounds alternate which comes first, so that a machine that becomes busier favours neither. The rate by the clock is
reported beside.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import aiohttp
import uvloop

from benchmarks.dashboard_crowds import LONG, QUEUE, SETTINGS, CrowdSizes, fill
from benchmarks.dashboard_pages import BYTES_MAX, MS_MAX, STATEMENTS_MAX, measure_pages
from benchmarks.processes import cpu_of, load_average
from benchmarks.samples import loads, ratio, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.work import Kind, Order, Outcome
from benchmarks.workloads import Say

VIEWERS, STREAMS_A_SESSION = 50, 4
WATCHED = ("", "/queues", f"/queues/{QUEUE}", f"/runs/{LONG}", "/limits", "/workers", "/system", "/changes")
"""What people look at; several look at each."""
CPU_SHARE_MAX, RATE_RATIO_MIN = 0.05, 0.98
SETTLING_S = 5.0
"""How long pages are open before they are measured: each has been rendered by then."""
IN_FLIGHT = 20


class Dashboard:
    """Measure on one store after the other."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground, self._sizes, self._say = ground, sizes, say

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        pages: list[dict[str, Any]] = []
        viewers: list[dict[str, Any]] = []
        for store in stores:
            url = self._filled(store)
            self._say(f"dashboard, {store.value}: pages")
            found = uvloop.run(measure_pages(url, self._sizes.dashboard_asked))
            pages += [{"store": store.value} | row for row in found]
            self._say(f"dashboard, {store.value}: {VIEWERS} open pages")
            with serving(store, self._ground, url, SETTINGS) as stand:
                viewers.append(uvloop.run(self._watched(stand)))
        budgets = {"ms": MS_MAX, "bytes": BYTES_MAX, "statements": STATEMENTS_MAX}
        limits = {"cpu_share": CPU_SHARE_MAX, "rate_ratio": RATE_RATIO_MIN}
        return {"pages": pages, "viewers": viewers, "budgets": budgets | limits}

    def _filled(self, store: StoreName) -> str:
        sizes = self._sizes
        self._say(f"dashboard, {store.value}: filling {sizes.dashboard_runs:,} runs")
        url = new_store(store, self._ground)
        waiting, keys = sizes.dashboard_waiting
        fill(url, CrowdSizes(sizes.dashboard_runs, waiting, keys, sizes.dashboard_events))
        return url

    async def _watched(self, stand: Stand) -> dict[str, Any]:
        """What the server uses at rest and for its work, without open pages and with them, in turn."""
        shares: list[float] = []
        rates: list[float] = []
        by_clock: list[float] = []
        load: list[float] = []
        await asyncio.to_thread(self._work, stand)
        for number in range(self._sizes.dashboard_rounds):
            if number % 2:
                beside, alone = await self._with_pages(stand), await self._measured(stand)
            else:
                alone, beside = await self._measured(stand), await self._with_pages(stand)
            shares.append(beside.resting - alone.resting)
            rates.append(1 - _beyond(beside.work, alone.work))
            by_clock.append(_rate(beside.work) / _rate(alone.work))
            load.append(load_average())
        return {
            "store": stand.store.value,
            "open": VIEWERS,
            "cpu_share": spread(shares, 3),
            "rate_ratio": spread(rates, 3),
            "clock_ratio": spread(by_clock, 3),
            "load": loads(load),
        }

    async def _with_pages(self, stand: Stand) -> _Round:
        async with _watching(stand.url):
            await asyncio.sleep(min(SETTLING_S, self._sizes.dashboard_seconds))
            return await self._measured(stand)

    async def _measured(self, stand: Stand) -> _Round:
        return _Round(await self._resting(stand), await asyncio.to_thread(self._work, stand))

    def _work(self, stand: Stand) -> Outcome:
        order = Order(Kind.ACTIVITIES, "", self._sizes.dashboard_tasks, in_flight=IN_FLIGHT, queue="beside")
        return stand.send(order)

    async def _resting(self, stand: Stand) -> float:
        """How much of a core the server uses while it has nothing to do but to show pages."""
        server = {"server": stand.pids["server"]}
        began, before = time.monotonic(), cpu_of(server)["server"]
        await asyncio.sleep(self._sizes.dashboard_seconds)
        return ratio(cpu_of(server)["server"] - before, time.monotonic() - began) or 0.0


@dataclass(frozen=True, slots=True)
class _Round:
    """One measurement of the server, at rest and at work."""

    resting: float
    work: Outcome


def _rate(work: Outcome) -> float:
    return work.count / work.seconds


def _beyond(beside: Outcome, alone: Outcome) -> float:
    """CPU seconds a second that the server used beyond what as many tasks cost it alone."""
    expected = alone.cpu_seconds["server"] / alone.count * beside.count
    return (beside.cpu_seconds["server"] - expected) / beside.seconds


@contextlib.asynccontextmanager
async def _watching(url: str) -> AsyncIterator[None]:
    """Fifty open pages of as many sessions as that takes; each stream is read as it comes."""
    async with contextlib.AsyncExitStack() as stack:
        streams: list[asyncio.Task[None]] = []
        session: aiohttp.ClientSession | None = None
        for number in range(VIEWERS):
            if number % STREAMS_A_SESSION == 0:
                session = await stack.enter_async_context(_signed_in(url))
            assert session is not None
            target = f"/ui{WATCHED[number % len(WATCHED)]}?_live=1"
            streams.append(asyncio.create_task(_read(session, target)))
        try:
            yield
            for stream in streams:
                if stream.done():
                    stream.result()
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)


@contextlib.asynccontextmanager
async def _signed_in(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(
        url, cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=None)
    ) as session:
        form = {"token": SETTINGS["DW_ADMIN_TOKEN"], "name": "somebody"}
        origin = {"Origin": f"http://{urlparse(url).netloc}"}
        async with session.post("/ui/session", data=form, headers=origin, allow_redirects=False) as answer:
            if answer.status != 303:
                raise RuntimeError(f"signing in answered {answer.status}")
        yield session


async def _read(session: aiohttp.ClientSession, target: str) -> None:
    """Read a stream for as long as it is asked for; it ends now and then, as browsers know."""
    while True:
        async with session.get(target) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{target} answered {answer.status}")
            async for line in answer.content:
                if line.startswith(b"event: paused"):
                    raise RuntimeError(f"{target} has too many streams")
