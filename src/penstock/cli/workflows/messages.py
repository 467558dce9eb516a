"""The commands that send messages to a workflow: signal, query, update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.inputs import SecondsParam, arguments
from penstock.cli.output.exits import ServerUnreachable, StillOpen, echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen
from penstock.cli.transport.connection import ANSWER_SECONDS, ServerConnection, ServerResponse
from penstock.cli.transport.session import CliSession
from penstock.cli.transport.wait import interruptible
from penstock.cli.workflows.results import result_of
from penstock.cli.workflows.run_options import (
    input_option,
    look_at,
    new_request_id,
    path_of,
    request_id_option,
    run_option,
    same_run,
)

UPDATE_SECONDS_MAX = 600
QUERY_SECONDS = 630.0
"""A little longer than any server lets a query wait for its worker."""


@verb("signal", example="penstock workflow signal order-1001 approve --input '\"Ada\"'")
@click.argument("workflow_id")
@click.argument("signal_name", metavar="NAME")
@input_option
@run_option
@request_id_option
@click.pass_obj
def signal_workflow(
    session: CliSession,
    workflow_id: str,
    signal_name: str,
    values: tuple[Any, ...],
    run_id: str | None,
    request_id: str | None,
) -> None:
    """Send a signal to a workflow; it is recorded at once and handled in the next workflow task."""
    request_id = request_id or new_request_id("signal")
    path = (*path_of(workflow_id, run_id), "signal", signal_name)
    body = {"input": arguments(values), "request_id": request_id}
    session.show(_sent_once(session.connect(), path, body), _draw_signal)
    echo_err(look_at(workflow_id, run_id))


@verb("query", example="penstock workflow query order-1001 status --input '\"lines\"'")
@click.argument("workflow_id")
@click.argument("query_name", metavar="NAME")
@input_option
@run_option
@click.pass_obj
def query_workflow(
    session: CliSession, workflow_id: str, query_name: str, values: tuple[Any, ...], run_id: str | None
) -> None:
    """Query a workflow, and print the result."""
    path = (*path_of(workflow_id, run_id), "query", query_name)
    patient = replace(session.connect(), answer_seconds=QUERY_SECONDS)
    with interruptible("Stopped waiting for the answer; a query changes nothing."):
        answer = patient.post(*path, body={"input": arguments(values)})
    session.show(answer, _draw_answer)


@verb("update", example="penstock workflow update order-1001 set_address --input '\"1 Main St\"'")
@click.argument("workflow_id")
@click.argument("update_name", metavar="NAME")
@input_option
@run_option
@click.option(
    "--wait",
    "wait_for",
    type=click.Choice(["accepted", "completed"]),
    default="completed",
    show_default=True,
    help="The stage to wait for.",
)
@click.option(
    "--timeout",
    type=SecondsParam(most=UPDATE_SECONDS_MAX),
    metavar="TIME",
    default="30s",
    show_default=True,
    help="Longest wait for completion, at most 10m.",
)
@request_id_option
@click.pass_obj
def update_workflow(
    session: CliSession,
    workflow_id: str,
    update_name: str,
    values: tuple[Any, ...],
    run_id: str | None,
    wait_for: str,
    timeout: int,
    request_id: str | None,
) -> None:
    """Send an update to a workflow, and print its result."""
    request_id = request_id or new_request_id("update")
    path = (*path_of(workflow_id, run_id), "update", update_name)
    body = {
        "input": arguments(values),
        "request_id": request_id,
        "wait_for": wait_for,
        "wait_timeout_seconds": timeout,
    }
    patient = replace(session.connect(), answer_seconds=timeout + ANSWER_SECONDS + QUERY_SECONDS)
    again = _again("update", workflow_id, update_name, run_id, request_id)
    with interruptible("Stopped waiting; the update continues if it was accepted.", lambda: again):
        answer = _sent_once(patient, path, body)
    session.show(answer, _draw_update)
    if answer.body.get("wait_timed_out"):
        raise StillOpen(
            "update_not_completed",
            f"{update_name} was accepted, but not completed within {timeout} seconds.",
            again,
        )


def _sent_once(connection: ServerConnection, path: tuple[str, ...], body: dict[str, Any]) -> ServerResponse:
    """Send under a request id; if the response is lost, suggest how to repeat it idempotently."""
    try:
        return connection.post(*path, body=body)
    except ServerUnreachable as lost:
        lost.advice = f"{lost.advice} With --request-id {body['request_id']} it is carried out only once."
        raise


def _again(verb_name: str, workflow_id: str, what: str, run_id: str | None, request_id: str) -> str:
    named, *rest = same_run(workflow_id, run_id)
    words = ("workflow", verb_name, named, what, *rest, "--request-id", request_id)
    return f"See how it ended with the same arguments and the same id: {command_hint(*words)}."


def _draw_signal(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("retained"):
        echo_err("This request id was used before; the signal was not sent again.")
    screen.fields(
        body, "workflow=workflow_id:name, run=run_id, signal=signal_name, outcome:status, request id"
    )


def _draw_answer(screen: Screen, body: dict[str, Any]) -> None:
    screen.value(result_of(body))


def _draw_update(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("update_status") == "completed":
        screen.value(result_of(body))
        return
    screen.fields(
        body,
        "workflow=workflow_id:name, run=run_id, update=update_name, update id, "
        "status=update_status:status, request id",
    )
