"""How much a busy machine held this test up, so that a promised bound can be judged on any machine.

A promise such as "within two seconds" is about the program, on a machine that runs it. A thread that does nothing but
sleep measures what the machine adds: each time it wakes late, the difference is time in which a process that was ready
to run did not run. A bound plus that time is a bound which a quiet machine holds strictly, and a loaded one fairly.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Self

NAP_S = 0.005
USUAL_S = 0.001
"""How late a thread wakes on a quiet machine."""


class Lag:
    """Measures from the beginning of the block on; `so_far` is what has come together."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        """When the thread woke late, and by how much."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="lag", daemon=True)

    @property
    def so_far(self) -> timedelta:
        return timedelta(seconds=sum(seconds for _, seconds in list(self._late)))

    def between(self, begin: float, end: float) -> float:
        """The seconds of lag that fell between two moments of `time.monotonic`."""
        return sum(min(late, at - begin) for at, late in list(self._late) if begin < at <= end)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._over.is_set():
            before = time.monotonic()
            time.sleep(NAP_S)
            woke = time.monotonic()
            if woke - before > NAP_S + USUAL_S:
                self._late.append((woke, woke - before - NAP_S - USUAL_S))
