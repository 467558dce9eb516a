"""Where a cancellation may be delivered, and what it leaves of a run's waits."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core import run_codec
from penstock.core.history import cancellation, recorder
from penstock.core.history.cancellation import EarlierResults, OpenWork
from penstock.core.history.events import EventType
from penstock.core.model import NewEvent, Run
from penstock.core.waits import (
    CancellationDelivery,
    CancellationRequest,
    ConditionWait,
    Selection,
    SelectionMember,
    SignalWait,
    Waits,
)
from penstock.errors import Conflict, Reason
from tests.support.builders import NOW_MS, a_run, an_event

ASKED = CancellationRequest(
    "r1-request-cancellation", NOW_MS, NOW_MS + 60_000, "enough", ("auth:token", "operator")
)
MEMBER = SelectionMember("work", 0, 3, 2, "group", "group:3:2", 2)


def waiting_run(last_step: int = 4, **waits: Any) -> Run:
    return a_run(last_step=last_step, waits=Waits(cancellation=replace(ASKED, event=9), **waits))


def events(*types_and_payloads: tuple[str, str]) -> list[Any]:
    return [
        an_event("r1", number, kind, payload=payload)
        for number, (kind, payload) in enumerate(types_and_payloads, 1)
    ]


def test_a_request_survives_being_stored() -> None:
    delivered = replace(ASKED, delivery=CancellationDelivery(5, "selection_handle", 1, 2, 2), asked=(3,))
    for asked in (ASKED, delivered):
        waits = Waits(cancellation=asked)
        assert run_codec.decode_waits(run_codec.encode_waits(waits)) == waits


def test_the_event_of_a_request_has_the_context_that_code_may_read() -> None:
    event = cancellation.requested(a_run(), ASKED)
    context = event.payload["cancellation"]
    assert context["requester"] == {"type": "auth:token", "id": "operator"}
    assert context["lineage"][-1]["workflow_run_id"] == event.payload["workflow_run_id"] == "r1"
    assert context["cleanup_deadline_at"] == event.payload["cleanup_deadline_at"]
    assert (context["request_id"], context["reason"]) == (event.payload["workflow_command_id"], "enough")


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((1, 1), Reason.CANCELLATION_CALL_RESOLVED),  # its only step has a result
        ((1, 2), Reason.CANCELLATION_CALL_RESOLVED),  # so have both
        ((2, 3), Reason.CANCELLATION_CALL_RESOLVED),  # a member failed
        ((4, 2), Reason.CANCELLATION_CALL_RESOLVED),  # a member was selected
        ((1, 7), Reason.CANCELLATION_CALL_RESOLVED),
        ((4, 1), None),
        ((6, 2), None),  # one of two has a result
    ],
)
def test_a_result_before_the_request_stands(steps: tuple[int, int], reason: Reason | None) -> None:
    recorded = events(
        ("ActivityCompleted", '{"sequence": 1}'),
        ("TimerFired", '{"sequence": 2}'),
        ("ActivityFailed", '{"sequence": 3}'),
        ("SelectionResolved", '{"selection_group_base_sequence": 4, "selection_group_size": 2}'),
        ("SelectionOperationCancelled", '{"member_base_sequence": 6, "member_size": 1}'),
        ("CooperativeCancellationRequested", "{}"),
        ("TimerFired", '{"sequence": 4}'),
    )
    before = cancellation.earlier_results(EarlierResults(), recorded[:3], 6)
    before = cancellation.earlier_results(before, recorded[3:], 6)
    call = CancellationDelivery(steps[0], "parallel", steps[1])
    if reason is None:
        cancellation.check_unresolved(call, before)
        return
    with pytest.raises(Conflict) as refused:
        cancellation.check_unresolved(call, before)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("call", "fits"),
    [
        (CancellationDelivery(5, "timer"), True),  # the next one
        (CancellationDelivery(5, "parallel", 3), True),
        (CancellationDelivery(4, "activity"), True),  # the last one
        (CancellationDelivery(3, "parallel", 2), True),
        (CancellationDelivery(5, "selection_handle", 1, 3, 2), True),
        (CancellationDelivery(4, "timer"), False),  # it is an activity
        (CancellationDelivery(3, "activity"), False),  # the code has passed it
        (CancellationDelivery(6, "timer"), False),
        (CancellationDelivery(4, "parallel", 2), False),
        (CancellationDelivery(4, "selection_handle", 1, 3, 1), False),  # a handle takes the next number
        (CancellationDelivery(5, "selection_handle", 1, 4, 2), False),  # of steps that there are not
        (CancellationDelivery(5, "service_operation"), False),
    ],
)
def test_a_call_is_the_last_one_or_the_next_one(call: CancellationDelivery, fits: bool) -> None:
    work = OpenWork(activities=frozenset({4}))
    if fits:
        cancellation.check_call(waiting_run(), call, work)
        return
    with pytest.raises(Conflict) as refused:
        cancellation.check_call(waiting_run(), call, work)
    assert refused.value.reason is Reason.CANCELLATION_CALL_MISMATCH


@pytest.mark.parametrize(
    ("waits", "call"),
    [
        ({"condition": ConditionWait("w4", 4)}, CancellationDelivery(4, "condition")),
        ({"signal": SignalWait("g4", 4, "paid")}, CancellationDelivery(4, "signal")),
        ({"groups": {"parallel-timers:3:2": 1}}, CancellationDelivery(3, "parallel", 2)),
        ({"groups": {"3:2": 1}}, CancellationDelivery(3, "parallel", 2)),
        ({"selections": (Selection("s", 3, 2, {0: MEMBER}),)}, CancellationDelivery(3, "parallel", 2)),
    ],
)
def test_an_interrupted_call_is_no_longer_waited_for(
    waits: dict[str, Any], call: CancellationDelivery
) -> None:
    run = cancellation.interrupted(waiting_run(**waits), ASKED, call)
    kept = run.waits
    assert (kept.condition, kept.signal, dict(kept.groups), kept.selections) == (None, None, {}, ())
    assert (run.last_step, kept.undelivered, kept.interrupts(4)) == (4, None, True)


def test_a_handle_interrupts_the_member_that_it_stands_for_and_nothing_else() -> None:
    other = replace(MEMBER, index=1, key="other", base=5, size=1, left=1)
    run = waiting_run(5, selections=(Selection("s", 3, 3, {0: MEMBER, 1: other}),))
    run = cancellation.interrupted(run, ASKED, CancellationDelivery(6, "selection_handle", 1, 3, 2))
    [selection] = run.waits.selections
    assert [member.cancelled for member in selection.members.values()] == [True, False]
    assert run.last_step == 6


def test_until_the_delivery_each_end_of_a_step_wakes_the_code_and_then_none_of_the_call_is_recorded() -> None:
    end = NewEvent(EventType.ACTIVITY_COMPLETED, {"sequence": 4, "parallel_group_path": [GROUP]})
    asked = recorder.record(waiting_run(groups={"parallel-activities:3:2": 2}), [end], NOW_MS)
    assert (len(asked.lines), asked.wakes) == (1, True)
    over = cancellation.interrupted(asked.run, ASKED, CancellationDelivery(3, "parallel", 2))
    later = recorder.record(over, [end], NOW_MS)
    assert (later.lines, later.wakes) == ((), False)


def test_the_result_of_a_selection_is_held_back_until_the_code_has_run_without_a_delivery() -> None:
    asked = replace(ASKED, event=1)
    member = replace(MEMBER, size=1, left=1, kind="timer")
    run = a_run(last_step=3, waits=Waits(cancellation=asked, selections=(Selection("s", 3, 1, {0: member}),)))
    entry = {"parallel_group_mode": "select", "selection_member_index": 0, "parallel_group_id": "s"}
    end = NewEvent(EventType.TIMER_FIRED, {"sequence": 3, "parallel_group_path": [entry]})
    held = recorder.record(run, [end], NOW_MS)
    assert ([line.type for line in held.lines], held.wakes) == (["TimerFired"], True)
    assert run_codec.decode_waits(run_codec.encode_waits(held.run.waits)) == held.run.waits
    waits, [result] = recorder.release_held(held.run, held.run.waits)
    assert (result.type, result.payload["resolution_event_id"]) == ("SelectionResolved", held.lines[0].id)
    assert waits.selections == ()
    over = cancellation.interrupted(held.run, asked, CancellationDelivery(3, "parallel"))
    assert recorder.release_held(over, over.waits) == (over.waits, [])


GROUP = {
    "parallel_group_id": "parallel-activities:3:2",
    "parallel_group_base_sequence": 3,
    "parallel_group_size": 2,
    "parallel_group_index": 1,
}
