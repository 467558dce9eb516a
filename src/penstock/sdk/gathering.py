"""Starts that are under way together travel together, as reports of a worker do.

A start that meets an idle client goes out alone, at once. While some requests are open, further starts gather,
and the next request takes all of them. Each keeps its own idempotency key, and its own outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.sdk.failures import ServerRefused, Unreachable, refusal
from penstock.sdk.transport import TRIED_AGAIN, Transport, route

Json = dict[str, Any]
BATCH_ITEMS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 1_500_000
"""Well below the body that a server accepts, unless it was set to accept less."""
OPEN_MAX: Final = 4
"""Requests with starts that are open at a time before others gather."""


@dataclass(eq=False, slots=True)
class _Waiting:
    item: Json
    size: int
    answer: asyncio.Future[Json | None] = field(repr=False)
    """What the server says of it; None: it is to go alone."""

    def tell(self, answer: Json | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Starts:
    """Sends starts of one kind (`workflows`, `activities`) for one client."""

    def __init__(self, transport: Transport, kind: str) -> None:
        self._transport = transport
        self._alone, self._together = route(kind), route(kind, "batch")
        self._waiting: deque[_Waiting] = deque()
        self._open = 0
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, body: Json, key: str) -> Json:
        """The server's answer to one start; raises its refusal, or that it was not reached."""
        if self._open >= OPEN_MAX:
            answer = await self._with_others(_keyed(body, key))
            if answer is not None:
                return answer
        self._open += 1
        try:
            return await self._transport.control(
                "POST", self._alone, body, idempotent=True, idempotency_key=key
            )
        finally:
            self._ended()

    async def send_all(self, starts: Sequence[tuple[Json, str]]) -> list[Json]:
        """The answers to many starts, each with its `http_status`: those that were refused are among them."""
        answers: list[Json] = []
        for portion in portions([_keyed(body, key) for body, key in starts]):
            answers += await self._post(portion)
        return answers

    async def _post(self, portion: Sequence[Json]) -> list[Json]:
        answer = await self._transport.control("POST", self._together, {"items": portion}, idempotent=True)
        items: list[Json] = answer["items"]
        return items

    async def _with_others(self, item: Json) -> Json | None:
        """The answer that came with those of others; None if this start must go alone after all."""
        waiting = _Waiting(item, _size(item), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        answer = await waiting.answer
        if answer is None or answer["http_status"] in TRIED_AGAIN:
            return None
        status = answer.pop("http_status")
        if status >= 400:
            raise refusal(status, answer)
        return answer

    def _ended(self) -> None:
        """A request is over: what has gathered meanwhile goes out."""
        self._open -= 1
        some = self._next()
        if some:
            self._open += 1
            sending = asyncio.ensure_future(self._deliver(some))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    def _next(self) -> list[_Waiting]:
        """As many as one request may carry, without those whose senders have gone away."""
        some: list[_Waiting] = []
        room = BATCH_BYTES_MAX
        while self._waiting and len(some) < BATCH_ITEMS_MAX:
            if self._waiting[0].answer.done():
                self._waiting.popleft()
                continue
            room -= self._waiting[0].size
            if some and room < 0:
                break
            some.append(self._waiting.popleft())
        return some

    async def _deliver(self, some: Sequence[_Waiting]) -> None:
        """Tell each its outcome. If the server refuses them together, each goes alone and is told for itself."""
        answers: Sequence[Json | None] = [None] * len(some)
        try:
            answers = await self._post([each.item for each in some])
        except Unreachable as error:
            for each in some:
                each.fail(Unreachable(str(error)))
        except ServerRefused:
            pass
        finally:
            for each, answer in zip(some, answers, strict=True):
                each.tell(answer)
            self._ended()


def portions(items: Sequence[Json]) -> list[list[Json]]:
    """As many items in each as one request may carry."""
    found: list[list[Json]] = []
    size = 0
    for item in items:
        item_bytes = _size(item)
        if not found or len(found[-1]) == BATCH_ITEMS_MAX or size + item_bytes > BATCH_BYTES_MAX:
            found.append([])
            size = 0
        found[-1].append(item)
        size += item_bytes
    return found


def _keyed(body: Json, key: str) -> Json:
    return body | {"idempotency_key": key}


def _size(item: Json) -> int:
    return len(msgspec.json.encode(item))
