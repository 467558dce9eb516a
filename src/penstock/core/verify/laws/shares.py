"""Fair shares: of two keys that wait, neither gets more than its weight says, in any interval.

For keys i and j of one queue and level that both have waiting tasks all the time, |Si/wi - Sj/wj| is at most
1/wi + 1/wj in any interval, S being dispatches and w weights (`fair-share`). Each pair is followed by one number,
D = Si * wj - Sj * wi, which is exact in integers. The largest difference over all intervals is that between the
largest and the smallest D so far, and it must not exceed wi + wj.

A pair is followed from the first grant of the later of both, because a key has its place in the order only after a
claim has seen it. It ends when one of them has nothing visible waiting, changes its weight, or gets a dispatch back;
when settings change, all pairs end. Queues whose workers take different types are not judged, nor are those without a
`weight` in their grants: they serve by arrival or by running tasks, or limit single keys.
"""

from __future__ import annotations

from penstock.core.verify.findings import CheckNotice, Findings, Law, LawViolation
from penstock.core.verify.journal import UNCHARGED, LeaseEnded, LeaseGranted, QueuePlace
from penstock.core.verify.live_leases import LiveLease
from penstock.core.verify.waiting_tasks import WaitingTasks, first_of

KEYS_FOLLOWED_MAX = 32
"""Most keys of a level that are compared with each other at a time."""


class _Level:
    """The keys of a level that are compared, and their pairs; the first of a pair is the smaller key."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self.pairs: dict[tuple[str, str], list[int]] = {}
        """D now, and the smallest and the largest so far."""

    def add(self, key: str, weight: int) -> None:
        for other in self.weights:
            self.pairs[min(key, other), max(key, other)] = [0, 0, 0]
        self.weights[key] = weight

    def remove(self, key: str) -> None:
        if self.weights.pop(key, None) is not None:
            for other in self.weights:
                del self.pairs[min(key, other), max(key, other)]


class SharesLaw:
    """Checks "fair-shares" for every grant of a queue that is shared by keys."""

    def __init__(self, book: Findings, waiting: WaitingTasks) -> None:
        self._book = book
        self._waiting = waiting
        self._levels: dict[tuple[QueuePlace, int], _Level] = {}

    def granted(self, line: LeaseGranted) -> None:
        """Follow the level of a grant; its task was taken from those that wait."""
        if line.level is None or line.key is None:
            return
        place = line.namespace, line.task_queue, line.kind
        name = place, line.level
        if line.weight is None or not self._waiting.are_interchangeable(place):
            self._levels.pop(name, None)
            return
        level = self._levels.setdefault(name, _Level())
        self._drop_idle(level, place, line)
        if level.weights.get(line.key, line.weight) != line.weight:
            level.remove(line.key)
        if line.key in level.weights:
            self._serve(level, line, line.key)
        elif len(level.weights) < KEYS_FOLLOWED_MAX:
            level.add(line.key, line.weight)
        else:
            self._book.notice(
                CheckNotice(
                    "shares", f"of more than {KEYS_FOLLOWED_MAX} keys some are not compared", line.seq
                )
            )
        if not self._waiting.lane(place, line.level, line.key):
            level.remove(line.key)

    def ended(self, line: LeaseEnded, lease: LiveLease | None) -> None:
        """A key whose dispatch is taken back gets another one in addition."""
        if lease is not None and line.how in UNCHARGED and lease.grant.level is not None:
            grant = lease.grant
            level = self._levels.get(((grant.namespace, grant.task_queue, grant.kind), lease.grant.level))
            if level is not None and grant.key is not None:
                level.remove(grant.key)

    def restart(self) -> None:
        """Begin again: settings have changed, or the clock was set."""
        self._levels.clear()

    def _drop_idle(self, level: _Level, place: QueuePlace, line: LeaseGranted) -> None:
        assert line.level is not None
        for key in [*level.weights]:
            first = first_of(self._waiting.lane(place, line.level, key))
            if key != line.key and not self._waiting.is_passed_over(first, line.at_ms):
                level.remove(key)

    def _serve(self, level: _Level, line: LeaseGranted, key: str) -> None:
        for other, weight in level.weights.items():
            if other == key:
                continue
            self._book.checked[Law.FAIR_SHARES] += 1
            pair = level.pairs[min(key, other), max(key, other)]
            pair[0] += weight if key < other else -weight
            pair[1], pair[2] = min(pair[1], pair[0]), max(pair[2], pair[0])
            if pair[2] - pair[1] > weight + level.weights[key]:
                self._find(level, line, key, other)
                pair[:] = [0, 0, 0]

    def _find(self, level: _Level, line: LeaseGranted, key: str, other: str) -> None:
        weights = f"{level.weights[key] / 1000:g} to {level.weights[other] / 1000:g}"
        message = f"key {key!r} of level {line.level} got more than its share of {weights} while key {other!r} waited"
        scope = f"queue:{line.namespace}/{line.task_queue}/{line.kind}"
        self._book.find(LawViolation(Law.FAIR_SHARES, message, line.at_ms, line.seq, scope))
