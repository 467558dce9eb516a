"""Standing: each field is inherited by itself, unless the command names it."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.core.history.commands import ScheduleActivity
from penstock.core.history.decide import advance
from penstock.core.history.structural_limits import StructuralLimits
from penstock.core.model import Blob, PriorityOverride, TaskPriority
from tests.support.builders import NOW_MS, a_run

PARENT = TaskPriority(level=1, key="tenant-a", weight_milli=2_500)


@pytest.mark.parametrize(
    ("level", "key", "weight"), list(product((None, 5), (None, "", "tenant-b"), (None, 100)))
)
def test_each_field_is_resolved_by_itself(level: int | None, key: str | None, weight: int | None):
    assert PriorityOverride(level, key, weight).over(PARENT) == TaskPriority(
        level=1 if level is None else level,
        key="tenant-a" if key is None else key,
        weight_milli=2_500 if weight is None else weight,
    )


def test_nothing_named_and_nothing_inherited_is_the_default():
    assert PriorityOverride().over(TaskPriority()) == TaskPriority(level=5, key="", weight_milli=1_000)


def test_an_activity_stands_where_its_run_does_unless_its_command_says_otherwise():
    run = a_run(level=1, key="tenant-a", weight_milli=2_500)
    commands = [
        ScheduleActivity("charge", None, Blob("x")),
        ScheduleActivity("mail", None, Blob("x"), priority=PriorityOverride(level=5, key="")),
    ]
    step = advance(run, commands, StructuralLimits(10, 10, 100), NOW_MS)
    assert step.priorities == (PARENT, TaskPriority(level=5, key="", weight_milli=2_500))
