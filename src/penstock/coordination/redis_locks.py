"""Coordination by Redis: a lock is a key with a token and a time to live."""

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
"""The interval at which it is probed whether locks can be taken."""
SHARE_S = 0.2
"""How long after it was taken a lock admits further callers of its server; then other servers get their turn."""
PAUSE_S = (0.002, 0.05)
REMIND_S = 60.0
PREFIX = "penstock:lock:"
TTL_MS = round(LOCK_TTL_S * 1000)
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
"""Only the holder of the token may release: an expired lock may belong to another server."""
log = structlog.get_logger("penstock.coordination")


def connect(url: str) -> Redis:
    """A client without retries of its own: callers decide."""
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
class _HeldLock:
    """A lock held by this server: its current users, and until when more may join."""

    token: str
    shared_until: float
    users: int = 0


@dataclass(eq=False, slots=True)
class _LockState:
    """The lock of one name, and the callers that wait for it or hold it."""

    mutex: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: _HeldLock | None = None
    callers: int = 0


class RedisCoordination:
    """Locks for the lifetime of the server; an unavailable Redis is probed until it is back."""

    kind = "redis"

    def __init__(self, client: Redis, node: str, entropy: Entropy) -> None:
        self._client = client
        self._node = node
        self._entropy = entropy
        self._locks: dict[str, _LockState] = {}
        self._outage: str | None = "not probed yet"
        self._warned_at: float | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_supported(self) -> bool:
        return self._outage is None

    @contextlib.asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        if self._outage is not None:
            raise _unavailable(f"Redis locks are unavailable ({self._outage}).")
        state = self._locks.setdefault(name, _LockState())
        state.callers += 1
        try:
            held = await self._enter(name, state)
            try:
                yield
            finally:
                self._leave(name, state, held)
        finally:
            state.callers -= 1
            if not state.callers:
                del self._locks[name]

    async def start(self) -> None:
        """Probe once, then at an interval. An unavailable Redis does not prevent the start."""
        await self._probe()
        self._watcher = asyncio.create_task(self._watch(), name="penstock-redis-watch")

    async def close(self) -> None:
        while self._watcher is not None and not self._watcher.done():
            self._watcher.cancel()  # more than once, because Python before 3.12 may lose one on the way
            await asyncio.wait([self._watcher], timeout=PROBE_S)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _enter(self, name: str, state: _LockState) -> _HeldLock:
        try:
            async with asyncio.timeout(LOCK_WAIT_S), state.mutex:
                held = state.held
                if held is None or asyncio.get_running_loop().time() > held.shared_until:
                    held = state.held = await self._acquire(name)
                held.users += 1
                return held
        except TimeoutError:
            raise _unavailable(f"The lock was not acquired within {LOCK_WAIT_S:g} s.") from None
        except OUTAGES as error:
            self._note(error)
            raise _unavailable(f"Redis locks are unavailable ({_shown(error)}).") from error

    def _leave(self, name: str, state: _LockState, held: _HeldLock) -> None:
        held.users -= 1
        if held.users:
            return
        if state.held is held:
            state.held = None
        self._run_in_background(self._release(name, held.token))

    async def _acquire(self, name: str) -> _HeldLock:
        """Acquire the lock; if the caller is cancelled meanwhile, release it.

        Acquisition is a task of its own that ends by its own timeout and is never cancelled, so that it is always
        known whether the lock was taken.
        """
        token = self._entropy.token()
        acquisition = asyncio.create_task(self._try_acquire(name, token))
        try:
            return await asyncio.shield(acquisition)
        except BaseException:
            self._run_in_background(self._release_acquired(name, token, acquisition))
            raise

    async def _try_acquire(self, name: str, token: str) -> _HeldLock:
        loop = asyncio.get_running_loop()
        ends_at, pause = loop.time() + LOCK_WAIT_S, PAUSE_S[0]
        while not await self._client.set(PREFIX + name, token, nx=True, px=TTL_MS):
            if loop.time() > ends_at:
                raise TimeoutError
            await asyncio.sleep(random.uniform(PAUSE_S[0], pause))
            pause = min(2 * pause, PAUSE_S[1])
        return _HeldLock(token, loop.time() + SHARE_S)

    async def _release_acquired(self, name: str, token: str, acquisition: asyncio.Task[_HeldLock]) -> None:
        await asyncio.gather(acquisition, return_exceptions=True)
        await self._release(name, token)

    async def _release(self, name: str, token: str) -> None:
        with contextlib.suppress(*OUTAGES):  # then it expires
            await cast("Coroutine[Any, Any, Any]", self._client.eval(RELEASE, 1, PREFIX + name, token))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            await self._probe()

    async def _probe(self) -> None:
        """Write a key, as a lock does: a replica or a full Redis still responds to a ping."""
        try:
            await self._client.set(f"{PREFIX}probe:{self._node}", self._node, px=TTL_MS)
        except Exception as error:  # any error: no lock can be taken, and the probe must go on
            self._note(error)
        else:
            self._note(None)

    def _note(self, error: Exception | None) -> None:
        """Record whether locks can be taken; log changes, and once a minute while they cannot."""
        if error is None:
            if self._outage is not None and self._warned_at is not None:
                log.info("redis locks are available again")
            self._outage = self._warned_at = None
            return
        self._outage = _shown(error)
        now = asyncio.get_running_loop().time()
        if self._warned_at is None or now - self._warned_at >= REMIND_S:
            log.warning(
                "redis locks unavailable; queues with limits and query tasks wait until it is back, "
                "other queues are not affected",
                error=self._outage,
            )
            self._warned_at = now

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
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
