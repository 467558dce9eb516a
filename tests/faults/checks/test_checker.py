"""Tests of the checker: each known fault, added to a clean record, is found by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.faults.checker import check
from tests.faults.observations import Found, FoundEvent, FoundRun, Kind, Lease, Record, Report, Start, Verdict

pytestmark = pytest.mark.faults


def clean() -> tuple[Record, Found]:
    """One workflow with an activity and a timer, and one standalone activity, as they should be seen."""
    wf, act = Kind.WORKFLOW, Kind.ACTIVITY
    record = Record(
        starts=[Start(wf, "w0", 2, ["r0", "r0"]), Start(act, "a0", 1, ["r1"]), Start(wf, "never-acked", 1)],
        leases=[
            Lease(wf, "r0-1", "r0", 1, "1", "ann", 100, 3100, reported_at_ms=None),
            Lease(wf, "r0-1", "r0", 2, "2", "bob", 3150, 6150, reported_at_ms=3200),
            Lease(act, "r0-2", "r0", 1, "1.x", "ann", 3300, 6300, reported_at_ms=3400),
            Lease(wf, "r0-3", "r0", 1, "1", "ann", 3500, 6500, reported_at_ms=3600),
            Lease(act, "r1-1", "r1", 1, "1.y", "bob", 200, 3200, reported_at_ms=300),
        ],
        reports=[
            Report(wf, "r0-1", "r0", 1, "1", "ann", sends=1, verdict=Verdict.REFUSED),
            Report(wf, "r0-1", "r0", 2, "2", "bob", sends=2, verdict=Verdict.REPEATED),
            Report(act, "r0-2", "r0", 1, "1.x", "ann", sends=1, verdict=Verdict.ACCEPTED),
            Report(wf, "r0-3", "r0", 1, "1", "ann", sends=1, verdict=Verdict.ACCEPTED),
            Report(act, "r1-1", "r1", 1, "1.y", "bob", sends=1, verdict=Verdict.ACCEPTED),
        ],
    )
    events = (
        FoundEvent(1, "WorkflowStarted"),
        FoundEvent(2, "ActivityScheduled", 1, task_id="r0-1"),
        FoundEvent(3, "TimerScheduled", 2, task_id="r0-1"),
        FoundEvent(4, "ActivityCompleted", 1, "1.x"),
        FoundEvent(5, "TimerFired", 2),
        FoundEvent(6, "WorkflowCompleted", task_id="r0-3"),
    )
    alone = (
        FoundEvent(1, "WorkflowStarted"),
        FoundEvent(2, "ActivityScheduled", 1),
        FoundEvent(3, "ActivityCompleted", 1, "1.y"),
        FoundEvent(4, "WorkflowCompleted"),
    )
    runs = [FoundRun(wf, "w0", "r0", "completed", events), FoundRun(act, "a0", "r1", "completed", alone)]
    return record, Found(runs)


def test_a_clean_record_has_no_findings() -> None:
    assert check(*clean()) == []


def _events(found: Found, *events: FoundEvent) -> None:
    found.runs[0] = dataclasses.replace(found.runs[0], events=events)


def _lose_an_acknowledged_start(record: Record, found: Found) -> None:
    record.starts.append(Start(Kind.WORKFLOW, "gone", 1, ["r9"]))


def _start_twice(record: Record, found: Found) -> None:
    found.runs.append(dataclasses.replace(found.runs[0], run_id="r7"))


def _invent_a_run(record: Record, found: Found) -> None:
    found.runs.append(dataclasses.replace(found.runs[1], id="nobody-asked"))


def _answer_a_repeated_start_with_another_run(record: Record, found: Found) -> None:
    record.starts[0].run_ids.append("r8")


def _leave_a_run_open(record: Record, found: Found) -> None:
    found.runs[0] = dataclasses.replace(found.runs[0], status="waiting")


def _lose_an_event(record: Record, found: Found) -> None:
    _events(found, *(event for event in found.runs[0].events if event.type != "TimerFired"))


def _number_an_event_twice(record: Record, found: Found) -> None:
    _events(
        found,
        *(dataclasses.replace(event, sequence=min(event.sequence, 5)) for event in found.runs[0].events),
    )


def _complete_an_activity_twice(record: Record, found: Found) -> None:
    *events, last = found.runs[0].events
    _events(
        found, *events, FoundEvent(6, "ActivityCompleted", 1, "1.x"), dataclasses.replace(last, sequence=7)
    )


def _close_a_run_twice(record: Record, found: Found) -> None:
    _events(found, *found.runs[0].events, FoundEvent(7, "WorkflowFailed"))


def _accept_two_holders(record: Record, found: Found) -> None:
    record.reports[0].verdict = Verdict.ACCEPTED


def _lose_an_accepted_result(record: Record, found: Found) -> None:
    record.reports.append(
        Report(Kind.ACTIVITY, "r5-1", "r5", 1, "1.lost", "ann", sends=1, verdict=Verdict.ACCEPTED)
    )


def _lose_an_accepted_decision(record: Record, found: Found) -> None:
    record.reports.append(
        Report(Kind.WORKFLOW, "r0-9", "r0", 1, "1", "ann", sends=1, verdict=Verdict.ACCEPTED)
    )


def _record_a_refused_result(record: Record, found: Found) -> None:
    record.reports[2].verdict = Verdict.REFUSED


def _know_a_report_before_it_was_sent(record: Record, found: Found) -> None:
    record.reports[3].verdict = Verdict.REPEATED


def _lease_with_an_old_attempt(record: Record, found: Found) -> None:
    record.leases[1] = dataclasses.replace(record.leases[1], attempt=1, token="1b")


def _lease_to_two_workers_at_once(record: Record, found: Found) -> None:
    record.leases[1] = dataclasses.replace(record.leases[1], seen_at_ms=3000)


def _lease_the_next_task_of_a_run_too_early(record: Record, found: Found) -> None:
    record.leases[3] = dataclasses.replace(record.leases[3], seen_at_ms=3180)


def _fail_inside(record: Record, found: Found) -> None:
    record.server_errors.append("POST /api/workflows: 500")


SEEDED: dict[str, tuple[Callable[[Record, Found], None], ...]] = {
    "no_start_is_lost": (_lose_an_acknowledged_start,),
    "nothing_exists_twice": (_start_twice,),
    "nothing_comes_from_nowhere": (_invent_a_run,),
    "a_start_sent_again_names_the_same_run": (_answer_a_repeated_start_with_another_run,),
    "every_run_ends": (_leave_a_run_open,),
    "histories_are_dense": (_lose_an_event, _number_an_event_twice),
    "every_step_ends_once": (_lose_an_event, _complete_an_activity_twice),
    "every_run_ends_once": (_close_a_run_twice,),
    "one_report_counts_per_task": (_accept_two_holders,),
    "a_report_that_counted_is_in_the_history": (_lose_an_accepted_result, _lose_an_accepted_decision),
    "what_the_history_says_was_sent": (_record_a_refused_result,),
    "a_repeat_needs_a_first": (_know_a_report_before_it_was_sent,),
    "attempts_rise": (_lease_with_an_old_attempt,),
    "one_holder_at_a_time": (_lease_to_two_workers_at_once, _lease_the_next_task_of_a_run_too_early),
    "no_server_error": (_fail_inside,),
}


@pytest.mark.parametrize(
    ("law", "fault"), [(law, fault) for law, faults in SEEDED.items() for fault in faults]
)
def test_a_seeded_fault_is_found_under_its_name(law: str, fault: Callable[[Record, Found], None]) -> None:
    record, found = clean()
    fault(record, found)
    assert law in {finding.law for finding in check(record, found)}
