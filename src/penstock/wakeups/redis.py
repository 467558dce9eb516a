"""Wakeups across servers, over Redis: what one server rings is published, and rung by the others."""

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
"""After this long without a word the connection is asked whether it is still there."""
STEADY_S = 30.0
TOPICS_PER_MESSAGE = 500
WAITING_MAX = 10_000
EVERY_TOPIC = "*"
log = structlog.get_logger("penstock.wakeups")


class RedisWakeups:
    """Rings here at once, and elsewhere as soon as Redis can be reached.

    Bells that cannot be published are kept, each once; too many of them become one that means all. Whoever could
    not hear rings all bells when it can hear again. So a Redis that is away makes wakeups late, up to the pace at
    which everybody looks by itself, and loses nothing.
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
        rung = dict.fromkeys(topics)
        self._local.notify(rung, announced)
        self._waiting |= rung
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
            asyncio.create_task(_forever("hearing", self._hear), name="penstock-redis-hear"),
            asyncio.create_task(_forever("ringing", self._publish), name="penstock-redis-ring"),
        ]

    async def close(self) -> None:
        while open_ := [task for task in self._tasks if not task.done()]:
            for task in open_:
                task.cancel()  # more than once, because Python before 3.12 may lose one on the way
            await asyncio.wait(open_, timeout=RECONNECT_S[0])

    async def _publish(self) -> None:
        """Publish what waits, then wait for more. What was not sent waits on."""
        while True:
            while self._waiting:
                some = list(self._waiting)[:TOPICS_PER_MESSAGE]
                self._waiting = {topic: None for topic in self._waiting if topic not in some}
                try:
                    await self._client.publish(self._channel, ",".join((self._node, *some)))
                except BaseException:
                    self._waiting |= dict.fromkeys(some)
                    raise
            self._arrived.clear()
            await self._arrived.wait()

    async def _hear(self) -> None:
        """Ring what others publish; first of all everything, for much may have rung while nobody heard."""
        async with contextlib.aclosing(self._client.pubsub()) as radio:
            await radio.subscribe(self._channel)
            async for message in _messages(radio):
                if message["type"] == "subscribe":
                    self._local.notify_all()
                elif message["type"] == "message":
                    self._heard(str(message["data"]))

    def _heard(self, text: str) -> None:
        node, *topics = text.split(",")
        if node == self._node:
            return
        if EVERY_TOPIC in topics:
            self._local.notify_all()
        else:
            self._local.notify(topics)


async def _messages(radio: PubSub) -> AsyncIterator[dict[str, Any]]:
    """All that is heard. A connection that stays silent when it is asked has ended, whatever the kernel thinks."""
    asked = False
    while True:
        message = await radio.get_message(timeout=SILENCE_S)
        if message is not None:
            asked = False
            yield message
        elif asked:
            raise TimeoutError
        else:
            asked = True
            await radio.ping()


async def _forever(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Begin again whenever it fails, after pauses that grow; one that worked for a while begins at once."""
    loop = asyncio.get_running_loop()
    pause = RECONNECT_S[0]
    while True:
        began_at = loop.time()
        try:
            await work()
        except Exception as error:  # whatever it is, bells do not travel; and nobody else would begin again
            if loop.time() - began_at > STEADY_S:
                pause = RECONNECT_S[0]
            if pause == RECONNECT_S[0]:
                log.warning("redis carries no bells; trying again", what=what, error=type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RECONNECT_S[1])
