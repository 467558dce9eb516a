"""A driver holds every run that its filter lets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Run
from penstock.core.visibility.binding import bind
from penstock.core.visibility.driving import (
    DRIVERS_MAX,
    NEWEST,
    OPEN_END,
    RANGES_MAX,
    By,
    Driver,
    Range,
    drivers,
    span,
)
from penstock.core.visibility.entries import entries
from penstock.core.visibility.filters import Seen, matches
from penstock.core.visibility.parser import parse
from tests.support.builders import NOW_MS
from tests.support.queries import REGISTERED, draw_query, draw_run


def meaning(text: str):
    return bind(parse(text), REGISTERED, NOW_MS)


def holds(each: Range, run: Run) -> bool:
    found = {
        By.RUN_ID: run.run_id,
        By.WORKFLOW_ID: run.workflow_id,
        By.BUSINESS_KEY: run.business_key,
        By.END: run.closed_reason or OPEN_END,
        By.TASK_QUEUE: run.task_queue,
        By.WORKFLOW_TYPE: run.workflow_type,
        By.ALL: "",
    }
    if each.by is By.ENTRY:
        return (each.name, each.value) in entries(run)
    return found[each.by] == each.value


@given(st.randoms(use_true_random=False))
def test_whatever_is_asked_no_driver_misses_a_run(dice) -> None:
    wanted, run = bind(draw_query(dice), REGISTERED, NOW_MS), draw_run(dice, "r1")
    found = drivers(wanted)
    assert 1 <= len(found) <= DRIVERS_MAX
    assert all(1 <= len(driver) <= RANGES_MAX for driver in found)
    if run.host.value == "workflow" and matches(wanted, Seen(run)):
        for driver in found:
            assert any(holds(each, run) for each in driver)
        assert span(wanted).first_ms <= run.started_at_ms <= span(wanted).last_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("StartTime > '1h ago'", [NEWEST]),
        ("WorkflowType = 'a'", [(Range(By.WORKFLOW_TYPE, "a"),)]),
        ("NOT WorkflowType = 'a'", [NEWEST]),
        (
            "WorkflowType = 'a' AND Status = 'cancelled' AND RunId = 'r'",
            [(Range(By.RUN_ID, "r"),), (Range(By.END, "cancelled"),), (Range(By.WORKFLOW_TYPE, "a"),)],
        ),
        (
            "WorkflowType = 'a' OR TaskQueue = 'b'",
            [(Range(By.WORKFLOW_TYPE, "a"), Range(By.TASK_QUEUE, "b"))],
        ),
        ("WorkflowType = 'a' OR StartTime > '1h ago'", [NEWEST]),
        ("Amount > 7", [(Range(By.ENTRY, "", "Amount"),)]),
        ("Customer != 'a'", [(Range(By.ENTRY, "", "Customer"),)]),
        ("Customer IS NULL", [NEWEST]),
    ],
)
def test_the_drivers_of_a_query(text: str, expected: list[Driver]) -> None:
    assert list(drivers(meaning(text))) == expected
