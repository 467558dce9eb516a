"""The recent answer rate of each queue's queries, from which `Retry-After` of a full query queue is computed."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable

REMEMBERED_MAX = 1_000
ANSWERS_MAX = 64
LATELY_S = 60.0
RETRY_AFTER_S_MAX = 60


class QueryPace:
    """The newest answer times per queue, in memory. Answers given by other servers are not included."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._answers: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def answered(self, namespace: str, task_queue: str) -> None:
        """Record that a worker answered a query of this queue now."""
        answers = self._answers.setdefault((namespace, task_queue), deque(maxlen=ANSWERS_MAX))
        answers.append(self._monotonic())
        self._answers.move_to_end((namespace, task_queue))
        if len(self._answers) > REMEMBERED_MAX:
            self._answers.popitem(last=False)

    def retry_after_s(self, namespace: str, task_queue: str, *, default_ms: int, longest_ms: int) -> int:
        """Whole seconds until a slot is expected to be free at the recent rate, from 1 to 60.

        `default_ms` is used when there were no recent answers; after `longest_ms` a slot is free in any case.
        """
        now = self._monotonic()
        answers = [at for at in self._answers.get((namespace, task_queue), ()) if now - at <= LATELY_S]
        wait_s = (now - answers[0]) / len(answers) if answers else default_ms / 1000
        most = max(1, min(RETRY_AFTER_S_MAX, math.ceil(longest_ms / 1000)))
        return min(max(1, math.ceil(wait_s)), most)
