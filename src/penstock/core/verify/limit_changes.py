"""Which limits may have been in force during a call, from the changes that operators sent.

A change takes effect at some time between its request and its response; without a response it may take effect at any
later time, or never.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf

from penstock.core.verify.observations import LimitsSet, LimitValue

UNKNOWN = None
"""Nothing is certain about the limit."""


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """A change of one limit of one scope."""

    t_inv: float
    t_ok: float
    """When it was certainly in force, or rejected; infinity without a response."""
    value: LimitValue
    ends_at: float | None
    """The earliest time at which it may have expired; None: it does not expire."""

    @property
    def is_certain(self) -> bool:
        return self.t_ok < inf


@dataclass(frozen=True)
class ChangeLog:
    """All changes of one limit of one scope, in order of sending."""

    changes: tuple[ObservedChange, ...]

    def possible(self, since: float, until: float) -> frozenset[LimitValue] | None:
        """The values that may have been in force at some time of a call; None: unknown.

        A value is excluded once a later change was sent after its response, and got a response itself.
        """
        newest = self._newest_before(since)
        if newest == -inf:
            return UNKNOWN
        values = set()
        for index in range(bisect_right(self._sent, until) - 1, -1, -1):
            if self._answered_by[index] < newest:
                break
            change = self.changes[index]
            if change.t_ok < newest:
                continue
            if change.ends_at is not None and change.ends_at <= until:
                return UNKNOWN
            values.add(change.value)
        return frozenset(values)

    def _newest_before(self, since: float) -> float:
        """When the latest change that was certainly in force was sent."""
        index = bisect_right(self._answered, since)
        return self._sent_by[index - 1] if index else -inf

    @cached_property
    def _sent(self) -> list[float]:
        return [change.t_inv for change in self.changes]

    @cached_property
    def _answered_by(self) -> list[float]:
        """The latest response among this change and those before it."""
        return list(accumulate((change.t_ok for change in self.changes), max))

    @cached_property
    def _by_answer(self) -> list[ObservedChange]:
        return sorted((each for each in self.changes if each.is_certain), key=lambda each: each.t_ok)

    @cached_property
    def _answered(self) -> list[float]:
        return [change.t_ok for change in self._by_answer]

    @cached_property
    def _sent_by(self) -> list[float]:
        return list(accumulate((change.t_inv for change in self._by_answer), max))


class LimitChanges:
    """The changes of every limit that operators changed."""

    def __init__(self, sightings: Iterable[LimitsSet]) -> None:
        found: dict[tuple[str, str], list[ObservedChange]] = {}
        for seen in sightings:
            if seen.verdict == "refused":
                continue
            for limit, value in seen.limits.items():
                found.setdefault((seen.scope, limit), []).append(_change(seen, value))
        self._changes = {
            name: ChangeLog(tuple(sorted(changes, key=lambda each: each.t_inv)))
            for name, changes in found.items()
        }
        self.scopes = frozenset(scope for scope, _ in found)

    def possible(self, scope: str, limit: str, since: float, until: float) -> frozenset[LimitValue] | None:
        changes = self._changes.get((scope, limit))
        return UNKNOWN if changes is None else changes.possible(since, until)

    def most(self, scope: str, limit: str, since: float, until: float) -> float:
        """The largest value that may have been in force; infinity if there is no limit or it is unknown."""
        values = self.possible(scope, limit, since, until)
        if values is None:
            return inf
        return max((inf if value is None else float(value) for value in values), default=inf)


def _change(seen: LimitsSet, value: LimitValue) -> ObservedChange:
    certain = seen.t_ok is not None and seen.verdict == "accepted"
    t_ok = seen.t_ok if certain and seen.t_ok is not None else inf
    ends_at = None if seen.expires_in_ms is None else seen.t_inv + seen.expires_in_ms
    return ObservedChange(seen.t_inv, t_ok, value, ends_at)
