"""A driver holds every run that its filter lets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Run
from penstock.core.visibility.binder import bind
from penstock.core.visibility.entries import entries
from penstock.core.visibility.filters import RunView, matches
from penstock.core.visibility.index_plan import (
    FULL_SCAN,
    OPEN_END,
    PLANS_MAX,
    RANGES_MAX,
    IndexKey,
    IndexPlan,
    IndexRange,
    index_plans,
    time_span,
)
from penstock.core.visibility.parser import parse
from tests.support.builders import NOW_MS
from tests.support.queries import REGISTERED, draw_query, draw_run


def meaning(text: str):
    return bind(parse(text), REGISTERED, NOW_MS)


def holds(each: IndexRange, run: Run) -> bool:
    found = {
        IndexKey.RUN_ID: run.run_id,
        IndexKey.WORKFLOW_ID: run.workflow_id,
        IndexKey.BUSINESS_KEY: run.business_key,
        IndexKey.END: run.closed_reason or OPEN_END,
        IndexKey.TASK_QUEUE: run.task_queue,
        IndexKey.WORKFLOW_TYPE: run.workflow_type,
        IndexKey.ALL: "",
    }
    if each.by is IndexKey.ENTRY:
        return (each.name, each.value) in entries(run)
    return found[each.by] == each.value


@given(st.randoms(use_true_random=False))
def test_whatever_is_asked_no_driver_misses_a_run(dice) -> None:
    wanted, run = bind(draw_query(dice), REGISTERED, NOW_MS), draw_run(dice, "r1")
    found = index_plans(wanted)
    assert 1 <= len(found) <= PLANS_MAX
    assert all(1 <= len(driver) <= RANGES_MAX for driver in found)
    if run.host.value == "workflow" and matches(wanted, RunView(run)):
        for driver in found:
            assert any(holds(each, run) for each in driver)
        assert time_span(wanted).first_ms <= run.started_at_ms <= time_span(wanted).last_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("StartTime > '1h ago'", [FULL_SCAN]),
        ("WorkflowType = 'a'", [(IndexRange(IndexKey.WORKFLOW_TYPE, "a"),)]),
        ("NOT WorkflowType = 'a'", [FULL_SCAN]),
        (
            "WorkflowType = 'a' AND Status = 'cancelled' AND RunId = 'r'",
            [
                (IndexRange(IndexKey.RUN_ID, "r"),),
                (IndexRange(IndexKey.END, "cancelled"),),
                (IndexRange(IndexKey.WORKFLOW_TYPE, "a"),),
            ],
        ),
        (
            "WorkflowType = 'a' OR TaskQueue = 'b'",
            [(IndexRange(IndexKey.WORKFLOW_TYPE, "a"), IndexRange(IndexKey.TASK_QUEUE, "b"))],
        ),
        ("WorkflowType = 'a' OR StartTime > '1h ago'", [FULL_SCAN]),
        ("Amount > 7", [(IndexRange(IndexKey.ENTRY, "", "Amount"),)]),
        ("Customer != 'a'", [(IndexRange(IndexKey.ENTRY, "", "Customer"),)]),
        ("Customer IS NULL", [FULL_SCAN]),
    ],
)
def test_the_drivers_of_a_query(text: str, expected: list[IndexPlan]) -> None:
    assert list(index_plans(meaning(text))) == expected
