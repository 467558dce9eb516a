"""Histories of a queue, made up step by step: tasks come, time passes, settings change, somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hypothesis import strategies as st

from penstock.core.limits.policies import LimitSetting
from tests.core.scheduling.queue_model import per_second

KEYS = {"a": 1000, "b": 1000, "c": 2500, "d": 400, "e": 90_000}
"""Keys, each with the weight that its tasks carry unless every task brings its own."""

Change = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A verb of a model, with what it is told."""
Changes = st.SearchStrategy[Change]


class Model(Protocol):
    def advance(self, ms: int) -> None: ...
    def pause(self, paused: bool = True) -> None: ...
    def complete(self, seq: int) -> None: ...
    def leased(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Step:
    """Tasks are done, time passes, something changes; then somebody asks for tasks."""

    done: tuple[int, ...]
    ms: int
    changes: tuple[Change, ...]
    room: int
    is_paused: bool = False

    def happen(self, model: Model) -> None:
        """All but the asking."""
        for chosen in self.done:
            leased = model.leased()
            if leased:
                model.complete(leased[chosen % len(leased)])
        model.advance(self.ms)
        model.pause(self.is_paused)
        for verb, args, options in self.changes:
            getattr(model, verb)(*args, **options)


@dataclass(frozen=True)
class History:
    settings: Mapping[LimitSetting, int | str]
    steps: Sequence[Step]


# ── Values ──────────────────────────────────────────────────────────────────────────────────────────────

keys = st.sampled_from(sorted(KEYS))
levels = st.integers(1, 3)
counts = st.integers(1, 6)
weights = st.sampled_from([1, 400, 1000, 2500, 9000, 1_000_000])
open_rates = st.sampled_from([per_second(each) for each in (0.3, 1.9, 2, 10, 10, 77, 77, 1000)])
rates = st.sampled_from(
    [None, None, None, 0, *(per_second(each) for each in (0.3, 1.9, 2, 10, 10, 77, 77, 1000))]
)
open_running_limits = st.sampled_from([1, 2, 3, 8, 30])
running_limits = st.sampled_from([None, None, None, 0, 1, 2, 3, 8, 8, 30, 30])
moments = st.sampled_from([0, 0, 1, 13, 100, 499, 500, 1000, 3333])
bursts = st.sampled_from([0, 300, 1000, 1000, 5000])

# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────


def told(verb: str, *args: Any, **options: Any) -> Change:
    return verb, args, options


def setting(setting_name: LimitSetting, values: st.SearchStrategy[Any]) -> Changes:
    return values.map(lambda value: told("change", {setting_name: value}))


def of_a_key(name: str, values: st.SearchStrategy[Any]) -> Changes:
    return st.builds(lambda key, value: told("change_key", key, **{name: value}), keys, values)


def _joins(key: str, count: int, level: int, weight: int | None = None) -> Change:
    return told("enqueue", key, count, weight=weight or KEYS[key], level=level)


def _ages(wait_ms: int, every: int | None) -> Change:
    return told(
        "change",
        {LimitSetting.AGING_WAIT: None if every is None else wait_ms, LimitSetting.AGING_EVERY: every},
    )


tasks_of_any_weight = st.builds(_joins, keys, counts, levels, weights)
tasks = st.builds(_joins, keys, counts, levels)
tasks_of_one_level = st.builds(_joins, keys, counts, st.just(3))
queue_limits = st.one_of(
    setting(LimitSetting.QUEUE_RATE, rates), setting(LimitSetting.LEASE_CAP, running_limits)
)
counting = setting(LimitSetting.COUNTS, st.sampled_from([None, "running"]))
aging = st.builds(_ages, st.sampled_from([0, 100, 1000]), st.sampled_from([None, 2, 3, 7]))
fairness = setting(LimitSetting.FAIRNESS, st.sampled_from([None, "on", "off"]))
override = of_a_key("weight_milli", st.one_of(st.none(), weights))
key_limits = st.one_of(
    of_a_key("paused", st.sampled_from([0, 0, 1])),
    of_a_key("rate_micro", rates),
    of_a_key("lease_cap", running_limits),
    setting(LimitSetting.KEY_RATE, rates),
    setting(LimitSetting.KEY_LEASE_CAP, running_limits),
)

# ── Histories ───────────────────────────────────────────────────────────────────────────────────────────


def histories(
    joining: Changes,
    *changes: Changes,
    at_first: st.SearchStrategy[Sequence[Change]] | None = None,
    fairness: str = "on",
) -> st.SearchStrategy[History]:
    """Bursts stay as they are: debts of one burst are not comparable with those of another."""
    changing = st.lists(st.one_of(*changes), max_size=1) if changes else st.just([])
    steps = st.builds(
        Step,
        st.lists(st.integers(0, 30), max_size=5).map(tuple),
        moments,
        st.tuples(st.lists(joining, max_size=2), changing).map(lambda parts: (*parts[0], *parts[1])),
        st.integers(1, 7),
        st.sampled_from([False] * 19 + [True]),
    )
    first = st.builds(
        lambda joined, changed: Step((), 0, (*joined, *changed), 1),
        st.lists(joining, min_size=4, max_size=8),
        st.just([]) if at_first is None else at_first,
    )
    start = st.fixed_dictionaries(
        {
            LimitSetting.QUEUE_BURST: bursts,
            LimitSetting.KEY_BURST: bursts,
            LimitSetting.FAIRNESS: st.just(fairness),
        }
    )
    return st.builds(
        lambda settings, head, tail: History(settings, [head, *tail]),
        start,
        first,
        st.lists(steps, min_size=12, max_size=35),
    )
