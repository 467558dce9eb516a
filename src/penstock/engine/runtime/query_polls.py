"""The query queues that have open polls, so that one database read can serve all of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from penstock.ports.tables.tasks import QueryQueue


class QueryPollRegistry:
    """Counts the open query polls of each query queue."""

    def __init__(self) -> None:
        self._waiting: Counter[QueryQueue] = Counter()

    @property
    def lines(self) -> list[QueryQueue]:
        """The query queues with at least one open poll."""
        return list(self._waiting)

    @contextlib.contextmanager
    def registered(self, line: QueryQueue) -> Iterator[None]:
        """Count a poll of this queue as open while the body runs."""
        self._waiting[line] += 1
        try:
            yield
        finally:
            self._waiting[line] -= 1
            if not self._waiting[line]:
                del self._waiting[line]
