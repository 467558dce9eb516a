"""The commands that pause runs, make new ones from others, and delete them."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb, with_options
from penstock.cli.inputs import CONFIRM_DELETION, arguments, confirm, given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen
from penstock.cli.transport.pages import LIST_PAGE_MAX, read_pages
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import input_option, look_at, path_of, run_option, same_run
from penstock.cli.workflows.termination import command_options, send_command

pause_options = with_options(
    click.argument("workflow_id"),
    run_option,
    click.option("--reason", metavar="TEXT", help="Why; kept in the audit trail."),
)


@verb("rerun", example='penstock workflow rerun order-1001 --reason "the card was renewed"')
@command_options
@click.pass_obj
def rerun_workflow(session: CliSession, /, workflow_id: str, run_id: str | None, **fields: Any) -> None:
    """Start a closed workflow again with its input, as a new run of the same id."""
    send_command(session, workflow_id, run_id, "rerun", fields)
    echo_err(f"{workflow_id} runs again. {look_at(workflow_id)}")


@verb("reset", example='penstock workflow reset order-1001 --event 14 --reason "bad deploy"')
@command_options
@click.option(
    "--event",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="The decision point: it is decided anew.",
)
@click.option(
    "--reapply",
    type=click.Choice(["signals", "none"]),
    default="signals",
    show_default=True,
    help="Whether the new run gets the signals that came later.",
)
@click.pass_obj
def reset_workflow(session: CliSession, /, workflow_id: str, run_id: str | None, **fields: Any) -> None:
    """Go back to an event in a new run of the same id; an open run is terminated."""
    send_command(session, workflow_id, run_id, "reset", fields)
    echo_err(f"{workflow_id} decides anew from event {fields['event']}. {look_at(workflow_id)}")


@verb("fork", example="penstock workflow fork order-1001 --event 14 --id order-1001b --input '{\"card\": 2}'")
@command_options
@click.option(
    "--event",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="The decision point: it is decided anew.",
)
@click.option("--id", "new_id", metavar="ID", help="Workflow id of the fork; generated if omitted.")
@input_option
@click.option(
    "--reapply",
    type=click.Choice(["signals", "none"]),
    default="none",
    show_default=True,
    help="Whether the fork gets the signals that came later.",
)
@click.pass_obj
def fork_workflow(
    session: CliSession,
    /,
    workflow_id: str,
    run_id: str | None,
    new_id: str | None,
    values: tuple[Any, ...],
    **fields: Any,
) -> None:
    """Start a workflow of another id with the history of a run up to an event."""
    given_input = {"input": arguments(values)} if values else {}
    body = given(**fields, workflow_id=new_id) | given_input
    answer = session.connect().post(*path_of(workflow_id, run_id), "fork", body=body)
    session.show(answer, _draw_fork)
    forked = str(answer.body.get("workflow_id"))
    echo_err(f"{forked} goes on from event {fields['event']} of {workflow_id}. {look_at(forked)}")


@verb("pause", example='penstock workflow pause order-1001 --reason "stock is being counted"')
@pause_options
@click.pass_obj
def pause_workflow(session: CliSession, workflow_id: str, run_id: str | None, reason: str | None) -> None:
    """Dispatch no task of a workflow until it is resumed; signals and results are recorded and wait."""
    outcome = send_command(session, workflow_id, run_id, "pause", {"reason": reason})
    was = "was paused before" if outcome == "already_paused" else "is paused"
    echo_err(f"{workflow_id} {was}. Go on with {command_hint('workflow', 'resume', workflow_id)}.")


@verb("resume", example="penstock workflow resume order-1001")
@pause_options
@click.pass_obj
def resume_workflow(session: CliSession, workflow_id: str, run_id: str | None, reason: str | None) -> None:
    """Dispatch the tasks of a paused workflow again."""
    outcome = send_command(session, workflow_id, run_id, "resume", {"reason": reason})
    echo_err(f"{workflow_id} {'was not paused' if outcome == 'not_paused' else 'goes on'}.")


@verb("delete", example='penstock workflow delete order-1001 --reason "the customer asked for it" --yes')
@click.argument("workflow_id")
@run_option
@click.option("--reason", metavar="TEXT", help="Why; kept in the record of the deletion.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def delete_workflow(
    session: CliSession, workflow_id: str, run_id: str | None, reason: str | None, yes: bool
) -> None:
    """Delete one closed run with its history and payloads; a record of the deletion stays."""
    which = " run ".join(each for each in same_run(workflow_id, run_id) if each != "--run")
    confirm(f"Delete {which} with its history and payloads?", yes, CONFIRM_DELETION)
    answer = session.connect().post(*path_of(workflow_id, run_id), "delete", body=given(reason=reason))
    session.show(answer, _draw_deletion)
    echo_err(f"Deleted {workflow_id}.")


@verb("deletions", example="penstock workflow deletions --id order-1001")
@click.option("--id", "workflow_id", metavar="ID", help="Only runs of this workflow id.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=50, show_default=True, help="Most rows to show."
)
@click.option("--page-token", metavar="TOKEN", help="Continue a list: `next_page_token` of its JSON answer.")
@click.pass_obj
def list_deletions(session: CliSession, workflow_id: str | None, limit: int, page_token: str | None) -> None:
    """List the records of deleted runs, newest first."""
    answer = read_pages(
        session.connect(),
        "deletions",
        rows="deletions",
        limit=limit,
        page_max=LIST_PAGE_MAX,
        query={"workflow_id": workflow_id},
        token=page_token,
    )
    session.show(answer, _draw_deletions)


def _draw_fork(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "workflow=workflow_id:name, run=run_id, type=workflow_type, forked from=source_run_id, "
        "events=reused_event_count, status:status",
    )


def _draw_deletion(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "workflow=workflow_id:name, run=run_id, type=workflow_type, events=history_length, outcome:status",
    )
    if body.get("is_archived"):
        echo_err("It had been archived: the archive keeps its copy.")


def _draw_deletions(screen: Screen, body: dict[str, Any]) -> None:
    if not body["deletions"]:
        echo_err("No run was deleted by a caller.")
        return
    screen.rows(
        body["deletions"],
        "deleted=deleted_at:when, workflow=workflow_id:name, run=run_id, type=workflow_type, was=status:status, "
        "by, reason=deletion_reason",
        by=lambda row: (row.get("principal") or {}).get("id"),
    )
