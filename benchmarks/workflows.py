"""What workflows cost where they are large: long histories, wide groups, many timers, signals and closed runs.

Measured through HTTP on a real server. Every ratio has both of its sides from one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.workflows_fan_out import FanOut
from benchmarks.workflows_histories import Histories
from benchmarks.workflows_lists import Lists
from benchmarks.workflows_signals import Signals
from benchmarks.workflows_timers import SleepingTimers
from benchmarks.workloads import Say


class Workflows:
    """Measure on one store after the other, part by part."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        at_work: list[dict[str, Any]] = []
        asleep: list[dict[str, Any]] = []
        for store in stores:
            for part in (Histories, FanOut, Signals, Lists):
                at_work += part(self._ground, self._sizes, self._say).run(store)
            asleep += SleepingTimers(self._ground, self._sizes, self._say).run(store)
        return {"at_work": at_work, "asleep": asleep}
