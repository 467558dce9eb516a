"""Commands for the limits of a task queue, and for its pause."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.limits.options import change, draw_queue_limits, queue_flags, report_pause
from penstock.cli.limits.queue_config import KINDS
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell, plain
from penstock.cli.transport.session import CliSession

_KIND = click.option(
    "--type",
    "--task-queue-type",
    "kind",
    type=KINDS,
    default="activity",
    show_default=True,
    help="Kind of tasks.",
)


@noun("limits", example="penstock task-queue limits get payments")
def limits() -> None:
    """Show and change the concurrency and rate limits of a queue."""


@limits.verb("get", example="penstock task-queue limits get payments --type activity")
@click.argument("queue")
@_KIND
@click.pass_obj
def get_limits(session: CliSession, queue: str, kind: str) -> None:
    """Show each limit of a queue: its effective value, declared value, author, expiry and usage."""
    answer = session.connect().get("task-queues", queue, "limits", query={"task_queue_type": kind})
    session.show(answer, draw_queue_limits)


@limits.verb(
    "set",
    example='penstock task-queue limits set payments --max-active-leases 5 --for 2h --reason "slow database"',
)
@click.argument("queue")
@_KIND
@queue_flags
@click.pass_obj
def set_limits(session: CliSession, /, queue: str, kind: str, **flags: Any) -> None:
    """Change limits of a queue, permanently or with --for. They apply from the next grant."""
    body = change(**flags)
    if "max_active_leases" in body:
        body["max_active_leases_per_queue"] = body.pop("max_active_leases")
    answer = session.connect().patch("task-queues", queue, "limits", body={"task_queue_type": kind} | body)
    echo_err(f"The {kind} tasks of {queue} have limits of version {answer.body.get('version')}.")
    session.show(answer, draw_queue_limits)


def pause(
    session: CliSession,
    queue: str,
    kind: str | None,
    key: str | None,
    seconds: int | None,
    reason: str | None,
) -> None:
    """Pause a queue, or one fairness key of it."""
    if key is not None and seconds is not None:
        raise click.UsageError("--for is for whole queues: the pause of a key ends when it is resumed.")
    _step(session, queue, "pause", kind, key, seconds, reason)


def resume(session: CliSession, queue: str, kind: str | None, key: str | None, reason: str | None) -> None:
    """Resume a queue, or one fairness key of it."""
    _step(session, queue, "resume", kind, key, None, reason)


def _step(
    session: CliSession,
    queue: str,
    step: str,
    kind: str | None,
    key: str | None,
    seconds: int | None,
    reason: str | None,
) -> None:
    inside = () if key is None else ("keys", key)
    asked = {"task_queue_type": kind, "expires_in_seconds": seconds, "reason": reason}
    body = {field: value for field, value in asked.items() if value is not None}
    answer = session.connect().post("task-queues", queue, *inside, step, body=body)
    what = f"{kind} tasks" if kind else "tasks"
    whose = queue if key is None else f"{key} on {queue}"
    again = ("task-queue", "resume", queue, *(() if key is None else ("--fairness-key", key)))
    report_pause(step == "pause", f"the {what} of {whose}", seconds, *again)
    session.show(answer, _draw_pause)


def _draw_pause(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "task queue:name, key=fairness_key, workflow tasks, activity tasks",
        workflow_tasks=lambda body: _state(screen, body.get("workflow_tasks")),
        activity_tasks=lambda body: _state(screen, body.get("activity_tasks")),
    )


def _state(screen: Screen, part: Any) -> ScreenCell:
    if not isinstance(part, dict):
        return plain(None)
    if not part.get("paused"):
        return ScreenCell("go", "green")
    ends_at = (part.get("live") or {}).get("ends_at")
    return ScreenCell(f"paused, ends {screen.when(ends_at).text}" if ends_at else "paused", "yellow")
