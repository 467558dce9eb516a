"""Live pages: one stream of server-sent events a page, and one rendering a second for all who look at the same thing.

A *scene* is what a stream shows: a page with its parameters, in a namespace, for a role. While anybody looks at a
scene, one task renders its live panels, at most once a second; each stream sends the panels that differ from what it
sent before. With no stream there is no task: a browser closes the stream of a hidden tab, so a hidden tab costs
nothing. The interval grows with what the renderings of all scenes cost, so that together they use at most one part in
`cost_share` of a core: with many different pages open, each is a little older, and says how old. A process that is busy
with its work spends less on them, because what one core does for pages it does not dispatch. What counts is the CPU
time of this process: waiting for a database, or for a busy machine, makes no page older than it must be.

A stream ends after `STREAM_S`, and the browser opens the next one, which checks the session again. A session has at
most `STREAMS_MAX` streams, because a browser allows six connections to a host; one more is told to pause, and to try
again after `RETRY_MS`.

Every event has the time at which it was made as its id. What a browser has not read waits in buffers that hold minutes
of news, where no server can take it back: one that swaps slowly sees by the id that it has fallen behind, and connects
again (`static/live.js`). A stream without news has a sign of life every `ALIVE_S`, so that silence means a connection
that is lost. Rejected: an acknowledgement of every event, which would cost a request a second and page.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

import structlog
from msgspec import Struct

from penstock.errors import PenstockError

INTERVAL_S: Final = 1.0
COST_SHARE: Final = 30
BUSY_COST_SHARE: Final = 100
BUSY_CORES: Final = 0.2
STREAM_S: Final = 60.0
STREAMS_MAX: Final = 4
GRACE_S: Final = 2.0
ALIVE_S: Final = 10.0
RETRY_MS: Final = 5_000
SCENES_MAX: Final = 500
TURN_S: Final = 2.0
"""A rendering that takes longer no longer keeps others from their turn."""
RENDERING_S_MAX: Final = 30.0
"""A rendering that takes longer is given up."""
log = structlog.get_logger("penstock.dashboard")


class Scene(Struct, frozen=True):
    """What a stream shows; streams with equal scenes share their renderings."""

    page: str
    path: tuple[tuple[str, str], ...]
    query: tuple[tuple[str, str], ...]
    namespace: str
    role: str
    """Its role decides what a visitor sees, so visitors of one role share what was rendered."""


Panels = Mapping[str, str]
_NOTHING: Final[Panels] = {}
Render = Callable[[Scene], Awaitable[Panels]]


class _Showing:
    """The newest rendering of a scene, and how many streams show it."""

    def __init__(self) -> None:
        self.panels: Panels = {}
        self._encoded: list[tuple[Panels, bytes]] = []
        """The news of this rendering, by what a stream has sent before: most have sent the same."""
        self.trouble: str | None = None
        self.streams = 0
        self.cost_s = 0.0
        """The smaller cost of the last two renderings: what a first one or a long run costs once is no rule."""
        self.latest_s = 0.0
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def show(self, panels: Panels) -> None:
        """Take a new rendering."""
        self.panels, self.trouble, self._encoded = panels, None, []

    def news_since(self, sent: Panels) -> bytes:
        """The event for a stream that has sent an earlier rendering; empty if nothing has changed."""
        for earlier, event in self._encoded:
            if earlier is sent:
                return event
        news = {name: html for name, html in self.panels.items() if sent.get(name) != html}
        event = _event(None, "".join(_partial(name, html) for name, html in news.items())) if news else b""
        self._encoded.append((sent, event))
        return event


def cost_share(cores: float) -> int:
    """How many times as long as its renderings took a page waits for the next one.

    Args:
        cores: How many cores this process uses.
    """
    return COST_SHARE if cores < BUSY_CORES else BUSY_COST_SHARE


class _Usage:
    """How many cores this process used in the last second or longer."""

    def __init__(self) -> None:
        self._at, self._used_s = time.perf_counter(), time.process_time()
        self._cores = 0.0

    def cores(self) -> float:
        now, used_s = time.perf_counter(), time.process_time()
        if now - self._at >= INTERVAL_S:
            self._cores = (used_s - self._used_s) / (now - self._at)
            self._at, self._used_s = now, used_s
        return self._cores


class LiveHub:
    """The scenes that somebody looks at.

    Args:
        render: Renders the live panels of a scene.
    """

    def __init__(self, render: Render) -> None:
        self._render = render
        self._showings: dict[Scene, _Showing] = {}
        self._sessions: Counter[str] = Counter()
        self._closing = asyncio.Event()
        self._usage = _Usage()
        self._turn = asyncio.Lock()
        """Renderings happen one at a time, so that what one costs can be measured; one that is slow waits alone."""

    @property
    def open_streams(self) -> int:
        return sum(self._sessions.values())

    def close(self) -> None:
        """End all streams, because the server stops."""
        self._closing.set()
        for showing in self._showings.values():
            showing.changed.set()

    async def closed(self) -> None:
        """Wait until the server stops."""
        await self._closing.wait()

    async def stream(self, scene: Scene, session_id: str) -> AsyncIterator[bytes]:
        """Events for one browser, until the stream has lasted its time or the server stops.

        Args:
            scene: What it shows.
            session_id: The session whose streams are counted.
        """
        if not await self._has_room(session_id):
            yield _event("paused", "too many", retry_ms=RETRY_MS)
            return
        showing = self._showings.setdefault(scene, _Showing())
        showing.streams += 1
        self._sessions[session_id] += 1
        if showing.task is None or showing.task.done():
            showing.task = asyncio.create_task(self._keep_rendering(scene, showing), name="penstock-live")
        try:
            async for event in self._events(showing):
                yield event
        finally:
            self._sessions[session_id] -= 1
            showing.streams -= 1
            if not showing.streams:
                self._showings.pop(scene, None)
                if showing.task is not None:
                    showing.task.cancel()

    async def _has_room(self, session_id: str) -> bool:
        """Whether the session may have one more stream; that of a page that was left just now is still ending."""
        ends_at = time.monotonic() + GRACE_S
        while self._sessions[session_id] >= STREAMS_MAX or len(self._showings) >= SCENES_MAX:
            if time.monotonic() >= ends_at or self._closing.is_set():
                return False
            await asyncio.sleep(GRACE_S / 20)
        return True

    async def _events(self, showing: _Showing) -> AsyncIterator[bytes]:
        sent: Panels = _NOTHING
        ends_at = time.monotonic() + STREAM_S
        while not self._closing.is_set() and time.monotonic() < ends_at:
            changed = showing.changed
            if showing.trouble is not None:
                yield _event("trouble", showing.trouble)
            else:
                news, sent = showing.news_since(sent), showing.panels
                if news:
                    yield news
            while not changed.is_set() and (left_s := ends_at - time.monotonic()) > 0:
                try:
                    async with asyncio.timeout(min(ALIVE_S, left_s)):
                        await changed.wait()
                except TimeoutError:
                    yield _event("alive", "")

    async def _keep_rendering(self, scene: Scene, showing: _Showing) -> None:
        while not self._closing.is_set():
            began_at, before_s = await self._render_in_turn(scene, showing)
            took_s = time.perf_counter() - began_at
            # The process may have done other work meanwhile, but not for longer than the rendering took.
            cost_s = min(took_s, time.process_time() - before_s)
            showing.cost_s, showing.latest_s = min(showing.latest_s, cost_s), cost_s
            event, showing.changed = showing.changed, asyncio.Event()
            event.set()
            share = cost_share(self._usage.cores())
            await asyncio.sleep(max(0.0, max(INTERVAL_S, share * self.cost_s) - took_s))

    async def _render_in_turn(self, scene: Scene, showing: _Showing) -> tuple[float, float]:
        """Render when it is this scene's turn; returns the times by the clock and of the process at its beginning."""
        async with self._turn:
            began = time.perf_counter(), time.process_time()
            rendering = asyncio.create_task(self._render_once(scene, showing), name="penstock-live-rendering")
            try:
                await asyncio.wait({rendering}, timeout=TURN_S)
            except asyncio.CancelledError:
                rendering.cancel()
                raise
        await rendering
        return began

    async def _render_once(self, scene: Scene, showing: _Showing) -> None:
        """Render the panels, or note the trouble: whatever ends a rendering, the next one is tried."""
        try:
            async with asyncio.timeout(RENDERING_S_MAX):
                showing.show(await self._render(scene))
        except PenstockError as error:
            showing.trouble = error.message
        except TimeoutError:
            log.warning("a page of the dashboard takes too long", page=scene.page, seconds=RENDERING_S_MAX)
            showing.trouble = "The server does not come to read what this page shows."
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("a page of the dashboard was interrupted", page=scene.page)
            showing.trouble = "The server interrupted this page."
        except Exception as error:
            log.error("a page of the dashboard failed", page=scene.page, exc_info=error)
            showing.trouble = "The server failed; see its log for the cause."

    @property
    def cost_s(self) -> float:
        """CPU seconds that one rendering of every scene takes."""
        return sum(each.cost_s for each in self._showings.values())


def _partial(name: str, html: str) -> str:
    return f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{html}</hx-partial>'


def _event(name: str | None, data: str, *, retry_ms: int | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    head += f"id: {time.monotonic_ns() // 1_000_000}\n"
    head += "" if retry_ms is None else f"retry: {retry_ms}\n"
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"{head}{lines}\n".encode()
