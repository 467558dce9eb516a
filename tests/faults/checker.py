"""Compares what clients observed with the final state of the server, invariant by invariant.

Each law has a name; a finding says which law was broken and by what. A call without an answer may have had its
effect or not, so it is held against nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.observations import Found, Kind, Lease, Record, Report, Verdict

STEP_BEGINS = ("ActivityScheduled", "TimerScheduled")
STEP_ENDS = (
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityTimedOut",
    "ActivityCancelled",
    "TimerFired",
    "TimerCancelled",
)
RUN_ENDS = (
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowCancelled",
    "WorkflowTerminated",
    "WorkflowTimedOut",
)


@dataclass(frozen=True)
class Finding:
    law: str
    about: str


Findings = Iterator[Finding]


def check(record: Record, found: Found) -> list[Finding]:
    """All violations; empty for a correct run."""
    laws: tuple[Callable[[Record, Found], Findings], ...] = (
        no_start_is_lost,
        nothing_exists_twice,
        nothing_comes_from_nowhere,
        a_start_sent_again_names_the_same_run,
        every_run_ends,
        histories_are_dense,
        every_step_ends_once,
        every_run_ends_once,
        one_report_counts_per_task,
        a_report_that_counted_is_in_the_history,
        what_the_history_says_was_sent,
        a_repeat_needs_a_first,
        attempts_rise,
        one_holder_at_a_time,
        no_server_error,
    )
    return [finding for law in laws for finding in law(record, found)]


def no_start_is_lost(record: Record, found: Found) -> Findings:
    there = {(run.kind, run.id, run.run_id) for run in found.runs}
    for start in record.starts:
        if start.acknowledged and (start.kind, start.id, start.run_ids[0]) not in there:
            yield Finding("no_start_is_lost", f"{start.kind} {start.id}")


def nothing_exists_twice(record: Record, found: Found) -> Findings:
    for (kind, name), count in Counter((run.kind, run.id) for run in found.runs).items():
        if count > 1:
            yield Finding("nothing_exists_twice", f"{kind} {name}: {count} runs")


def nothing_comes_from_nowhere(record: Record, found: Found) -> Findings:
    sent = {(start.kind, start.id) for start in record.starts if start.sends}
    for run in found.runs:
        if (run.kind, run.id) not in sent:
            yield Finding("nothing_comes_from_nowhere", f"{run.kind} {run.id}")


def a_start_sent_again_names_the_same_run(record: Record, found: Found) -> Findings:
    for start in record.starts:
        if len(set(start.run_ids)) > 1:
            yield Finding("a_start_sent_again_names_the_same_run", f"{start.id}: {start.run_ids}")


def every_run_ends(record: Record, found: Found) -> Findings:
    for run in found.runs:
        if run.status != "completed":
            yield Finding("every_run_ends", f"{run.id} is {run.status}")


def histories_are_dense(record: Record, found: Found) -> Findings:
    for run in found.runs:
        sequences = [event.sequence for event in run.events]
        if sequences != list(range(1, len(sequences) + 1)) or not sequences:
            yield Finding("histories_are_dense", f"{run.id}: {sequences}")


def every_step_ends_once(record: Record, found: Found) -> Findings:
    for run in found.runs:
        begun = Counter(event.step for event in run.events if event.type in STEP_BEGINS)
        ended = Counter(event.step for event in run.events if event.type in STEP_ENDS)
        for step in sorted(begun.keys() | ended.keys(), key=str):
            if (begun[step], ended[step]) != (1, 1):
                yield Finding(
                    "every_step_ends_once", f"{run.id} step {step}: begun {begun[step]}, ended {ended[step]}"
                )


def every_run_ends_once(record: Record, found: Found) -> Findings:
    for run in found.runs:
        ends = [event.type for event in run.events if event.type in RUN_ENDS]
        if len(ends) != 1 or run.events[-1].type not in RUN_ENDS:
            yield Finding("every_run_ends_once", f"{run.id}: {ends}, last {run.events[-1].type}")


def one_report_counts_per_task(record: Record, found: Found) -> Findings:
    for task_id, reports in _by_task(record.reports).items():
        holders = {(report.worker, report.token) for report in reports if report.counted}
        if len(holders) > 1:
            yield Finding("one_report_counts_per_task", f"{task_id}: {sorted(holders)}")


def a_report_that_counted_is_in_the_history(record: Record, found: Found) -> Findings:
    events = [event for run in found.runs for event in run.events]
    completed = {event.token for event in events if event.type == "ActivityCompleted"}
    decided = {event.task_id for event in events}
    for report in record.reports:
        told = report.token in completed if report.kind is Kind.ACTIVITY else report.task_id in decided
        if report.counted and report.decides and not told:
            yield Finding("a_report_that_counted_is_in_the_history", f"{report.task_id} {report.token}")


def what_the_history_says_was_sent(record: Record, found: Found) -> Findings:
    sent = {
        report.token
        for report in record.reports
        if report.kind is Kind.ACTIVITY and report.verdict is not Verdict.REFUSED
    }
    for run in found.runs:
        for event in run.events:
            if event.type == "ActivityCompleted" and event.token not in sent:
                yield Finding("what_the_history_says_was_sent", f"{run.id}: {event.token}")


def a_repeat_needs_a_first(record: Record, found: Found) -> Findings:
    for report in record.reports:
        if report.verdict is Verdict.REPEATED and report.sends < 2:
            yield Finding("a_repeat_needs_a_first", f"{report.task_id} of {report.worker}")


def attempts_rise(record: Record, found: Found) -> Findings:
    """A task that is leased again has a higher attempt; an equal attempt is the same lease, delivered again."""
    for task_id, leases in _by_task(record.leases).items():
        for before, after in _neighbours(leases):
            if after.token != before.token and after.attempt <= before.attempt:
                yield Finding("attempts_rise", f"{task_id}: {before.attempt} then {after.attempt}")


def one_holder_at_a_time(record: Record, found: Found) -> Findings:
    """Per activity task, and per run for workflow tasks: certain lease spans never overlap."""
    scopes: dict[str, list[Lease]] = defaultdict(list)
    for lease in record.leases:
        scopes[lease.run_id if lease.kind is Kind.WORKFLOW else lease.task_id].append(lease)
    for scope, leases in scopes.items():
        alike = [lease for lease in leases if lease.kind is leases[0].kind]
        for before, after in _neighbours(alike):
            same = (before.task_id, before.token, before.worker) == (after.task_id, after.token, after.worker)
            if not same and after.seen_at_ms < before.certainly_until_ms:
                yield Finding("one_holder_at_a_time", f"{scope}: {before.worker} and {after.worker}")


def no_server_error(record: Record, found: Found) -> Findings:
    for error in record.server_errors:
        yield Finding("no_server_error", error)


def _by_task(seen: Iterable[Lease] | Iterable[Report]) -> dict[str, list]:
    tasks: dict[str, list] = defaultdict(list)
    for each in seen:
        tasks[each.task_id].append(each)
    return tasks


def _neighbours(leases: list[Lease]) -> Iterator[tuple[Lease, Lease]]:
    ordered = sorted(leases, key=lambda lease: lease.seen_at_ms)
    return pairwise(ordered)
