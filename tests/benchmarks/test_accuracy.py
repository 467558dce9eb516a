"""The experiments of the accuracy benchmark, on a line that is fair by construction and on one that is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.accuracy import NEWCOMERS, Crowd, crowds, served, shares
from benchmarks.fair_line import Waiting
from benchmarks.sizes import FULL

FEW = Crowd(keys=3, depth=60, rounds=5, turns=2)


class InOrderOfArrival:
    """First come, first served: what a queue without fairness does."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []

    def renew(self) -> None:
        self.waiting = []

    def enqueue(self, tasks: Sequence[Waiting]) -> None:
        self.waiting += tasks

    def override(self, key: str, weight: float) -> None:
        pass

    def take(self, count: int) -> list[str]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return [task.key for task in taken]


class Ideal(InOrderOfArrival):
    """Always the key that was served least for its weight; whoever comes late is level with the least served."""

    def renew(self) -> None:
        super().renew()
        self.spent: dict[str, float] = {}
        self.weights: dict[str, float] = {}

    def enqueue(self, tasks: Sequence[Waiting]) -> None:
        least = min((self.spent[task.key] for task in self.waiting), default=0.0)
        for task in tasks:
            self.spent.setdefault(task.key, least)
            self.weights.setdefault(task.key, task.weight)
        super().enqueue(tasks)

    def override(self, key: str, weight: float) -> None:
        self.weights[key] = weight

    def take(self, count: int) -> list[str]:
        keys: list[str] = []
        left = Counter(task.key for task in self.waiting)
        while left and len(keys) < count:
            key = min(left, key=lambda each: (self.spent[each] + 1 / self.weights[each], each))
            self.spent[key] += 1 / self.weights[key]
            keys.append(key)
            left[key] -= 1
            left += Counter()
        gone = Counter(keys)
        self.waiting = [task for task in self.waiting if not _used(gone, task.key)]
        return keys


def _used(gone: Counter[str], key: str) -> bool:
    gone[key] -= 1
    return gone[key] >= 0


def test_the_shares_of_a_fair_line_are_exact():
    found = shares(Ideal(), 100)
    assert found["served"] == [50, 30, 20]
    assert found["share_error"] <= 1


def test_a_line_in_order_of_arrival_gives_shares_that_nobody_asked_for():
    assert shares(InOrderOfArrival(), 100)["share_error"] > 5


def test_a_fair_line_leaves_no_key_unserved_and_heeds_a_weight_at_once():
    found = served(Ideal(), FEW)
    assert found["unserved_percent"] == 0
    assert found["first_service"]["worst"] == FEW.keys - 1
    assert found["weight_change"] == {
        "before": {"of": 15, "due": 5, "favoured": 5},
        "after": {"of": 24, "due": 20, "favoured": 20, "others": {"least": 2, "most": 2}},
    }


def test_newcomers_to_a_fair_line_wait_for_a_round_and_not_for_the_backlog():
    found = served(Ideal(), FEW)
    assert found["lone_newcomer"] <= FEW.keys
    assert found["newcomers"]["worst"] <= 2 * FEW.keys + len(NEWCOMERS)


def test_newcomers_to_a_line_in_order_of_arrival_wait_for_all_of_the_backlog():
    found = served(InOrderOfArrival(), FEW)
    left = found["backlog"] - FEW.rounds * FEW.keys - FEW.watched
    assert found["lone_newcomer"] == left
    assert found["newcomers"]["worst"] == left + len(NEWCOMERS) - FEW.keys


def test_every_crowd_has_tasks_left_for_its_newcomers_to_wait_behind():
    for crowd in crowds(FULL):
        assert crowd.keys * crowd.depth > crowd.rounds * crowd.keys + crowd.watched
