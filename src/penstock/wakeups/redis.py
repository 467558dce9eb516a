"""Wakeups across servers by Redis publish/subscribe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from penstock.ports.wakeups import Topic
from penstock.wakeups.local import LocalWakeups

RECONNECT_S = (0.1, 2.0)
SILENCE_S = 5.0
"""An idle connection is probed after this time."""
STEADY_S = 30.0
TOPICS_PER_MESSAGE = 500
WAITING_MAX = 10_000
EVERY_TOPIC = "*"
log = structlog.get_logger("penstock.wakeups")


class RedisWakeups:
    """Notifies this node at once, and other nodes as soon as Redis is reachable.

    Topics that cannot be published are kept, each once; too many of them collapse into one that stands for all. A node
    that reconnects notifies all its subscribers. So an outage of Redis delays wakeups, by at most the interval at which
    subscribers poll anyway, and loses none.
    """

    def __init__(self, client: Redis, channel: str, node: str, local: LocalWakeups) -> None:
        self._client = client
        self._channel = channel
        self._node = node
        self._local = local
        self._waiting: dict[Topic, None] = {}
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def notify(self, topics: Iterable[Topic], announced: Collection[Topic] = ()) -> None:
        notified = dict.fromkeys(topics)
        self._local.notify(notified, announced)
        self._waiting |= notified
        if len(self._waiting) > WAITING_MAX:
            self._waiting = {EVERY_TOPIC: None}
        self._arrived.set()

    def notify_before_commit(self, topics: Iterable[Topic]) -> Collection[Topic]:
        return self._local.notify_before_commit(topics)

    def listen(
        self, topic: Topic, callback: Callable[[], None], *, before_commit: bool = False
    ) -> Callable[[], None]:
        return self._local.listen(topic, callback, before_commit=before_commit)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(_forever("subscribe", self._receive), name="penstock-redis-subscribe"),
            asyncio.create_task(_forever("publish", self._publish), name="penstock-redis-publish"),
        ]

    async def close(self) -> None:
        while open_ := [task for task in self._tasks if not task.done()]:
            for task in open_:
                task.cancel()  # more than once, because Python before 3.12 may lose one on the way
            await asyncio.wait(open_, timeout=RECONNECT_S[0])

    async def _publish(self) -> None:
        """Publish pending topics, then wait for more. Topics that were not sent stay pending."""
        while True:
            while self._waiting:
                batch = list(self._waiting)[:TOPICS_PER_MESSAGE]
                self._waiting = {topic: None for topic in self._waiting if topic not in batch}
                try:
                    await self._client.publish(self._channel, ",".join((self._node, *batch)))
                except BaseException:
                    self._waiting |= dict.fromkeys(batch)
                    raise
            self._arrived.clear()
            await self._arrived.wait()

    async def _receive(self) -> None:
        """Notify topics that other nodes publish; first all of them, since some may have been missed."""
        async with contextlib.aclosing(self._client.pubsub()) as pubsub:
            await pubsub.subscribe(self._channel)
            async for message in _messages(pubsub):
                if message["type"] == "subscribe":
                    self._local.notify_all()
                elif message["type"] == "message":
                    self._on_message(str(message["data"]))

    def _on_message(self, text: str) -> None:
        node, *topics = text.split(",")
        if node == self._node:
            return
        if EVERY_TOPIC in topics:
            self._local.notify_all()
        else:
            self._local.notify(topics)


async def _messages(pubsub: PubSub) -> AsyncIterator[dict[str, Any]]:
    """Received messages. Raises `TimeoutError` when an idle connection does not respond to a ping."""
    pinged = False
    while True:
        message = await pubsub.get_message(timeout=SILENCE_S)
        if message is not None:
            pinged = False
            yield message
        elif pinged:
            raise TimeoutError
        else:
            pinged = True
            await pubsub.ping()


async def _forever(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Restart the work whenever it fails, with exponential backoff that resets after a stable period."""
    loop = asyncio.get_running_loop()
    pause = RECONNECT_S[0]
    while True:
        began_at = loop.time()
        try:
            await work()
        except Exception as error:  # any error: nothing else restarts it
            if loop.time() - began_at > STEADY_S:
                pause = RECONNECT_S[0]
            if pause == RECONNECT_S[0]:
                log.warning(
                    "redis pub/sub unavailable; polling every 1 s until it is back",
                    what=what,
                    error=type(error).__name__,
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, RECONNECT_S[1])
