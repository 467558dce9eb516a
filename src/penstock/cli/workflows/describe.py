"""The commands that describe a workflow: its newest run, or all runs."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import warn
from penstock.cli.output.payload_text import opened
from penstock.cli.output.screen import Screen, ScreenCell, data, name, plain, status
from penstock.cli.output.times import parsed, span
from penstock.cli.timeline.footer import draw_task_stack, run_status
from penstock.cli.timeline.progress import draw_open_activities
from penstock.cli.transport.pages import read_pages
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import path_of, run_option


@verb("describe", example="penstock workflow describe order-1001")
@click.argument("workflow_id")
@run_option
@click.pass_obj
def describe_workflow(session: CliSession, workflow_id: str, run_id: str | None) -> None:
    """Show the state of a workflow: status, input, output, and what it waits for."""
    session.show(session.connect().get(*path_of(workflow_id, run_id)), _draw_one)


@verb("runs", example="penstock workflow runs order-1001")
@click.argument("workflow_id")
@click.pass_obj
def list_runs(session: CliSession, workflow_id: str) -> None:
    """List the runs of a workflow, oldest first."""
    connection = session.connect()
    found = read_pages(connection, "workflows", workflow_id, "runs", rows="runs", limit=None, page_max=1000)
    session.show(found, _draw_runs)


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    screen.facts(
        [
            ("Workflow", name(body.get("workflow_id"))),
            ("Run", plain(_run(body))),
            ("Type", plain(body.get("workflow_type"))),
            ("Status", status(body.get("status"))),
            ("Closed as", status(body.get("closed_reason"))),
            *run_status(body),
            ("Namespace", plain(body.get("namespace"))),
            ("Task queue", plain(body.get("task_queue"))),
            ("Build", plain(body.get("compatibility"))),
            ("Business key", plain(body.get("business_key"))),
            ("Parent", plain(_parent(body.get("parent")))),
            ("Goes on from", plain(body.get("continued_from_run_id"))),
            ("Retry of", plain(_retry(body))),
            ("Input", _payload(body, "input")),
            ("Output", _payload(body, "output")),
            ("Memo", plain(body.get("memo"))),
            ("Search attributes", plain(body.get("search_attributes"))),
            ("Started", screen.when_exactly(body.get("started_at"))),
            ("Last progress", screen.when_exactly(body.get("last_progress_at"))),
            ("Closed", screen.when_exactly(body.get("closed_at"))),
            ("Archived", screen.when_exactly(body.get("archived_at"))),
            ("Run deadline", screen.when_exactly(body.get("run_deadline_at"))),
            ("Execution deadline", screen.when_exactly(body.get("execution_deadline_at"))),
        ]
    )
    draw_open_activities(screen, body)
    draw_task_stack(screen, body)
    warn_of_limits(body)


def warn_of_limits(body: dict[str, Any]) -> None:
    """Warn about each limit that the run approaches."""
    for each in body.get("warnings") or []:
        of = f"{each.get('current_value')} of {each.get('configured_limit')}"
        warn(
            f"{str(each.get('limit_kind')).replace('_', ' ')} is at {of}. {each.get('advice') or ''}".rstrip()
        )


def _payload(body: dict[str, Any], field: str) -> ScreenCell:
    envelope = body.get(f"{field}_envelope")
    return data(opened(envelope) if envelope else opened(body.get(field)))


def _run(body: dict[str, Any]) -> str | None:
    run_id, number, count = body.get("run_id"), body.get("run_number"), body.get("run_count")
    return f"{run_id} ({number} of {count})" if run_id and number and count else run_id


def _parent(parent: object) -> str | None:
    if not isinstance(parent, dict):
        return None
    run_id = parent.get("run_id")
    return f"{parent.get('workflow_id')} (run {run_id})" if run_id else str(parent.get("workflow_id"))


def _retry(body: dict[str, Any]) -> str | None:
    run_id = body.get("retried_from_run_id")
    return f"{run_id} (attempt {body.get('attempt')})" if run_id else None


def _draw_runs(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body.get("runs") or [],
        "#=run_number, run=run_id:name, status:status, closed as=closed_reason:status, "
        "started=started_at:when, closed=closed_at:when, took",
        empty="No runs are kept of this workflow any more.",
        took=_took,
    )


def _took(row: dict[str, Any]) -> ScreenCell:
    started, closed = parsed(row.get("started_at")), parsed(row.get("closed_at"))
    return plain(span((closed - started).total_seconds()) if started and closed else None)
