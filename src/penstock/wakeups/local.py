"""Wakeups inside one process: subscribers of a topic are called when it is notified."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable

import structlog

from penstock.ports.wakeups import Topic

_log = structlog.get_logger(__name__)


class LocalWakeups:
    """Publish and subscribe on the event loop's thread, without locks."""

    def __init__(self) -> None:
        self._listeners: dict[Topic, dict[int, Callable[[], None]]] = {}
        self._before_commit: set[int] = set()
        """The subscriptions that are called before the commit."""
        self._numbers = itertools.count()

    def notify(self, topics: Iterable[Topic], announced: Collection[Topic] = ()) -> None:
        """Call each subscriber of these topics once; an exception is logged and stops no other subscriber."""
        for topic in dict.fromkeys(topics):
            for number in list(self._listeners.get(topic, ())):
                if topic not in announced or number not in self._before_commit:
                    self._call(topic, number)

    def notify_before_commit(self, topics: Iterable[Topic]) -> Collection[Topic]:
        announced: dict[Topic, None] = {}
        for topic in dict.fromkeys(topics):
            for number in self._before_commit.intersection(self._listeners.get(topic, ())):
                self._call(topic, number)
                announced[topic] = None
        return announced

    def notify_all(self) -> None:
        """Call every subscriber: notifications may have been lost."""
        self.notify(list(self._listeners))

    def listen(
        self, topic: Topic, callback: Callable[[], None], *, before_commit: bool = False
    ) -> Callable[[], None]:
        number = next(self._numbers)
        self._listeners.setdefault(topic, {})[number] = callback
        if before_commit:
            self._before_commit.add(number)

        def stop() -> None:
            others = self._listeners.get(topic, {})
            others.pop(number, None)
            self._before_commit.discard(number)
            if not others:
                self._listeners.pop(topic, None)

        return stop

    def _call(self, topic: Topic, number: int) -> None:
        callback = self._listeners.get(topic, {}).get(number)
        if callback is None:  # unsubscribed by another callback
            return
        try:
            callback()
        except Exception:
            _log.exception("wakeup_listener_failed", topic=topic)
