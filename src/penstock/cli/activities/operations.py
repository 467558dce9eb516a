"""Commands that pause, resume, reset, change or hurry one open activity, standalone or of a workflow."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb, with_options
from penstock.cli.inputs import SecondsParam, given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import reason_option

_arguments = with_options(click.argument("activity_id"), reason_option)
_SAID = {
    "paused": "Paused {}: no attempt of it is dispatched until it is resumed.",
    "already_paused": "{} was paused before.",
    "resumed": "{} goes on.",
    "not_paused": "{} was not paused.",
    "reset": "{} has all its attempts again.",
    "updated": "Changed the options of {}.",
    "due_now": "{} is due now.",
    "already_due": "{} was due already; ask why it waits.",
}


@verb("pause", example='penstock activity pause 01a1e0a9e7b8000028e0ae356db9-a3 --reason "card is checked"')
@_arguments
@click.pass_obj
def pause_activity(session: CliSession, activity_id: str, reason: str | None) -> None:
    """Dispatch no attempt of an activity until it is resumed; a running attempt learns it by its heartbeat."""
    _send(session, activity_id, "pause", given(reason=reason))


@verb("resume", example="penstock activity resume render-2026-04")
@_arguments
@click.pass_obj
def resume_activity(session: CliSession, activity_id: str, reason: str | None) -> None:
    """Dispatch a paused activity again."""
    _send(session, activity_id, "resume", given(reason=reason))


@verb("reset", example="penstock activity reset render-2026-04")
@_arguments
@click.pass_obj
def reset_activity(session: CliSession, activity_id: str, reason: str | None) -> None:
    """Count the attempts of a waiting activity from the first one again."""
    _send(session, activity_id, "reset", given(reason=reason))


@verb("run-now", example="penstock activity run-now render-2026-04")
@_arguments
@click.pass_obj
def run_activity_now(session: CliSession, activity_id: str, reason: str | None) -> None:
    """End the backoff or start delay of a waiting activity."""
    _send(session, activity_id, "run-now", given(reason=reason))


@verb("update-options", example="penstock activity update-options render-2026-04 --start-to-close 10m")
@_arguments
@click.option("--task-queue", "-t", metavar="NAME", help="Queue whose workers run it.")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="Most attempts before it fails.")
@click.option(
    "--backoff",
    type=SecondsParam(),
    multiple=True,
    metavar="TIME",
    help="Interval before a retry, with --max-attempts; repeatable.",
)
@click.option("--start-to-close", type=SecondsParam(), metavar="TIME", help="Timeout of one attempt.")
@click.option(
    "--schedule-to-start", type=SecondsParam(), metavar="TIME", help="Timeout of the wait in the queue."
)
@click.option(
    "--schedule-to-close", type=SecondsParam(), metavar="TIME", help="Timeout of all attempts together."
)
@click.option(
    "--heartbeat", type=SecondsParam(), metavar="TIME", help="Heartbeat timeout of a running attempt."
)
@click.pass_obj
def update_activity_options(
    session: CliSession,
    /,
    activity_id: str,
    reason: str | None,
    task_queue: str | None,
    max_attempts: int | None,
    backoff: tuple[int, ...],
    **times: int | None,
) -> None:
    """Change the timeouts, retry policy or task queue of an open activity."""
    if backoff and max_attempts is None:
        raise click.UsageError("--backoff is part of a retry policy: give --max-attempts too.")
    policy = given(max_attempts=max_attempts, backoff_seconds=list(backoff) or None) or None
    timeouts = {f"{name}_timeout_ms": None if time is None else time * 1000 for name, time in times.items()}
    body = given(reason=reason, task_queue=task_queue, retry_policy=policy, **timeouts)
    _send(session, activity_id, "options", body)


def _send(session: CliSession, activity_id: str, verb_of_path: str, body: dict[str, Any]) -> None:
    answer = session.connect().post("activities", activity_id, verb_of_path, body=body)
    session.show(answer, _draw)
    echo_err(_SAID.get(str(answer.body.get("outcome")), "{}").format(activity_id))


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "activity=activity_execution_id:name, workflow=workflow_id, type=activity_type, status:status, task queue, "
        "attempts=attempt_count, outcome:status",
    )
