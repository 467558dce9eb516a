"""The commands that describe a workflow: its newest run, or all runs."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import warn
from penstock.cli.output.payload_text import opened
from penstock.cli.output.screen import Screen, ScreenCell, data, plain
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
    identity = screen.field_facts(
        body,
        "workflow=workflow_id:name, run, type=workflow_type, status:status, closed as=closed_reason:status",
        run=_run,
    )
    details = screen.field_facts(
        body,
        "namespace, task queue, build=compatibility, business key, parent, goes on from=continued_from_run_id, "
        "retry of, input, output, memo, search attributes, started=started_at:exact, "
        "last progress=last_progress_at:exact, closed=closed_at:exact, archived=archived_at:exact, "
        "run deadline=run_deadline_at:exact, execution deadline=execution_deadline_at:exact",
        parent=lambda body: _parent(body.get("parent")),
        retry_of=_retry,
        input=lambda body: _payload(body, "input"),
        output=lambda body: _payload(body, "output"),
    )
    screen.facts([*identity, *run_status(body), *details])
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
