"""Priority, key and weight: flat, under `priority`, or both with equal values."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.model import PriorityOverride
from penstock.core.priority_levels import LEVEL_DEFAULT, PRIORITY_KEYS, level_of
from penstock.errors import ValidationFailed
from penstock.wire.request_parser import parse
from penstock.wire.requests import WithPriority
from penstock.wire.workflows.commands import priority_override


def read(**said: Any) -> PriorityOverride:
    return priority_override(parse(said, WithPriority))


@pytest.mark.parametrize(
    "said",
    [
        {"priority": 3, "fairness_key": "a", "fairness_weight": 3.14},
        {"priority_key": 2, "fairness_key": "a", "fairness_weight": 3.14},
        {"priority": {"priority_key": 2, "fairness_key": "a", "fairness_weight": 3.14}},
        {"priority": {"priority_key": 2, "fairness_key": "a"}, "fairness_weight": 3.14},
        {"priority": {"priority_key": 2, "fairness_key": "a"}, "priority_key": 2, "fairness_weight": 3.14},
        {"priority": 3, "priority_key": 2, "fairness_key": "a", "fairness_weight": 3.14},
    ],
)
def test_every_form_means_the_same(said: dict[str, Any]) -> None:
    assert read(**said) == PriorityOverride(3, "a", 3140)


@pytest.mark.parametrize(("key", "level"), [(1, 1), (2, 3), (3, 5), (4, 7), (5, 9)])
def test_priority_keys_are_the_odd_levels_and_both_defaults_meet(key: int, level: int) -> None:
    assert read(priority_key=key) == read(priority=level) == PriorityOverride(level)
    assert PRIORITY_KEYS[level] == key
    assert level_of(3) == LEVEL_DEFAULT


@pytest.mark.parametrize("said", [{}, {"priority": None}, {"priority": {}}, {"priority_key": None}])
def test_what_is_left_out_overrides_nothing(said: dict[str, Any]) -> None:
    assert read(**said) == PriorityOverride(None, None, None)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"priority": 2, "priority_key": 2}, "priority_key"),
        ({"priority": {"priority_key": 2}, "priority_key": 3}, "priority_key"),
        ({"priority": {"fairness_key": "a"}, "fairness_key": "b"}, "fairness_key"),
        ({"priority": {"fairness_weight": 2}, "fairness_weight": 3}, "fairness_weight"),
        ({"priority_key": 0}, "priority_key"),
        ({"priority_key": 6}, "priority_key"),
        ({"priority": {"priority_key": 6}}, "priority.priority_key"),
        ({"priority": {"fairness_weight": 0}}, "priority.fairness_weight"),
        ({"priority": True}, "priority"),
        ({"fairness_key": "é" * 33}, "fairness_key"),
    ],
)
def test_what_contradicts_itself_or_is_out_of_bounds_is_refused(said: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        read(**said)
    assert list(refused.value.details["errors"]) == [field]


def test_an_empty_key_is_a_key() -> None:
    assert read(fairness_key="") == PriorityOverride(None, "", None)
