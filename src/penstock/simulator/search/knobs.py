"""What a search may raise: limits, weights and numbers of workers, with their values in the load."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.errors import InvalidInput, Reason
from penstock.simulator.changes import Change, RehearsedSetting, WorkersChange, check_known, parse_setting
from penstock.simulator.workload import Workload
from penstock.wire.limits.limit_paths import WEIGHTS

_LEASE_CAPS = ("max_active_leases", "max_active_leases_per_queue", "max_running")
"""Names of the lease cap of a queue."""


class Knob(Struct, frozen=True):
    """Something that may be changed, and its value in the load."""

    name: str
    before: int
    setting: RehearsedSetting | None = None
    """The limit or weight, with any value; None: the workers of a queue."""
    queue: str | None = None

    def at(self, value: int) -> Change:
        if self.setting is None:
            return WorkersChange(self.queue, value, None)
        return RehearsedSetting(self.setting.target, self.setting.path, value)


def parse_knob(workload: Workload, text: str) -> Knob:
    """Read what may change: `workers`, `workers:QUEUE`, or a limit or weight that the load sets.

    Raises:
        InvalidInput: there is nothing of that name that could be raised.
    """
    if text == "workers" or text.startswith("workers:"):
        return _workers(workload, text)
    setting = parse_setting(f"{text}=1")
    before = _value(workload, setting)
    if before is None and setting.path[0] == WEIGHTS:
        before = 1
    if isinstance(before, bool) or not isinstance(before, int | float):
        raise _invalid(f"{text} has no number in the load, so it limits nothing that could be raised")
    return Knob(text, max(1, round(before)), setting)


def _workers(workload: Workload, text: str) -> Knob:
    queues = sorted({each.queue for each in workload.pools})
    queue = text.partition(":")[2]
    if queue:
        check_known(queue, queues, "queue with workers")
    elif len(queues) != 1:
        raise _invalid(
            f"{text!r}: there are workers of {len(queues)} queues; write workers:QUEUE for one of them"
        )
    name = queue or queues[0]
    return Knob(text, max(1, _most_at_once(workload, name)), None, name)


def _most_at_once(workload: Workload, queue: str) -> int:
    """The most workers of a queue that were there at one time."""
    moves: list[tuple[int, int]] = []
    kinds = {each.kind for each in workload.pools if each.queue == queue}
    for pool in workload.pools:
        if pool.queue == queue and pool.kind == max(kinds, key=lambda kind: kind.value == "activity"):
            ends = [each for each in (pool.leaves_ms, pool.dies_ms) if each is not None]
            moves += [(pool.joins_ms, pool.count), *((each, -pool.count) for each in ends)]
    there = most = 0
    for _, count in sorted(moves):
        there += count
        most = max(most, there)
    return most


def _value(workload: Workload, change: RehearsedSetting) -> Any:
    """The value in force at the beginning."""
    found: Any = None
    names = {change.path[0]}
    if change.target.scope == "queue" and change.path[0] in _LEASE_CAPS:
        names = set(_LEASE_CAPS)
    for limits in workload.limits:
        if limits.target != change.target or limits.at_ms > 0:
            continue
        for name in names & limits.settings.keys():
            value = limits.settings[name]
            for part in change.path[1:]:
                value = value.get(part) if isinstance(value, dict) else None
            found = value if value is not None else found
    return found


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
