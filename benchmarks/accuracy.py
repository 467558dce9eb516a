"""How exact fairness is: the same questions, asked alike, of our server and of a real Temporal dev server."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.fair_line import FairLine, Waiting
from benchmarks.fair_measures import first_places, middle_and_worst, share_error, unserved_percent
from benchmarks.peers.environments import Absent
from benchmarks.peers.managed_processes import PeerFailed
from benchmarks.penstock_line import penstock_line
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.temporal_peer import installed, temporal_line
from benchmarks.workloads import Say

WEIGHTS = {"five": 5.0, "three": 3.0, "two": 2.0}
WEIGHT_AFTER = 10.0
"""What the weight of the favoured key, 1 like all others, is changed to on a standing backlog."""
FAVOURED_DEPTH = 25
LONE = "newcomer"
NEWCOMERS = tuple(f"newcomer-{number}" for number in range(20))
BATCH = 50
SEED = 1
PARTITIONS = (1, 4)
"""One partition is the setting in which Temporal's fairness is most exact; four is what it ships with."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """A backlog of equal keys: how many, how deep, and how much of it is served before something changes."""

    keys: int
    depth: int
    rounds: int
    """Full rounds served before the weight of one key is changed."""
    turns: int
    """Rounds of the new weights that are looked at after the change."""

    @property
    def names(self) -> list[str]:
        return [f"key-{number}" for number in range(self.keys)]

    @property
    def watched(self) -> int:
        """Dispatches after the change in which the favoured key is due ten in each round."""
        return self.turns * (self.keys - 1 + int(WEIGHT_AFTER))


@dataclass(frozen=True, slots=True)
class Subject:
    """A system in one setting, which crowds it is asked about, and how to get at it."""

    name: str
    setting: str
    crowds: tuple[Crowd, ...]
    open: Callable[[], contextlib.AbstractContextManager[FairLine]]


def crowds(sizes: Sizes) -> tuple[Crowd, ...]:
    few, *many = sizes.accuracy_keys
    deep = Crowd(few, depth=200, rounds=30, turns=10)
    return (deep, *(Crowd(keys, depth=8 if keys <= 1000 else 3, rounds=1, turns=1) for keys in many))


