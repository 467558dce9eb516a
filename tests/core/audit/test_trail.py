"""The audit trail: what follows from recorded events, wherever a reader begins."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.audit.trail import AuditTrail, DerivedEvent, needs_context
from penstock.core.history.events import MESSAGE_STREAM_SIGNAL
from penstock.core.model import RecordedEvent, RunId
from tests.support.builders import NOW_MS, a_run

RUN = a_run()
FAILED = {
    "activity_execution_id": "a",
    "sequence": 1,
    "message": "no",
    "started_at": "2026-01-01T00:00:00.000Z",
}
Kind = tuple[str, bool, dict[str, Any]]
KINDS: list[Kind] = [
    ("SignalReceived", False, {"signal_name": "pay"}),
    ("ActivityFailed", False, FAILED),
    ("ActivityFailed", True, FAILED),
    ("ChildRunFailed", False, {"sequence": 2, "message": "no"}),
    ("ActivityCompleted", False, {"started_at": "2026-01-01T00:00:00.000Z", "attempt_number": 2}),
    ("TimerFired", False, {}),
    ("WorkflowTaskCompleted", True, {}),
    ("ActivityScheduled", True, {}),
    ("TimerScheduled", True, {}),
]


def recorded(*kinds: Kind) -> list[RecordedEvent]:
    made = [("WorkflowStarted", False, {}), *kinds]
    return [
        RecordedEvent(
            RunId(RUN.run_id),
            number,
            kind,
            json.dumps(payload | ({"signal_id": f"s{number}"} if kind == "SignalReceived" else {})),
            NOW_MS + number,
            f"t{number}" if by_task else None,
        )
        for number, (kind, by_task, payload) in enumerate(made, 1)
    ]


def derived(events: list[RecordedEvent], trail: AuditTrail | None = None) -> list[DerivedEvent]:
    trail = trail or AuditTrail(RUN)
    return [each for event in events for each in trail.add(event)]


def context(events: list[RecordedEvent]) -> list[RecordedEvent]:
    """The events that a reader fetches who begins behind these."""
    found: list[RecordedEvent] = []
    for event in reversed(events):
        found.append(event)
        if not needs_context(event):
            break
    return found[::-1]


@given(st.lists(st.sampled_from(KINDS), max_size=12), st.integers(0, 12))
def test_a_reader_who_begins_anywhere_derives_the_same(kinds: list[Kind], cut: int) -> None:
    events = recorded(*kinds)
    before, page = events[:cut], events[cut:]
    whole = [each for each in derived(events) if each.sequence > cut]
    assert derived(page, AuditTrail(RUN, context(before))) == whole


@given(st.lists(st.sampled_from(KINDS), max_size=12))
def test_ids_are_unique_and_every_signal_is_applied_once_by_a_task(kinds: list[Kind]) -> None:
    events = recorded(*kinds)
    found = derived(events)
    assert len({each.id for each in found}) == len(found)
    applied = [each.payload["signal_id"] for each in found if each.type == "SignalApplied"]
    last_task = max((each.sequence for each in events if each.task_id is not None), default=0)
    seen = [
        f"s{each.sequence}" for each in events if each.type == "SignalReceived" and each.sequence < last_task
    ]
    assert applied == seen


def test_a_failure_that_ends_the_run_is_not_handled_also_in_a_concurrent_run() -> None:
    marker: Kind = ("WorkflowTaskCompleted", True, {})
    failing: Kind = ("WorkflowFailed", True, {})
    going_on: Kind = ("ActivityScheduled", True, {})
    for end, handled in ((failing, False), (going_on, True)):
        types = [each.type for each in derived(recorded(("ActivityFailed", False, FAILED), marker, end))]
        assert ("FailureHandled" in types) is handled


def test_a_run_that_the_server_began_was_accepted_from_nobody() -> None:
    (began,) = recorded()
    assert [each.type for each in derived([began])] == ["StartAccepted"]
    child = RecordedEvent(began.run_id, 1, began.type, '{"parent_workflow_run_id": "p"}', NOW_MS, None)
    assert derived([child]) == []


def test_signals_are_left_to_the_waits_of_code_that_takes_them_by_name() -> None:
    events = recorded(("SignalReceived", False, {"signal_name": "pay"}), ("TimerScheduled", True, {}))
    found = derived(events, AuditTrail(RUN, takes_signals=True))
    assert [each.type for each in found] == ["StartAccepted"]


def test_the_delivery_of_a_message_is_no_signal_that_is_applied() -> None:
    delivery = {"signal_name": MESSAGE_STREAM_SIGNAL}
    found = derived(recorded(("SignalReceived", False, delivery), ("TimerScheduled", True, {})))
    assert [each.type for each in found] == ["StartAccepted"]
