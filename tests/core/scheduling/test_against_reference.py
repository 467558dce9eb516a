"""The core against the definitions: the same history gives the same tasks in the same order, step by step."""

from __future__ import annotations

from hypothesis import given, settings

from tests.core.scheduling.queue_histories import (
    History,
    aging,
    counting,
    fairness,
    histories,
    key_limits,
    override,
    queue_limits,
    tasks,
    tasks_of_any_weight,
)
from tests.core.scheduling.queue_model import QueueModel
from tests.core.scheduling.reference import Reference
from tests.support.effort import times


def hand_out(core: QueueModel, room: int) -> list[tuple[int, str, int]]:
    """Where levels age, tasks are asked for one by one: a batch judges by what was old at its start."""
    before = len(core.dispatched)
    if core.queue.rules.aging is None:
        core.claim(room)
    else:
        while len(core.dispatched) < before + room and core.claim(1):
            pass
    return [(each.level, each.key, each.seq) for each in core.dispatched[before:]]


def agree(history: History) -> None:
    core, reference = QueueModel(history.settings), Reference(history.settings)
    for step in history.steps:
        step.happen(core)
        step.happen(reference)
        expected = [(task.level, task.key, task.seq) for task in reference.claim(step.room)]
        assert hand_out(core, step.room) == expected


@given(history=histories(tasks, queue_limits, counting, aging, key_limits, key_limits, override))
@settings(max_examples=times(50))
def test_tasks_go_in_the_defined_order_whatever_limits_come_and_go(history: History):
    agree(history)


@given(history=histories(tasks_of_any_weight, queue_limits, counting, aging, override))
@settings(max_examples=times(25))
def test_tasks_go_in_the_defined_order_while_every_task_brings_another_weight(history: History):
    agree(history)


@given(history=histories(tasks_of_any_weight, queue_limits, counting, aging, override, fairness, fairness))
@settings(max_examples=times(25))
def test_tasks_go_in_the_defined_order_while_fairness_is_switched_on_and_off(history: History):
    agree(history)


@given(history=histories(tasks, queue_limits, counting, aging, key_limits, key_limits, fairness="off"))
@settings(max_examples=times(25))
def test_tasks_go_in_order_of_arrival_where_keys_have_no_shares_whatever_limits_come_and_go(history: History):
    agree(history)
