"""The command that waits for a workflow's result, and prints it."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.inputs import SecondsParam
from penstock.cli.output.exits import CommandError, StillOpen
from penstock.cli.output.hints import command_hint
from penstock.cli.output.payload_text import opened
from penstock.cli.output.screen import Screen
from penstock.cli.timeline.failures import failure_lines
from penstock.cli.transport.connection import ANSWER_SECONDS, ServerConnection, ServerResponse
from penstock.cli.transport.retrying_connection import RetryingConnection
from penstock.cli.transport.session import CliSession
from penstock.cli.transport.wait import interruptible, is_closed
from penstock.cli.workflows.run_options import look_at, path_of, run_option, same_run

WAIT_SECONDS = 30
"""How long one request waits at the server, which holds it no longer than a minute."""
_ASK_AGAIN_SECONDS = 0.2
"""A pause for servers that answer at once, such as one that is shutting down."""


@verb("result", example="penstock workflow result order-1001 --timeout 10m")
@click.argument("workflow_id")
@run_option
@click.option(
    "--timeout", type=SecondsParam(), metavar="TIME", help="Longest wait: 90s, 15m, 2h; unlimited if omitted."
)
@click.option("--no-wait", is_flag=True, help="Do not wait for a workflow that still runs.")
@click.pass_obj
def show_result(
    session: CliSession, workflow_id: str, run_id: str | None, timeout: int | None, no_wait: bool
) -> None:
    """Wait until a workflow is closed, over all its runs, then print its result."""
    if no_wait and timeout is not None:
        raise click.UsageError("--no-wait and --timeout contradict each other; give one of them.")
    await_and_show_result(session, workflow_id, run_id, timeout_seconds=0 if no_wait else timeout)


def await_and_show_result(
    session: CliSession,
    workflow_id: str,
    run_id: str | None,
    timeout_seconds: int | None,
    *,
    first_run_id: str | None = None,
) -> None:
    """Wait for the end of a workflow and print its result; anything but a result is an exit code.

    `first_run_id` is the run that a start began: if the id is used again meanwhile, the result is still that start's.
    """
    again = command_hint("workflow", "result", *same_run(workflow_id, run_id))
    with interruptible("Stopped waiting; the workflow continues.", lambda: f"Wait again with {again}."):
        answer = _awaited(session.connect(), path_of(workflow_id, run_id), timeout_seconds, first_run_id)
    session.show(answer, _draw_result)
    if not is_closed(answer.body):
        raise StillOpen(
            "workflow_not_closed",
            f"{workflow_id} is {answer.body.get('status')}.",
            f"Wait again with {again}, or see what it does with"
            f" {command_hint('workflow', 'debug', *same_run(workflow_id, run_id))}.",
        )
    if answer.body.get("status") != "completed" or answer.body.get("closed_reason") == "continued":
        raise _not_completed(workflow_id, answer.body)


def _awaited(
    connection: ServerConnection, path: tuple[str, ...], timeout_seconds: int | None, first_run_id: str | None
) -> ServerResponse:
    patient = RetryingConnection(replace(connection, answer_seconds=WAIT_SECONDS + ANSWER_SECONDS))
    ends_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while True:
        asked_at = time.monotonic()
        left = WAIT_SECONDS if ends_at is None else max(0, math.ceil(ends_at - asked_at))
        wait = {"wait_seconds": min(WAIT_SECONDS, left), "first_execution_run_id": first_run_id}
        answer = patient.ask(lambda link, wait=wait: link.get(*path, "result", query=wait))  # type: ignore[misc]
        if is_closed(answer.body) or (ends_at is not None and time.monotonic() >= ends_at):
            return _with_payload(connection, answer)
        if time.monotonic() - asked_at < _ASK_AGAIN_SECONDS:
            time.sleep(_ASK_AGAIN_SECONDS)


def _with_payload(connection: ServerConnection, answer: ServerResponse) -> ServerResponse:
    """The answer with a result in external storage in place."""
    envelope = answer.body.get("result_envelope")
    reference = envelope.get("external_payload") if isinstance(envelope, dict) else None
    if not isinstance(reference, dict):
        return answer
    fetched = connection.get("external-payloads", "v1", str(reference.get("reference_id")))
    return replace(answer, body=answer.body | {"result_envelope": fetched.body})


def result_of(body: dict[str, Any]) -> Any:
    """The result in an answer, opened."""
    envelope = body.get("result_envelope")
    return opened(envelope) if envelope else opened(body.get("result"))


def _draw_result(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("status") == "completed" and body.get("closed_reason") != "continued":
        screen.value(result_of(body))


def _not_completed(workflow_id: str, body: dict[str, Any]) -> CommandError:
    """The error that explains why there is no result."""
    state = str(body.get("closed_reason") or body.get("status"))
    run_id = str(body["run_id"]) if body.get("run_id") else None
    if state == "continued":
        return CommandError(
            "workflow_continued",
            f"The run {run_id} went on as another one, which has the result.",
            f"Leave out --run: {command_hint('workflow', 'result', workflow_id)}.",
        )
    failure = body.get("failure")
    lines = failure_lines(failure) if isinstance(failure, dict) else []
    first, *rest = lines or [f"{workflow_id} ended as {state}."]
    return CommandError(f"workflow_{state}", first, look_at(workflow_id, run_id), notes=rest)
