"""Coordination by Redis: a lock is a key that holds a token and ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from penstock.errors import Reason, Unavailable
from penstock.ports.coordination import LOCK_TTL_S, LOCK_WAIT_S
from penstock.ports.entropy import Entropy

OUTAGES = (RedisError, OSError)
CONNECTIONS_MAX = 64
PROBE_S = 0.5
"""Pause between two looks at whether locks can be taken."""
SHARE_S = 0.2
"""How long after it was taken a lock still admits further callers of its server; then others have their turn."""
PAUSE_S = (0.002, 0.05)
REMIND_S = 60.0
PREFIX = "penstock:lock:"
TTL_MS = round(LOCK_TTL_S * 1000)
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
"""Only the holder of the token may release: after its end a lock may be somebody else's."""
log = structlog.get_logger("penstock.coordination")


def connect(url: str) -> Redis:
    """A client that asks once and says so when there is no answer; whoever uses it decides about another try."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS_MAX,
        timeout=LOCK_WAIT_S,
        protocol=2,
        decode_responses=True,
        socket_connect_timeout=LOCK_WAIT_S,
        socket_timeout=LOCK_WAIT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


@dataclass(eq=False, slots=True)
class _Hold:
    """A lock that this server has: its callers inside, and until when more may join them."""

    token: str
    open_until: float
    inside: int = 0


@dataclass(eq=False, slots=True)
class _Door:
    """One name: who is at it, in line or inside, and the lock that lets them in."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    hold: _Hold | None = None
    guests: int = 0


class RedisCoordination:
    """Works for as long as the server lives; a Redis that is away is asked again until it is back."""

    kind = "redis"

    def __init__(self, client: Redis, node: str, entropy: Entropy) -> None:
        self._client = client
        self._node = node
        self._entropy = entropy
        self._doors: dict[str, _Door] = {}
        self._outage: str | None = "it was not asked yet"
        self._warned_at: float | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def is_supported(self) -> bool:
        return self._outage is None

    @contextlib.asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        if self._outage is not None:
            raise _unavailable(f"Redis cannot lend locks now ({self._outage}).")
        door = self._doors.setdefault(name, _Door())
        door.guests += 1
        try:
            hold = await self._enter(name, door)
            try:
                yield
            finally:
                self._leave(name, door, hold)
        finally:
            door.guests -= 1
            if not door.guests:
                del self._doors[name]

    async def start(self) -> None:
        """Look for the first time, then watch. A Redis that is away now is no reason not to start."""
        await self._probe()
        self._watcher = asyncio.create_task(self._watch(), name="penstock-redis-watch")

    async def close(self) -> None:
        while self._watcher is not None and not self._watcher.done():
            self._watcher.cancel()  # more than once, because Python before 3.12 may lose one on the way
            await asyncio.wait([self._watcher], timeout=PROBE_S)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _enter(self, name: str, door: _Door) -> _Hold:
        try:
            async with asyncio.timeout(LOCK_WAIT_S), door.turn:
                hold = door.hold
                if hold is None or asyncio.get_running_loop().time() > hold.open_until:
                    hold = door.hold = await self._take_unless_gone(name)
                hold.inside += 1
                return hold
        except TimeoutError:
            raise _unavailable(f"The lock was not to be had within {LOCK_WAIT_S:g} s.") from None
        except OUTAGES as error:
            self._note(error)
            raise _unavailable(f"Redis cannot lend locks now ({_shown(error)}).") from error

    def _leave(self, name: str, door: _Door, hold: _Hold) -> None:
        hold.inside -= 1
        if hold.inside:
            return
        if door.hold is hold:
            door.hold = None
        self._later(self._release(name, hold.token))

    async def _take_unless_gone(self, name: str) -> _Hold:
        """Take the lock; if the caller goes away meanwhile, give back what was taken for it.

        The taking is a task of its own. It ends in time by itself and is never cancelled, so that it is always
        known whether the lock was taken.
        """
        token = self._entropy.token()
        taking = asyncio.create_task(self._take(name, token))
        try:
            return await asyncio.shield(taking)
        except BaseException:
            self._later(self._give_back(name, token, taking))
            raise

    async def _take(self, name: str, token: str) -> _Hold:
        loop = asyncio.get_running_loop()
        ends_at, pause = loop.time() + LOCK_WAIT_S, PAUSE_S[0]
        while not await self._client.set(PREFIX + name, token, nx=True, px=TTL_MS):
            if loop.time() > ends_at:
                raise TimeoutError
            await asyncio.sleep(random.uniform(PAUSE_S[0], pause))
            pause = min(2 * pause, PAUSE_S[1])
        return _Hold(token, loop.time() + SHARE_S)

    async def _give_back(self, name: str, token: str, taking: asyncio.Task[_Hold]) -> None:
        await asyncio.gather(taking, return_exceptions=True)
        await self._release(name, token)

    async def _release(self, name: str, token: str) -> None:
        with contextlib.suppress(*OUTAGES):  # then it ends by itself
            await cast("Coroutine[Any, Any, Any]", self._client.eval(RELEASE, 1, PREFIX + name, token))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            await self._probe()

    async def _probe(self) -> None:
        """Write a key of our own, as a lock would be: a replica or a full Redis still answers to a ping."""
        try:
            await self._client.set(f"{PREFIX}probe:{self._node}", self._node, px=TTL_MS)
        except Exception as error:  # whatever it is, no lock can be taken; and the watch must not end
            self._note(error)
        else:
            self._note(None)

    def _note(self, error: Exception | None) -> None:
        """Remember whether locks can be taken; say so when that changes, and once a minute while they cannot."""
        if error is None:
            if self._outage is not None and self._warned_at is not None:
                log.info("redis lends locks again")
            self._outage = self._warned_at = None
            return
        self._outage = _shown(error)
        now = asyncio.get_running_loop().time()
        if self._warned_at is None or now - self._warned_at >= REMIND_S:
            log.warning("redis cannot lend locks; capped lines and queries wait for it", error=self._outage)
            self._warned_at = now

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shown(error: Exception) -> str:
    return type(error).__name__


def _unavailable(message: str) -> Unavailable:
    return Unavailable(
        Reason.COORDINATION_UNAVAILABLE,
        f"{message} Try again shortly.",
        outcome="none",
        retry_after_seconds=1,
    )
