"""The commands that repair and archive a workflow."""

from __future__ import annotations

import click

from penstock.cli.grammar import verb
from penstock.cli.inputs import given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import path_of, reason_option, request_id_option, run_option, same_run
from penstock.cli.workflows.termination import draw_outcome

_SAID = {
    "repair_dispatched": "{} was given a workflow task; a worker will take it.",
    "repair_not_needed": "Nothing of {} is stuck.",
    "archived": "Archived {}.",
    "archive_not_needed": "{} was archived before.",
}


@verb("repair", example="penstock workflow repair order-1001")
@click.argument("workflow_id")
@run_option
@request_id_option
@click.pass_obj
def repair_workflow(
    session: CliSession, workflow_id: str, run_id: str | None, request_id: str | None
) -> None:
    """Schedule a workflow task for a stuck workflow."""
    path = (*path_of(workflow_id, run_id), "repair")
    answer = session.connect().post(*path, body=given(request_id=request_id))
    outcome = str(answer.body.get("outcome"))
    session.show(answer, draw_outcome)
    echo_err(_SAID.get(outcome, "{}").format(workflow_id))
    if outcome == "repair_not_needed":
        echo_err(
            f"See what it waits for with {command_hint('workflow', 'debug', *same_run(workflow_id, run_id))}."
        )


@verb("archive", example='penstock workflow archive order-1001 --reason "kept for the audit"')
@click.argument("workflow_id")
@run_option
@reason_option
@request_id_option
@click.pass_obj
def archive_workflow(
    session: CliSession, workflow_id: str, run_id: str | None, reason: str | None, request_id: str | None
) -> None:
    """Mark a closed workflow as archived, and export it where the server keeps an archive."""
    body = given(reason=reason, request_id=request_id)
    answer = session.connect().post(*path_of(workflow_id, run_id), "archive", body=body)
    session.show(answer, draw_outcome)
    echo_err(_SAID.get(str(answer.body.get("outcome")), "{}").format(workflow_id))
