"""The commands that cancel or terminate a workflow."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.inputs import given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import path_of, reason_option, request_id_option, run_option

_ASKED = "cancel_requested"
"""The outcome of cancelling a workflow whose code decides how it ends."""


@verb("cancel", example='penstock workflow cancel order-1001 --reason "ordered twice"')
@click.argument("workflow_id")
@run_option
@reason_option
@request_id_option
@click.pass_obj
def cancel_workflow(
    session: CliSession, workflow_id: str, run_id: str | None, reason: str | None, request_id: str | None
) -> None:
    """Cancel an open workflow, or request its cancellation if its code handles it."""
    body = given(reason=reason, request_id=request_id)
    outcome = _end(session, path_of(workflow_id, run_id), "cancel", body)
    echo_err(f"Asked {workflow_id} to end." if outcome == _ASKED else f"Cancelled {workflow_id}.")


@verb("terminate", example='penstock workflow terminate order-1001 --reason "runs wild"')
@click.argument("workflow_id")
@run_option
@reason_option
@request_id_option
@click.pass_obj
def terminate_workflow(
    session: CliSession, workflow_id: str, run_id: str | None, reason: str | None, request_id: str | None
) -> None:
    """Terminate an open workflow."""
    _end(session, path_of(workflow_id, run_id), "terminate", given(reason=reason, request_id=request_id))
    echo_err(f"Terminated {workflow_id}.")


def _end(session: CliSession, path: tuple[str, ...], how: str, body: dict[str, Any]) -> Any:
    """The outcome, as the server names it."""
    answer = session.connect().post(*path, how, body=body)
    session.show(answer, draw_outcome)
    return answer.body.get("outcome")


def draw_outcome(screen: Screen, body: dict[str, Any]) -> None:
    """Draw the outcome of a command."""
    screen.fields(
        body, "workflow=workflow_id:name, run=run_id, type=workflow_type, status:status, outcome:status"
    )
