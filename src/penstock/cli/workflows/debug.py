"""The command that diagnoses a run: what it is, what it waits for, what went wrong, what to do next."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, name, plain, status
from penstock.cli.timeline.failures import failure_lines
from penstock.cli.timeline.footer import run_status
from penstock.cli.timeline.payloads import in_short
from penstock.cli.timeline.progress import heartbeat_text
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import path_of, run_option, same_run

_INDENT = 2
_SEVERITIES = {"error": "red", "warning": "yellow", "info": "cyan"}
_ADVICE = {
    "no_active_pollers": "Start a worker for the task queue.",
    "expired_leases": "A worker went away in the middle; its tasks are given to others by themselves.",
    "task_problem": "Read the failure; fix the workflow's code and start workers with it.",
    "repair_attention": "Give it a task now with `penstock workflow repair`.",
    "workflow_replay_blocked": "Start workers whose code fits the history; it then continues by itself.",
}
_MEANINGS = {
    "terminal": "It has ended.",
    "needs_attention": "It needs attention: it does not continue by itself.",
    "pending_work": "Work is under way or waits for a worker.",
    "waiting": "It waits for a timer, a signal or another workflow.",
    "queue_backlog": "It waits behind other work in its task queue.",
    "running": "It goes on.",
}


@verb("debug", example="penstock workflow debug order-1001")
@click.argument("workflow_id")
@run_option
@click.option("--last-payload", is_flag=True, help="Also show the beginning of the last event's payload.")
@click.pass_obj
def debug_workflow(session: CliSession, workflow_id: str, run_id: str | None, last_payload: bool) -> None:
    """Diagnose a run: what it waits for, what went wrong, and what to do next."""
    query = {"include_last_event_payload": "true" if last_payload else None}
    answer = session.connect().get(*path_of(workflow_id, run_id), "debug", query=query)
    session.show(answer, _draw)
    if not session.json:
        _suggest_next(answer.body, workflow_id, run_id)


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    execution = body.get("execution") or {}
    diagnosis = str(body.get("diagnostic_status"))
    screen.facts(
        [
            ("Workflow", name(body.get("workflow_id"))),
            ("Run", plain(body.get("run_id"))),
            ("Type", plain(execution.get("workflow_type"))),
            ("Diagnosis", status(diagnosis)),
            ("Means", plain(_MEANINGS.get(diagnosis))),
            ("Status", status(execution.get("status"))),
            *run_status({"pending": _open_work(execution), **execution}),
            ("Task queue", plain(execution.get("task_queue"))),
            ("Build", plain(execution.get("compatibility"))),
            ("Started", screen.when_exactly(execution.get("started_at"))),
            ("Last progress", screen.when_exactly(execution.get("last_progress_at"))),
            ("Closed", screen.when_exactly(execution.get("closed_at"))),
            ("Last event", _event(screen, execution.get("last_event"))),
            ("Its payload", plain(_preview(execution.get("last_event")))),
            ("Next event", _next(screen, execution.get("next_scheduled_event"))),
            ("Events", plain(execution.get("history_length"))),
        ]
    )
    if summary := (body.get("why") or {}).get("summary"):
        screen.heading("Why it waits")
        screen.line(ScreenCell(str(summary)))
    _draw_findings(screen, body.get("findings") or [])
    _draw_tasks(screen, body.get("pending_workflow_tasks") or [])
    _draw_activities(screen, body.get("pending_activities") or [])
    _draw_failures(screen, body.get("recent_failures") or [])


def _open_work(execution: dict[str, Any]) -> dict[str, Any]:
    prefix = "open_"
    counts = {key.removeprefix(prefix): each for key, each in execution.items() if key.startswith(prefix)}
    return {**counts, "buffered events": execution.get("buffered_events")}


def _event(screen: Screen, event: object) -> ScreenCell:
    if not isinstance(event, dict):
        return plain(None)
    at = screen.when(event.get("timestamp")).text
    return ScreenCell(f"#{event.get('sequence')} {event.get('event_type')}, {at}")


def _preview(event: object) -> str | None:
    preview = event.get("payload_preview") if isinstance(event, dict) else None
    return None if preview is None else preview if isinstance(preview, str) else in_short(preview)


def _next(screen: Screen, event: object) -> ScreenCell:
    if not isinstance(event, dict):
        return plain(event)
    return ScreenCell(f"{event.get('event_type')}, {screen.when(event.get('at')).text}")


def _draw_findings(screen: Screen, findings: list[dict[str, Any]]) -> None:
    if not findings:
        return
    screen.heading("Findings")
    for each in findings:
        severity = str(each.get("severity"))
        screen.line(
            ScreenCell(f"{severity}:", _SEVERITIES.get(severity, "")), ScreenCell(str(each.get("message")))
        )
        advice = each.get("advice") or each.get("remediation") or _ADVICE.get(str(each.get("code")))
        if advice:
            screen.below(ScreenCell(str(advice), "dim"), _INDENT)


def _draw_tasks(screen: Screen, tasks: list[dict[str, Any]]) -> None:
    screen.rows(
        tasks,
        "task=task_id:name, kind=task_type, status:status, available=available_at:when, held by=lease_owner, "
        "lease ends=lease_expires_at:when, attempts=attempt_count",
        "Workflow tasks",
        status=lambda each: "expired" if each.get("lease_expired") else each.get("status"),
    )
    for each in tasks:
        message = each.get("replay_blocked_reason") or each.get("last_error")
        if message:
            _draw_error(screen, _with_stack(str(message), each))


def _with_stack(message: str, task: dict[str, Any]) -> str:
    """The error of a task, followed by its stack."""
    return f"{message}\n{task['stack_trace']}" if task.get("stack_trace") else message


def _draw_error(screen: Screen, text: str) -> None:
    for line in text.splitlines():
        screen.below(ScreenCell(line, "red"), _INDENT)


def _draw_activities(screen: Screen, activities: list[dict[str, Any]]) -> None:
    screen.rows(
        activities,
        "activity=activity_execution_id:name, type=activity_type, status:status, queue, "
        "attempts=attempt_count, held by=current_attempt.lease_owner, heartbeat=last_heartbeat_at:when, "
        "next:when",
        "Open activities",
        next=lambda each: each.get("next_attempt_at") or _deadline(each),
    )
    for each in activities:
        for what, message in (
            ("is for", each.get("summary")),
            ("heartbeat details", heartbeat_text(each.get("last_heartbeat"))),
        ):
            if message:
                screen.below(ScreenCell(f"{each.get('activity_type')} {what}: {message}"), _INDENT)
        if each.get("last_error"):
            _draw_error(screen, _with_stack(f"{each.get('activity_type')}: {each['last_error']}", each))


def _deadline(activity: dict[str, Any]) -> object:
    """The next moment at which an activity would be given up."""
    fields = (
        *("heartbeat_deadline_at", "close_deadline_at"),
        *("schedule_deadline_at", "schedule_to_close_deadline_at"),
    )
    return min((str(activity[field]) for field in fields if activity.get(field)), default=None)


def _draw_failures(screen: Screen, failures: list[dict[str, Any]]) -> None:
    if not failures:
        return
    screen.heading("Recent failures")
    for each in failures:
        of = " ".join(str(each[field]) for field in ("source_kind", "source_id") if each.get(field))
        handled = ", handled by the workflow" if each.get("handled") else ""
        screen.line(ScreenCell(f"{of}{handled}, {screen.when(each.get('created_at')).text}"))
        for line in failure_lines(each):
            screen.below(ScreenCell(line, "red"), _INDENT)


def _suggest_next(body: dict[str, Any], workflow_id: str, run_id: str | None) -> None:
    history = command_hint("workflow", "history", *same_run(workflow_id, run_id))
    if body.get("diagnostic_status") == "terminal":
        echo_err(f"Read what happened with {history}.")
    else:
        echo_err(
            f"See what it waits behind with {command_hint('why', workflow_id)}, and what happened with {history}."
        )
