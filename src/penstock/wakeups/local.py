"""Wakeups inside one process: whoever listens is called when a bell rings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable

import structlog

from penstock.ports.wakeups import Topic

_log = structlog.get_logger(__name__)


class LocalWakeups:
    """Rings and listens on the thread of the event loop; it takes no locks."""

    def __init__(self) -> None:
        self._listeners: dict[Topic, dict[int, Callable[[], None]]] = {}
        self._beforehand: set[int] = set()
        """Which of them are told before the commit."""
        self._numbers = itertools.count()

    def notify(self, topics: Iterable[Topic], announced: Collection[Topic] = ()) -> None:
        """Call each listener of these bells once; one that fails is logged and stops no other."""
        for topic in dict.fromkeys(topics):
            for number in list(self._listeners.get(topic, ())):
                if topic not in announced or number not in self._beforehand:
                    self._call(topic, number)

    def notify_before_commit(self, topics: Iterable[Topic]) -> Collection[Topic]:
        told: dict[Topic, None] = {}
        for topic in dict.fromkeys(topics):
            for number in self._beforehand.intersection(self._listeners.get(topic, ())):
                self._call(topic, number)
                told[topic] = None
        return told

    def notify_all(self) -> None:
        """Call everybody: some bell may have rung that nobody here could hear."""
        self.notify(list(self._listeners))

    def listen(
        self, topic: Topic, callback: Callable[[], None], *, before_commit: bool = False
    ) -> Callable[[], None]:
        number = next(self._numbers)
        self._listeners.setdefault(topic, {})[number] = callback
        if before_commit:
            self._beforehand.add(number)

        def stop() -> None:
            others = self._listeners.get(topic, {})
            others.pop(number, None)
            self._beforehand.discard(number)
            if not others:
                self._listeners.pop(topic, None)

        return stop

    def _call(self, topic: Topic, number: int) -> None:
        callback = self._listeners.get(topic, {}).get(number)
        if callback is None:  # it stopped listening when a neighbour was called
            return
        try:
            callback()
        except Exception:
            _log.exception("wakeup_listener_failed", topic=topic)