class Accuracy:
    """Ask each system in turn; what is missing is said and left out."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say, *, install: bool) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._install = install

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for subject in self._subjects(stores):
            try:
                with subject.open() as line:
                    rows.extend(self._ask(subject, line))
            except PeerFailed as failure:
                self._say(f"accuracy: {subject.name}, {subject.setting}: given up, {failure}")
        return rows

    def _subjects(self, stores: Sequence[StoreName]) -> Iterator[Subject]:
        every = crowds(self._sizes)
        for store in stores:
            for batch in (BATCH, 1):
                yield Subject(
                    f"penstock, {store.value}",
                    f"{batch} a poll",
                    every if batch > 1 else every[:2],
                    partial(penstock_line, store, self._ground, batch),
                )
        try:
            peer = installed(self._say, install=self._install)
        except Absent as absent:
            self._say(f"temporal: left out, {absent}")
            return
        for partitions in PARTITIONS:
            yield Subject(
                peer.name,
                "1 partition" if partitions == 1 else f"{partitions} partitions",
                every if partitions == 1 else every[:2],
                partial(temporal_line, peer, self._ground.folder, partitions),
            )

    def _ask(self, subject: Subject, line: FairLine) -> Iterator[dict[str, Any]]:
        self._say(f"accuracy: {subject.name}, {subject.setting}: shares")
        yield _row(subject, "shares", partial(shares, line, self._sizes.accuracy_dispatches))
        for crowd in subject.crowds:
            self._say(f"accuracy: {subject.name}, {subject.setting}: {crowd.keys:,} keys")
            yield _row(subject, "crowd", partial(served, line, crowd))


def _row(subject: Subject, experiment: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began = time.monotonic()
    found = ask()
    seconds = round(time.monotonic() - began, 1)
    return {
        "system": subject.name,
        "setting": subject.setting,
        "experiment": experiment,
        **found,
        "seconds": seconds,
    }


def shares(line: FairLine, dispatches: int) -> dict[str, Any]:
    """Weights 5, 3 and 2; no key comes near its last task, also in a part of the queue."""
    line.renew()
    line.enqueue(
        _shuffled([Waiting(key, weight) for key, weight in WEIGHTS.items() for _ in range(dispatches)])
    )
    order = line.take(dispatches)
    counted = Counter(order)
    return {
        "keys": len(WEIGHTS),
        "dispatches": len(order),
        "served": [counted[key] for key in WEIGHTS],
        "share_error": round(share_error(order, WEIGHTS), 2),
    }


def served(line: FairLine, crowd: Crowd) -> dict[str, Any]:
    """Equal keys: some rounds; one key's weight changes, and back; then one newcomer; then twenty at once."""
    keys, favoured = crowd.names, crowd.names[0]
    backlog = _backlog(crowd)
    line.renew()
    line.enqueue(backlog)
    before = line.take(crowd.rounds * crowd.keys)
    line.override(favoured, WEIGHT_AFTER)
    changed = line.take(crowd.watched)
    line.override(favoured, 1.0)
    soon = _until_seen(line, [LONE], most=crowd.keys)
    never = set(keys) - set(before) - set(changed) - set(soon)
    later = _until_seen(line, NEWCOMERS, also=never)
    without_newcomers = [key for key in (*before, *changed, *soon, *later) if key in set(keys)]
    return {
        "keys": crowd.keys,
        "backlog": len(backlog),
        "share_error": round(share_error(before, dict.fromkeys(keys, 1.0)), 2),
        "unserved_percent": round(unserved_percent(before[: crowd.keys], keys), 2),
        "most_served": max(Counter(before[: crowd.keys]).values()),
        "first_service": middle_and_worst(first_places(without_newcomers, keys).values()),
        "weight_change": _effect(before, changed, crowd, favoured),
        "lone_newcomer": _place_of_lone([*soon, *later]),
        "newcomers": middle_and_worst(first_places(later, NEWCOMERS).values()),
    }


def _place_of_lone(order: Iterable[str]) -> int:
    """Those who came after it and went before it are not counted: it waited behind the backlog, not for them."""
    return first_places((key for key in order if key not in NEWCOMERS), [LONE])[LONE]


def _backlog(crowd: Crowd) -> list[Waiting]:
    """As deep for each key; the favoured key has enough for its new weight."""
    favoured = [Waiting(crowd.names[0])] * max(0, FAVOURED_DEPTH - crowd.depth)
    return _shuffled([Waiting(key) for key in crowd.names for _ in range(crowd.depth)] + favoured)


def _shuffled(tasks: list[Waiting]) -> list[Waiting]:
    """Tasks arrive in no order, and in the same one at each system."""
    return random.Random(SEED).sample(tasks, len(tasks))


def _effect(before: Sequence[str], changed: Sequence[str], crowd: Crowd, favoured: str) -> dict[str, Any]:
    """What the favoured key was due and got while all were equal, and right after its weight was changed."""
    counted = Counter(changed)
    others = [counted[key] for key in crowd.names if key != favoured]
    return {
        "before": {"of": len(before), "due": crowd.rounds, "favoured": Counter(before)[favoured]},
        "after": {
            "of": len(changed),
            "due": crowd.turns * int(WEIGHT_AFTER),
            "favoured": counted[favoured],
            "others": {"least": min(others), "most": max(others)},
        },
    }


def _until_seen(
    line: FairLine, newcomers: Sequence[str], also: Iterable[str] = (), most: int | None = None
) -> list[str]:
    """Let newcomers join, and take until each of them and of `also` was served, or no task waits."""
    line.enqueue([Waiting(key) for key in newcomers])
    missing = {*newcomers, *also}
    order: list[str] = []
    while missing and (most is None or len(order) < most):
        step = line.take(BATCH if most is None else min(BATCH, most - len(order)))
        if not step:
            break
        order += step
        missing -= set(step)
    return order
