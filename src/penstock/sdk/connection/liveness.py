"""Liveness of server addresses: detects a frozen server, which keeps its connections open and does not answer.

Only for clients with several addresses. If requests wait at an address and nothing has arrived from it for
`UNANSWERED_SECONDS`, `/api/health` is requested from it on another connection: one probe per address and interval,
regardless of the number of requests. A server that answers the probe is alive, and its long polls are not interrupted.
If it does not answer and another address does, requests that may be sent twice are abandoned here, and their senders
switch to the other address. Requests that may not be sent twice keep waiting, because a server that resumes answers
them. If no address answers, all requests keep waiting: the cause may be the network or this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.sdk.http.response import HttpResponse

UNANSWERED_SECONDS: Final = 3.0
"""Time without a response, while requests wait at an address, before it is probed; also the time between probes."""
PROBE_SECONDS: Final = 2.0
"""How long a probe waits for its response."""


class RequestAbandoned(OSError):
    """The server of a request is frozen, and another one answers. The message is to follow the server's address."""


class _WaitingRequests:
    """The requests that wait for a response from one address."""

    def __init__(self) -> None:
        self._sent: dict[asyncio.Future[HttpResponse], tuple[float, bool]] = {}
        """When each was sent, and whether it may be sent to another server. The oldest is first."""
        self.answered_at = 0.0
        self.is_frozen = False

    @property
    def unanswered_since(self) -> float | None:
        """When the current wait without any response started; None if no request waits."""
        for sent_at, _ in self._sent.values():
            return max(sent_at, self.answered_at)
        return None

    def add(self, response: asyncio.Future[HttpResponse], now: float, *, may_move: bool) -> None:
        self._sent[response] = (now, may_move)
        response.add_done_callback(self._done)

    def record_response(self, now: float) -> None:
        self.answered_at, self.is_frozen = now, False

    def abandon(self, problem: str) -> None:
        """Mark the server as frozen and fail the requests that may be sent to another one."""
        self.is_frozen = True
        for response, (_, may_move) in list(self._sent.items()):
            if may_move and not response.done():
                response.set_exception(RequestAbandoned(problem))

    def _done(self, response: asyncio.Future[HttpResponse]) -> None:
        self._sent.pop(response, None)
        if not response.cancelled() and response.exception() is None:
            self.record_response(response.get_loop().time())


class ServerLiveness:
    """Watches the addresses at which requests wait. Addresses are indexes. Used in one event loop at a time."""

    def __init__(
        self, addresses: int, probe: Callable[[int], Awaitable[bool]], move: Callable[[int, int, str], None]
    ) -> None:
        """Watch a number of addresses.

        `probe` returns whether an address answers; `move` switches from the first address to the second, for a reason.
        """
        self._probe, self._move = probe, move
        self._waiting = [_WaitingRequests() for _ in range(addresses)]
        self._checks: dict[int, asyncio.TimerHandle | asyncio.Task[None]] = {}
        """The scheduled or running check of each address at which requests wait."""

    def is_frozen(self, address: int) -> bool:
        """Whether the server was found frozen and has not answered since."""
        return self._waiting[address].is_frozen

    def watch(self, address: int, response: asyncio.Future[HttpResponse], *, may_move: bool) -> None:
        """Watch a request that was sent; `may_move`: it may be sent to another server before this one responds."""
        self._waiting[address].add(response, response.get_loop().time(), may_move=may_move)
        if address not in self._checks:
            self._schedule_check(address, UNANSWERED_SECONDS)

    def stop(self) -> None:
        """Cancel all checks."""
        for each in self._checks.values():
            each.cancel()
        self._checks = {}

    def reset(self) -> None:
        """Discard all state, because the event loop is gone."""
        self._checks = {}
        self._waiting = [_WaitingRequests() for _ in self._waiting]

    def _schedule_check(self, address: int, seconds: float) -> None:
        self._checks[address] = asyncio.get_running_loop().call_later(seconds, self._check, address)

    def _check(self, address: int) -> None:
        since = self._waiting[address].unanswered_since
        if since is None:
            del self._checks[address]
            return
        due_s = since + UNANSWERED_SECONDS - asyncio.get_running_loop().time()
        if due_s > 0:
            self._schedule_check(address, due_s)
        else:
            self._checks[address] = asyncio.create_task(self._examine(address))

    async def _examine(self, address: int) -> None:
        """Probe an address, and leave it if it does not answer and another one does."""
        loop, waiting = asyncio.get_running_loop(), self._waiting[address]
        probed_at = loop.time()
        if await self._probe(address):
            waiting.record_response(loop.time())
        elif waiting.answered_at < probed_at:  # no response to any other request arrived during the probe
            other = await self._first_answering(address)
            if other is not None and waiting.answered_at < probed_at:
                problem = f"answers neither requests nor a health check within {PROBE_SECONDS:g} seconds"
                self._move(address, other, problem)
                waiting.abandon(problem)
        self._schedule_check(address, UNANSWERED_SECONDS)

    async def _first_answering(self, frozen: int) -> int | None:
        """Return the next address that answers a probe."""
        count = len(self._waiting)
        others = [(frozen + step) % count for step in range(1, count)]
        answered = await asyncio.gather(*map(self._probe, others))
        return next((each for each, answers in zip(others, answered, strict=True) if answers), None)
