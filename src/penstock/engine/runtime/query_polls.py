"""The lines of questions at which polls wait, so that one look serves all of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from penstock.ports.store import QueryQueue


class QueryPollRegistry:
    """Told by polls for questions how long they wait; asked by whoever looks for them."""

    def __init__(self) -> None:
        self._waiting: Counter[QueryQueue] = Counter()

    @property
    def lines(self) -> list[QueryQueue]:
        return list(self._waiting)

    @contextlib.contextmanager
    def registered(self, line: QueryQueue) -> Iterator[None]:
        self._waiting[line] += 1
        try:
            yield
        finally:
            self._waiting[line] -= 1
            if not self._waiting[line]:
                del self._waiting[line]
