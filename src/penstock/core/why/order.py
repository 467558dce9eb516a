"""The order in which waiting tasks would be dispatched, as far as limits let them.

The same tags that decide a claim decide it: a lane at `tag` dispatches at `tag`, `tag + stride` and so on, and the
smallest goes first; ties go by key. It is a merge of lanes by a heap, so its cost depends on how many places are asked
for, not on how many tasks wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from penstock.core.scheduling.fairness import Lane
from penstock.core.why.position import turn


def dispatch_order(lanes: Sequence[Lane], virtual: int, most: int) -> list[tuple[str, int]]:
    """The next places of one level: the key that is served, and which of its tasks (0: its first).

    Args:
        lanes: The lanes of the level that may be served, with their tags.
        virtual: The virtual time of the level.
        most: How many places.
    """
    heap = [
        (lane.rank, turn(lane, 0, virtual), lane.key, 0, place)
        for place, lane in enumerate(lanes)
        if lane.count
    ]
    heapq.heapify(heap)
    found: list[tuple[str, int]] = []
    while heap and len(found) < most:
        rank, _, key, served, place = heapq.heappop(heap)
        found.append((key, served))
        if served + 1 < lanes[place].count:
            heapq.heappush(heap, (rank, turn(lanes[place], served + 1, virtual), key, served + 1, place))
    return found
