"""Batches concurrent starts into few requests.

A start of an idle client is sent alone, immediately. While some requests are in flight, further starts are queued,
and the next request carries all of them. Each keeps its own idempotency key and its own outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.sdk.connection.transport import Transport, route
from penstock.sdk.failures import Unreachable

Json = dict[str, Any]
log = logging.getLogger("penstock.sdk")
BATCH_ITEMS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 1_500_000
"""Well below the maximum request body of a server, unless that is configured lower."""
OPEN_MAX: Final = 4
"""Requests in flight before further starts are queued."""
SLOW_REQUEST_S: Final = 1.0
"""If no request has ended for this long, queued starts stop waiting for one."""


@dataclass(eq=False, slots=True)
class _PendingStart:
    item: Json
    size: int
    response: asyncio.Future[Json | None] = field(repr=False)
    """The server's response; None if it must be sent alone."""
    is_sent: bool = False

    def tell(self, response: Json | None) -> None:
        if not self.response.done():
            self.response.set_result(response)

    def fail(self, error: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(error)


class StartBatcher:
    """Sends starts of one kind (`workflows`, `activities`) for one client."""

    def __init__(self, transport: Transport, kind: str) -> None:
        self._transport = transport
        self._single_path, self._batch_path = route(kind), route(kind, "batch")
        self._queue: _StartQueue | None = None

    async def send(self, body: Json, key: str) -> Json:
        """Send one start and return the server's response. Raises `ServerRefused` or `Unreachable`."""
        line = self._queue_for_loop()
        if line.is_full:
            response = await line.response_for(_keyed(body, key))
            if response is not None:
                return response
        with line.open_request():
            return await self._transport.control(
                "POST", self._single_path, body, idempotent=True, idempotency_key=key
            )

    async def send_all(self, starts: Sequence[tuple[Json, str]]) -> list[Json]:
        """Send many starts and return their responses, each with its `http_status`, including refusals."""
        responses: list[Json] = []
        for portion in portions([_keyed(body, key) for body, key in starts]):
            responses += await self._post(portion)
        return responses

    def _queue_for_loop(self) -> _StartQueue:
        """Return the queue of the running event loop. A client may be used in another loop once its own has ended."""
        loop = asyncio.get_running_loop()
        if self._queue is None or self._queue.loop is not loop:
            self._queue = _StartQueue(loop, self._post)
        return self._queue

    async def _post(self, portion: Sequence[Json]) -> list[Json]:
        response = await self._transport.control(
            "POST", self._batch_path, {"items": portion}, idempotent=True
        )
        items = response.get("items")
        if not isinstance(items, list) or len(items) != len(portion):
            raise ValueError(
                f"The server received {len(portion)} starts, but did not return an outcome for each."
            )
        return items


class _StartQueue:
    """Queued starts and requests in flight of one event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, post: Callable[[Sequence[Json]], Awaitable[list[Json]]]
    ) -> None:
        self.loop = loop
        self._post = post
        self._waiting: deque[_PendingStart] = deque()
        self._open = 0
        self._ended_at = loop.time()
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        return self._open >= OPEN_MAX

    @contextmanager
    def open_request(self) -> Iterator[None]:
        """Count a request in flight. When it ends, queued starts are sent."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._ended_at = self.loop.time()
            if some := self._next():
                sending = asyncio.ensure_future(self._deliver(some))
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)

    async def response_for(self, item: Json) -> Json | None:
        """Return the response to a start that was batched; None if it must be sent alone.

        A start that was refused in a batch is sent alone too: it then gets the response, or the retries, that it
        would have had without the batch.
        """
        waiting = _PendingStart(item, _size(item), self.loop.create_future())
        self._waiting.append(waiting)
        patience = self.loop.call_later(SLOW_REQUEST_S, self._watch_pending, waiting)
        try:
            response = await waiting.response
        finally:
            patience.cancel()
        accepted = response is not None and response.pop("http_status", 500) < 400
        return response if accepted else None

    def _watch_pending(self, waiting: _PendingStart) -> None:
        """Release a start that waits for requests that do not end, to be sent alone."""
        if waiting.is_sent or waiting.response.done():
            return
        left_s = self._ended_at + SLOW_REQUEST_S - self.loop.time()
        if left_s > 0:
            self.loop.call_later(left_s, self._watch_pending, waiting)
        else:
            waiting.tell(None)

    def _next(self) -> list[_PendingStart]:
        """Return as many queued starts as one request may carry, skipping those whose caller was cancelled."""
        some: list[_PendingStart] = []
        room = BATCH_BYTES_MAX
        while self._waiting and len(some) < BATCH_ITEMS_MAX:
            if self._waiting[0].response.done():
                self._waiting.popleft()
                continue
            room -= self._waiting[0].size
            if some and room < 0:
                break
            some.append(self._waiting.popleft())
        return some

    async def _deliver(self, some: Sequence[_PendingStart]) -> None:
        """Resolve each start with its outcome. If the server refuses the batch, each is sent alone."""
        responses: Sequence[Json | None] = [None] * len(some)
        with self.open_request():
            for each in some:
                each.is_sent = True
            try:
                responses = await self._post([each.item for each in some])
            except Unreachable as error:
                for each in some:
                    each.fail(_is_retriable(error))
            except Exception as error:
                log.debug("%d starts go alone: %r", len(some), error)
            finally:
                for each, response in zip(some, responses, strict=True):
                    each.tell(response)


def _is_retriable(error: Unreachable) -> Unreachable:
    """Return a copy of the error for another caller, which raises it with its own traceback."""
    copy = Unreachable(str(error))
    copy.__cause__ = error.__cause__
    return copy


def portions(items: Sequence[Json]) -> list[list[Json]]:
    """Split items into batches that one request may carry."""
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
