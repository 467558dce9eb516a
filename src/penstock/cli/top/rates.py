"""Rates of queues, from counts that the server begins anew with each minute of the clock.

Between two looks a count has grown by what was added; if it is smaller than before, a minute began, and all that it
shows was added since. Over the looks of the last half minute the growths add up to a rate. A single look gives none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.cli.top.snapshot import QueueRow
from penstock.cli.top.state import RowName

WINDOW_SECONDS = 30.0

Look = tuple[float, dict[RowName, tuple[int, int]]]


class QueueRates:
    """Adds rates to rows, from the looks of the last half minute."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def rated(self, rows: Sequence[QueueRow], at_seconds: float) -> list[QueueRow]:
        """The rows with their rates; call it once a look.

        Args:
            rows: What the server answered.
            at_seconds: When it answered, on a clock that never goes back.
        """
        counts = {row.name: (row.added_this_minute, row.dispatched_this_minute) for row in rows}
        self._looks.append((at_seconds, counts))
        while len(self._looks) > 2 and self._looks[1][0] < at_seconds - WINDOW_SECONDS:
            self._looks.popleft()
        return [self._rated(row) for row in rows]

    def _rated(self, row: QueueRow) -> QueueRow:
        looks = [(at, counts.get(row.name, (0, 0))) for at, counts in self._looks]
        seconds = looks[-1][0] - looks[0][0]
        if seconds <= 0:
            return row
        added, dispatched = (_growth([counts[n] for _, counts in looks]) / seconds for n in (0, 1))
        return replace(row, added_per_second=round(added, 2), dispatched_per_second=round(dispatched, 2))


def _growth(counts: Sequence[int]) -> int:
    return sum(after - before if after >= before else after for before, after in pairwise(counts))
