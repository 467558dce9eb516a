"""Parallel groups: numbered as the code expects, opened once, complete when every member has ended."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.history import groups
from penstock.core.history.commands import ScheduleActivity, StartTimer
from penstock.core.history.decide import Bounds, advance
from penstock.core.model import Blob
from penstock.errors import Conflict, Reason
from tests.support.builders import NOW_MS, a_run

BOUNDS = Bounds(open_activities_max=100, open_timers_max=100, events_max=1000)


def extra(index: int, *, base: int = 1, size: int = 3) -> dict[str, Any]:
    entry = {
        "parallel_group_base_sequence": base,
        "parallel_group_size": size,
        "parallel_group_index": index,
    }
    return {groups.PATH: [entry]}


def member(index: int, **where: int) -> ScheduleActivity:
    return ScheduleActivity("square", None, Blob("x"), extra=extra(index, **where))


def test_members_take_the_steps_that_the_code_computed():
    step = advance(a_run(), [member(0), member(1), StartTimer(5, extra(2))], BOUNDS, NOW_MS)
    assert [each.step for each in step.activities] == [1, 2]
    assert [each.step for each in step.timers] == [3]


def test_a_group_that_is_sent_again_opens_nothing_twice():
    first = advance(a_run(), [member(index) for index in range(3)], BOUNDS, NOW_MS)
    again = advance(first.run, [member(index) for index in range(3)], BOUNDS, NOW_MS)
    assert (again.events, again.activities) == ((), ())
    assert again.run.last_step == first.run.last_step


def test_a_member_numbered_beyond_the_next_step_is_refused():
    with pytest.raises(Conflict) as refused:
        advance(a_run(), [member(0, base=4)], BOUNDS, NOW_MS)
    assert refused.value.reason is Reason.INVALID_COMMANDS


def test_a_step_outside_groups_always_concerns_the_code():
    assert groups.is_complete({"sequence": 4}, open_steps={1, 2, 3})


def test_a_group_is_complete_when_no_other_member_is_open():
    payload = extra(1) | {"sequence": 2}
    assert not groups.is_complete(payload, open_steps={2, 3})
    assert groups.is_complete(payload, open_steps={2, 9})


def test_a_nested_group_waits_for_the_outermost_one():
    outer = {"parallel_group_base_sequence": 1, "parallel_group_size": 4, "parallel_group_index": 2}
    inner = {"parallel_group_base_sequence": 3, "parallel_group_size": 2, "parallel_group_index": 0}
    payload = {groups.PATH: [outer, inner], "sequence": 3}
    assert groups.step_of(payload) == 3
    assert not groups.is_complete(payload, open_steps={1})
    assert groups.is_complete(payload, open_steps={3})
