"""The commands that cancel or terminate a workflow."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb, with_options
from penstock.cli.inputs import SecondsParam, given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import path_of, reason_option, request_id_option, run_option

command_options = with_options(click.argument("workflow_id"), run_option, reason_option, request_id_option)
"""The arguments of commands that end a run: those of `send_command`."""

_ASKED = "cancel_requested"
"""The outcome of cancelling a workflow whose code decides how it ends."""


@verb("cancel", example='penstock workflow cancel order-1001 --reason "ordered twice"')
@command_options
@click.option(
    "--cleanup-timeout",
    type=SecondsParam(3600),
    metavar="TIME",
    help="Let the code clean up for this long, then close the run. Refused if no worker can deliver that to the code.",
)
@click.pass_obj
def cancel_workflow(
    session: CliSession,
    /,
    workflow_id: str,
    run_id: str | None,
    cleanup_timeout: int | None,
    **fields: Any,
) -> None:
    """Cancel an open workflow, or request its cancellation if its code handles it."""
    command = "cancel"
    if cleanup_timeout is not None:
        if fields.pop("request_id", None) is not None:
            raise click.UsageError(
                "Leave out --request-id: a run has one such request, and a repetition returns it."
            )
        command, fields["cleanup_timeout_seconds"] = "request-cancellation", cleanup_timeout
    outcome = send_command(session, workflow_id, run_id, command, fields)
    echo_err(f"Asked {workflow_id} to end." if outcome == _ASKED else f"Cancelled {workflow_id}.")


@verb("terminate", example='penstock workflow terminate order-1001 --reason "runs wild"')
@command_options
@click.pass_obj
def terminate_workflow(session: CliSession, /, workflow_id: str, run_id: str | None, **fields: Any) -> None:
    """Terminate an open workflow."""
    send_command(session, workflow_id, run_id, "terminate", fields)
    echo_err(f"Terminated {workflow_id}.")


def send_command(
    session: CliSession, workflow_id: str, run_id: str | None, command: str, fields: dict[str, Any]
) -> str:
    """Send a command to a run, show the response, and return the outcome as the server names it."""
    answer = session.connect().post(*path_of(workflow_id, run_id), command, body=given(**fields))
    session.show(answer, _draw_outcome)
    return str(answer.body.get("outcome"))


def _draw_outcome(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body, "workflow=workflow_id:name, run=run_id, type=workflow_type, status:status, outcome:status"
    )
