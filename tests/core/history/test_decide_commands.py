"""Every command, and the events and rows that it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core import payload_codec
from penstock.core.history.commands import (
    Command,
    CompleteUpdate,
    CompleteWorkflow,
    ContinueAsNew,
    FailUpdate,
    FailWorkflow,
    OpenConditionWait,
    RecordLocalActivity,
    RecordSideEffect,
    RecordVersionMarker,
    ScheduleActivity,
    StartChild,
    StartTimer,
    UpsertMemo,
    UpsertSearchAttributes,
)
from penstock.core.model import (
    Blob,
    ClosePolicy,
    PriorityOverride,
    ReplayBlock,
    RetrySchedule,
    RunStatus,
    UpdateStatus,
)
from penstock.errors import Conflict, Reason
from tests.core.history.run_driver import SIGNAL, Life, completed
from tests.support.builders import NOW_MS, an_update

NOTHING = Blob("")
ONE = Blob("AQ==")

STEPS: list[tuple[Command, list[str]]] = [
    (ScheduleActivity("Charge", None, NOTHING), ["ActivityScheduled"]),
    (RecordLocalActivity("Add", "completed", NOTHING, ONE), ["ActivityScheduled", "ActivityCompleted"]),
    (RecordLocalActivity("Add", "failed", NOTHING), ["ActivityScheduled", "ActivityFailed"]),
    (RecordLocalActivity("Add", "timed_out", NOTHING), ["ActivityScheduled", "ActivityTimedOut"]),
    (RecordLocalActivity("Add", "cancelled", NOTHING), ["ActivityScheduled", "ActivityCancelled"]),
    (StartTimer(5), ["TimerScheduled"]),
    (StartChild("Ship", None, NOTHING), ["ChildWorkflowScheduled", "ChildRunStarted"]),
    (RecordSideEffect(ONE), ["SideEffectRecorded"]),
    (RecordVersionMarker("new-price", 2, 1, 3), ["VersionMarkerRecorded"]),
    (UpsertSearchAttributes({"Customer": "ada"}), ["SearchAttributesUpserted"]),
    (UpsertMemo({"note": "hi"}, ONE), ["MemoUpserted"]),
    (OpenConditionWait("paid", "f00d"), ["ConditionWaitOpened"]),
    (OpenConditionWait("paid", "f00d", 30), ["ConditionWaitOpened", "TimerScheduled"]),
]
LASTS: list[tuple[Command, str]] = [
    (CompleteWorkflow(ONE), "WorkflowCompleted"),
    (FailWorkflow("no stock"), "WorkflowFailed"),
    (ContinueAsNew(ONE), "WorkflowContinuedAsNew"),
]


@pytest.mark.parametrize(("command", "events"), STEPS)
def test_a_step_takes_one_number_and_all_its_events_carry_it(command: Command, events: list[str]):
    life = Life(last_step=6)
    life.decide(command)
    assert life.types == events
    assert {life.said(place)["sequence"] for place in range(len(events))} == {7}
    assert life.run.last_step == 7
    assert life.run.status is RunStatus.WAITING


@pytest.mark.parametrize(("command", "event"), LASTS)
def test_what_ends_a_run_takes_no_number_and_is_the_last_event(command: Command, event: str):
    life = Life(last_step=6)
    life.decide(RecordSideEffect(ONE), command)
    assert life.types == ["SideEffectRecorded", event]
    assert life.run.last_step == 7
    assert not life.run.is_open


def test_inline_steps_come_before_the_step_that_is_awaited_in_the_order_of_the_code():
    life = Life()
    step = life.decide(
        RecordSideEffect(ONE),
        RecordVersionMarker("a", 1, 0, 1),
        UpsertSearchAttributes({"a": 1}),
        UpsertMemo({"b": 2}, ONE),
        ScheduleActivity("Charge", None, NOTHING),
    )
    assert [life.said(place)["sequence"] for place in range(5)] == [1, 2, 3, 4, 5]
    assert step.activities[0].step == 5


# ── Local activities ────────────────────────────────────────────────────────────────────────────────────


def test_a_local_activity_has_run_already_and_leaves_nothing_open():
    life = Life()
    step = life.decide(RecordLocalActivity("Add", "completed", ONE, Blob("Ag=="), {"attempts": []}))
    assert step.activities == ()
    assert life.run.open_activities == 0
    assert life.said(0)["arguments"] == ONE
    for place in (0, 1):
        assert life.said(place)["execution_mode"] == "local"
        assert life.said(place)["local_activity"] is True
    assert (life.said(1)["result"], life.said(1)["attempts"]) == ("Ag==", [])
    assert life.said(0)["activity_execution_id"] == life.said(1)["activity_execution_id"]


@pytest.mark.parametrize(
    ("outcome", "category"), [("failed", "activity"), ("timed_out", "timeout"), ("cancelled", "cancelled")]
)
def test_a_local_activity_that_did_not_succeed_tells_why(outcome: str, category: str):
    told = {"message": "boom", "exception_type": "Broken", "non_retryable": True}
    life = Life()
    life.decide(RecordLocalActivity("Add", outcome, ONE, reported_fields=told))
    said = life.said()
    assert (said["message"], said["exception_type"], said["failure_category"]) == ("boom", "Broken", category)
    assert said["exception"]["message"] == "boom"
    assert "result" not in said


# ── Records ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_side_effect_keeps_its_result_and_names_the_stream_that_it_writes():
    life = Life()
    stream = {"operation": "append", "stream_name": "out", "command_identity": "c", "command_ordinal": 1}
    step = life.decide(RecordSideEffect(ONE, stream | {"items": [1, 2]}))
    assert life.said()["result"] == ONE
    assert life.said()["workflow_stream"] == stream, "the items are kept by the stream"
    assert step.streams == (stream | {"items": [1, 2]},)


def test_a_version_marker_repeats_its_numbers():
    life = Life()
    life.decide(RecordVersionMarker("new-price", 2, 1, 3))
    assert life.said() == {
        "sequence": 1,
        "change_id": "new-price",
        "version": 2,
        "min_supported": 1,
        "max_supported": 3,
    }


def test_search_attributes_are_merged_and_null_deletes():
    life = Life(search_attributes='{"a":1,"b":2}')
    step = life.decide(UpsertSearchAttributes({"b": None, "c": 3}))
    assert life.said()["attributes"] == {"b": None, "c": 3}
    assert life.said()["merged"] == {"a": 1, "c": 3} == json.loads(life.run.search_attributes)
    assert step.attributes_changed


def test_a_memo_is_merged_and_told_in_the_words_of_the_worker():
    life = Life(memo='{"a":1}')
    sent = payload_codec.encode({"b": "x"})
    life.decide(UpsertMemo({"b": "x"}, sent))
    assert life.said()["entries"] == {"codec": "avro", "blob": sent}
    assert payload_codec.decode(life.said()["merged"]["blob"]) == {"a": 1, "b": "x"}
    assert json.loads(life.run.memo) == {"a": 1, "b": "x"}


def test_attributes_of_one_task_build_on_each_other():
    life = Life()
    life.decide(UpsertSearchAttributes({"a": 1}), UpsertSearchAttributes({"a": None, "b": 1}))
    assert json.loads(life.run.search_attributes) == {"b": 1}


# ── Children ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_child_is_told_twice_and_both_times_under_the_same_name():
    life = Life()
    step = life.decide(
        StartChild(
            "Ship", "mail", ONE, policy=ClosePolicy.TERMINATE, extra={"cancellation_policy": "abandon"}
        )
    )
    [new] = step.children
    for place in (0, 1):
        said = life.said(place)
        assert said["child_workflow_run_id"] == new.run.run_id == "new1"
        assert said["child_workflow_instance_id"] == new.run.workflow_id
        assert (said["child_workflow_type"], said["parent_close_policy"]) == ("Ship", "terminate")
        assert said["cancellation_policy"] == "abandon"
    assert life.run.open_children == 1
    assert (new.run.task_queue, new.run.input, new.run.run_number) == ("mail", ONE, 1)
    assert (new.child.step, new.child.parent_run_id) == (1, life.run.run_id)


def test_a_child_knows_its_parent_and_inherits_its_standing_and_nothing_else():
    life = Life(level=1, key="ada", weight_milli=2000, memo='{"a":1}', compatibility="build-1")
    here, there = life.decide(
        StartChild("Ship", None, NOTHING, priority=PriorityOverride(level=4)),
        StartChild("Ship", "mail", NOTHING),
    ).children
    assert (here.run.level, here.run.key, here.run.weight_milli) == (4, "ada", 2000)
    assert (here.run.memo, here.run.task_queue) == ("{}", "orders")
    assert (here.run.compatibility, there.run.compatibility) == ("build-1", None), (
        "builds are those of a queue"
    )
    origin = there.run.lineage
    assert (origin.parent_run_id, origin.parent_workflow_id, origin.parent_step) == ("r1", "order-1", 2)


def test_the_clocks_of_a_child_start_with_it():
    [child] = (
        Life().decide(StartChild("Ship", None, NOTHING, execution_timeout_s=60, run_timeout_s=5)).children
    )
    assert child.run.execution_deadline_at_ms == NOW_MS + 60_000
    assert child.run.run_deadline_at_ms == NOW_MS + 5_000 == child.run.deadline_at_ms


def test_children_of_one_task_have_ids_of_their_own():
    step = Life().decide(*[StartChild("Ship", None, NOTHING)] * 3)
    assert len({each.run.run_id for each in step.children}) == 3
    assert len({each.run.workflow_id for each in step.children}) == 3


# ── Continue as new ─────────────────────────────────────────────────────────────────────────────────────


def test_continuing_closes_the_run_and_names_the_next():
    life = Life(run_number=3, memo='{"a":1}')
    step = life.decide(ContinueAsNew(ONE, "Order2", "mail"))
    assert step.successor is not None
    after = step.successor.run
    assert (life.run.status, life.run.closed_reason) == (RunStatus.COMPLETED, "continued")
    assert life.run.output is None
    assert life.said()["continued_to_run_id"] == after.run_id == "new1"
    assert life.said()["continued_to_run_number"] == after.run_number == 4
    assert (after.workflow_type, after.task_queue, after.input) == ("Order2", "mail", ONE)
    assert (after.last_step, after.last_sequence, after.memo) == (0, 0, '{"a":1}')


def test_a_run_continues_with_what_the_same_task_has_upserted():
    step = Life().decide(UpsertMemo({"b": 2}, ONE), ContinueAsNew(ONE))
    assert step.successor is not None
    assert json.loads(step.successor.run.memo) == {"b": 2}


# ── Updates ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_update_that_is_completed_is_applied_with_its_arguments_before_it_is_answered():
    life = Life(open_updates=2)
    update = an_update("u1", arguments=ONE)
    step = life.decide(CompleteUpdate("u1", Blob("Ag==")), update=update)
    assert life.types == ["UpdateApplied", "UpdateCompleted"]
    assert (life.said(0)["arguments"], life.said(0)["update_name"]) == (ONE, "approve")
    assert "sequence" not in life.said(0), "an update is no step"
    assert life.said(1)["result"] == "Ag=="
    assert (life.run.open_updates, life.run.last_step) == (1, 0)
    [update] = step.updates
    assert (update.status, update.closed_at_ms) == (UpdateStatus.COMPLETED, NOW_MS)


def test_an_update_that_fails_is_not_applied():
    life = Life(open_updates=1)
    step = life.decide(FailUpdate("u1", "no", {"exception_type": "Refused"}), update=an_update("u1"))
    assert life.types == ["UpdateCompleted"]
    assert (life.said()["message"], life.said()["exception_type"]) == ("no", "Refused")
    [update] = step.updates
    assert update.status is UpdateStatus.FAILED
    assert life.run.open_updates == 0


def test_an_update_neither_meets_nor_reopens_a_condition_but_is_heard_by_it():
    life = Life(open_updates=1)
    life.decide(OpenConditionWait("paid", "f00d", 30))
    before = life.waits.condition
    assert before is not None
    life.decide(CompleteUpdate("u1", ONE), update=an_update("u1"))
    after = life.waits.condition
    assert after is not None
    assert (after.id, after.heard, before.heard) == (before.id, True, False)
    assert "ConditionWaitSatisfied" not in life.types


def test_an_update_that_fails_is_not_heard():
    life = Life(open_updates=1)
    life.decide(OpenConditionWait("paid", "f00d"))
    life.decide(FailUpdate("u1", "no"), update=an_update("u1"))
    assert life.waits.condition is not None
    assert not life.waits.condition.heard


@pytest.mark.parametrize(
    "commands",
    [
        [],
        [StartTimer(1)],
        [CompleteUpdate("u2", ONE)],
        [CompleteUpdate("u1", ONE), StartTimer(1)],
        [CompleteUpdate("u1", ONE), CompleteUpdate("u1", ONE)],
    ],
)
def test_the_task_of_an_update_does_that_update_and_nothing_else(commands: list[Command]):
    with pytest.raises(Conflict) as refused:
        Life(open_updates=1).decide(*commands, update=an_update("u1"))
    assert refused.value.reason is Reason.INVALID_COMMANDS


def test_no_other_task_may_apply_an_update():
    with pytest.raises(Conflict) as refused:
        Life(open_updates=1).decide(CompleteUpdate("u1", ONE))
    assert refused.value.reason is Reason.INVALID_COMMANDS


# ── Whatever is decided ─────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_is_decided_ends_the_trouble_before_it():
    life = Life(task_failures=3, task_error="boom", blocked=ReplayBlock(), unseen_signals=4)
    life.decide(StartTimer(1))
    assert (life.run.task_failures, life.run.task_error, life.run.blocked) == (0, None, None)
    assert life.run.unseen_signals == 0


def test_the_task_of_an_update_leaves_signals_unseen():
    life = Life(open_updates=1, unseen_signals=4)
    life.decide(CompleteUpdate("u1", ONE), update=an_update("u1"))
    assert life.run.unseen_signals == 4


def test_the_end_of_a_step_outside_groups_always_wakes_the_code():
    life = Life()
    [activity] = life.decide(ScheduleActivity("Charge", None, NOTHING)).activities
    assert life.tell(completed(activity))


def test_a_signal_wakes_the_code_only_while_it_waits_for_a_condition():
    life = Life()
    life.decide(ScheduleActivity("Charge", None, NOTHING))
    assert not life.tell(SIGNAL)
    life.decide(OpenConditionWait("paid"))
    assert life.tell(SIGNAL)


@pytest.mark.parametrize("extra", [{}, {"retry": RetrySchedule(3, True, (1, 2), ("Never",))}])
def test_the_retry_policy_of_a_child_is_told_only_if_there_is_one(extra: dict[str, Any]):
    life = Life()
    life.decide(StartChild("Ship", None, NOTHING, **extra))
    policy = life.said(0)["retry_policy"]
    assert policy == (
        {"max_attempts": 3, "backoff_seconds": [1, 2], "non_retryable_error_types": ["Never"]}
        if extra
        else None
    )
