"""The commands that repair and archive a workflow."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import request_id_option, run_option, same_run
from penstock.cli.workflows.termination import command_options, send_command

_OUTCOMES = {
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
    outcome = send_command(session, workflow_id, run_id, "repair", {"request_id": request_id})
    echo_err(_OUTCOMES.get(outcome, "{}").format(workflow_id))
    if outcome == "repair_not_needed":
        echo_err(
            f"See what it waits for with {command_hint('workflow', 'debug', *same_run(workflow_id, run_id))}."
        )


@verb("archive", example='penstock workflow archive order-1001 --reason "kept for the audit"')
@command_options
@click.pass_obj
def archive_workflow(session: CliSession, /, workflow_id: str, run_id: str | None, **fields: Any) -> None:
    """Mark a closed workflow as archived, and export it where the server keeps an archive."""
    outcome = send_command(session, workflow_id, run_id, "archive", fields)
    echo_err(_OUTCOMES.get(outcome, "{}").format(workflow_id))
