"""Wakeups inside one process: whoever listens is called when a bell rings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable

import structlog

from penstock.ports.wakeups import Bell

_log = structlog.get_logger(__name__)


class LocalWakeups:
    """Rings and listens on the thread of the event loop; it takes no locks."""

    def __init__(self) -> None:
        self._listeners: dict[Bell, dict[int, Callable[[], None]]] = {}
        self._beforehand: set[int] = set()
        """Which of them are told before the commit."""
        self._numbers = itertools.count()

    def ring(self, bells: Iterable[Bell], foretold: Collection[Bell] = ()) -> None:
        """Call each listener of these bells once; one that fails is logged and stops no other."""
        for bell in dict.fromkeys(bells):
            for number in list(self._listeners.get(bell, ())):
                if bell not in foretold or number not in self._beforehand:
                    self._call(bell, number)

    def foretell(self, bells: Iterable[Bell]) -> Collection[Bell]:
        told: dict[Bell, None] = {}
        for bell in dict.fromkeys(bells):
            for number in self._beforehand.intersection(self._listeners.get(bell, ())):
                self._call(bell, number)
                told[bell] = None
        return told

    def ring_all(self) -> None:
        """Call everybody: some bell may have rung that nobody here could hear."""
        self.ring(list(self._listeners))

    def listen(
        self, bell: Bell, callback: Callable[[], None], *, beforehand: bool = False
    ) -> Callable[[], None]:
        number = next(self._numbers)
        self._listeners.setdefault(bell, {})[number] = callback
        if beforehand:
            self._beforehand.add(number)

        def stop() -> None:
            others = self._listeners.get(bell, {})
            others.pop(number, None)
            self._beforehand.discard(number)
            if not others:
                self._listeners.pop(bell, None)

        return stop

    def _call(self, bell: Bell, number: int) -> None:
        callback = self._listeners.get(bell, {}).get(number)
        if callback is None:  # it stopped listening when a neighbour was called
            return
        try:
            callback()
        except Exception:
            _log.exception("wakeup_listener_failed", bell=bell)
