"""Concurrent runs, told to the core alone: markers, wakes, and what a completed task may ask for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core import waits
from penstock.core.history.command_effects import CommandEffects
from penstock.core.history.commands import (
    CancelSelectionOperation,
    CancelStep,
    CancelWorkflow,
    Command,
    CompleteUpdate,
    OpenConditionWait,
    ScheduleActivity,
    SignalExternal,
    StartTimer,
)
from penstock.core.history.decide import advance
from penstock.core.history.events import WAKES_ALWAYS, EventType
from penstock.core.history.payloads import retry_snapshot
from penstock.core.history.recorder import record
from penstock.core.history.structural_limits import EXTERNAL_REQUESTS_MAX
from penstock.core.model import ActivityTimeouts, Blob, NewEvent, RetrySchedule, Run, RunStatus, UpdateStatus
from penstock.core.run_codec import decode_waits, encode_waits
from penstock.core.waits import Waits
from penstock.errors import Conflict, InvalidInput, Reason
from tests.core.history.run_driver import ROOMY, SIGNAL, completed, entry
from tests.support.builders import NOW_MS, a_run, an_update

CHARGE = ScheduleActivity("Charge", None, Blob(""))
GO = SignalExternal("order-2", "go", Blob(""))


def decide(run: Run, *commands: Command, **more: object) -> CommandEffects:
    return advance(run, commands, ROOMY, NOW_MS, concurrent=True, **more)  # type: ignore[arg-type]


def begun(*commands: Command) -> Run:
    """A run whose code has looked once."""
    step = decide(a_run(waits=waits.NEW_RUN, last_sequence=1), *commands)
    return record(step.run, step.events, NOW_MS).run


def test_a_run_becomes_concurrent_with_its_first_completed_task():
    run = begun()
    assert run.waits == Waits(concurrent=True)
    assert run.status is RunStatus.WAITING


def test_the_marker_comes_first_and_says_what_was_seen():
    step = decide(replace(begun(), last_sequence=7), CHARGE)
    assert [event.type for event in step.events] == ["WorkflowTaskCompleted", "ActivityScheduled"]
    assert step.events[0].payload == {"seen_through": 7}


@pytest.mark.parametrize("kind", sorted(WAKES_ALWAYS))
def test_what_comes_from_outside_wakes_always(kind: str):
    run = begun(GO)
    recorded = record(run, [NewEvent(kind, {"sequence": 1})], NOW_MS)
    assert recorded.wakes
    assert [line.type for line in recorded.lines] == [kind]


def test_in_a_stepwise_run_a_signal_wakes_nobody_who_waits_for_no_condition():
    assert not record(a_run(), [SIGNAL], NOW_MS).wakes


def test_the_end_of_each_step_wakes():
    step = decide(begun(), CHARGE, CHARGE)
    recorded = record(step.run, [completed(step.activities[1])], NOW_MS)
    assert recorded.wakes


def test_another_run_answers_once():
    answer = NewEvent(EventType.EXTERNAL_REQUEST_DELIVERED, {"sequence": 1})
    first = record(begun(GO), [answer], NOW_MS)
    second = record(first.run, [answer], NOW_MS)
    assert (len(first.lines), len(second.lines), second.wakes) == (1, 0, False)


@pytest.mark.parametrize(
    "kept",
    [
        Waits(concurrent=True, cancelling=True, external=(1, 4), cached=("w1", 12, 0)),
        Waits(concurrent=True, cached=("w1", 12, 10_000)),
    ],
)
def test_what_is_known_of_a_concurrent_run_is_kept_with_it(kept: Waits):
    assert decode_waits(encode_waits(kept)) == kept


def test_of_a_run_that_was_kept_before_tasks_were_reserved_none_is():
    assert decode_waits('{"concurrent":true,"cached":["w1",12]}').cached == ("w1", 12, 0)


@pytest.mark.parametrize(
    "command",
    [
        OpenConditionWait("paid"),
        CancelSelectionOperation("g", 0, {}),
        ScheduleActivity(
            "Charge", None, Blob(""), extra={"parallel_group_path": [entry("activity", 1, 2, 0)]}
        ),
    ],
)
def test_concurrent_code_waits_for_no_condition_and_has_no_groups(command: Command):
    with pytest.raises(Conflict) as refusal:
        decide(begun(), command)
    assert refusal.value.reason is Reason.INVALID_COMMANDS


@pytest.mark.parametrize("command", [CancelStep(1), GO, CancelWorkflow()])
def test_stepwise_code_cannot_ask_for_what_concurrent_code_may(command: Command):
    with pytest.raises(Conflict) as refusal:
        advance(a_run(last_step=1), [command], ROOMY, NOW_MS)
    assert refusal.value.reason is Reason.INVALID_COMMANDS


def test_a_timer_fires_after_its_milliseconds():
    step = decide(begun(), StartTimer(2, delay_ms=1_500))
    [timer] = step.timers
    assert (timer.delay_s, timer.fire_at_ms) == (2, NOW_MS + 1_500)
    assert (step.events[-1].payload["delay_seconds"], step.events[-1].payload["delay_ms"]) == (2, 1_500)


def test_an_update_is_answered_by_one_event():
    update = an_update("u1", run_id="r1")
    step = decide(
        replace(begun(), open_updates=1), CompleteUpdate("u1", Blob("AQ==")), accepted={"u1": update}
    )
    assert [event.type for event in step.events] == ["WorkflowTaskCompleted", "UpdateCompleted"]
    assert [each.status for each in step.updates] == [UpdateStatus.COMPLETED]
    assert step.run.open_updates == 0


def test_an_update_of_another_run_is_not_answered():
    update = an_update("u1", run_id="another")
    with pytest.raises(Conflict):
        decide(begun(), CompleteUpdate("u1", Blob("")), accepted={"u1": update})


def test_only_so_many_requests_to_other_workflows_are_open():
    full = Waits(concurrent=True, external=tuple(range(1, EXTERNAL_REQUESTS_MAX + 1)))
    with pytest.raises(InvalidInput) as refusal:
        decide(replace(begun(), waits=full), GO)
    assert refusal.value.details["limit_kind"] == "pending_external_request_count"


def test_a_run_at_its_limit_of_events_may_still_be_cancelled_by_its_code():
    full = replace(begun(), last_sequence=ROOMY.events_max)
    assert decide(full, CancelWorkflow()).run.status is RunStatus.CANCELLED


@pytest.mark.parametrize(("attempt", "pause_ms"), [(1, 20), (2, 40), (9, 40)])
def test_pauses_in_milliseconds_go_before_those_in_seconds(attempt: int, pause_ms: int):
    assert RetrySchedule(10, True, (1, 2), backoff_ms=(20, 40)).pause_ms(attempt) == pause_ms


def test_a_snapshot_says_finer_clocks_only_where_whole_seconds_do_not_tell():
    plain = retry_snapshot(RetrySchedule(2, True, (1,)), ActivityTimeouts(start_to_close_ms=3_000))
    assert not [name for name in plain if name.endswith("_ms")]
    fine = retry_snapshot(RetrySchedule(2, True, (1,), backoff_ms=(5,)), ActivityTimeouts(heartbeat_ms=1_500))
    assert (fine["heartbeat_timeout"], fine["heartbeat_timeout_ms"], fine["backoff_ms"]) == (2, 1_500, [5])
