"""Commands for standalone activities: single tasks that need no workflow around them; and for any open activity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from penstock.cli.activities.operations import (
    pause_activity,
    reset_activity,
    resume_activity,
    run_activity_now,
    update_activity_options,
)
from penstock.cli.grammar import noun
from penstock.cli.id_policy_options import (
    id_policy_options,
    note_existing,
    unique_options,
    with_default,
)
from penstock.cli.inputs import SecondsParam, arguments, given
from penstock.cli.output.exits import CommandError, StillOpen, echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.payload_text import opened
from penstock.cli.output.screen import Screen, data
from penstock.cli.priority_options import with_priority_options
from penstock.cli.timeline.progress import heartbeat_text
from penstock.cli.transport.pages import LIST_PAGE_MAX, read_pages
from penstock.cli.transport.session import CliSession
from penstock.cli.transport.wait import interruptible, is_closed, wait_until_closed
from penstock.cli.workflows.results import result_of
from penstock.cli.workflows.run_options import input_option, reason_option, run_option


def _timeout(name: str, text: str) -> Callable[..., Any]:
    field = f"{name.replace('-', '_')}_timeout_seconds"
    return click.option(f"--{name}", field, type=SecondsParam(), metavar="TIME", help=text)


@noun("activity", example="penstock activity start --type reports.render --task-queue reports")
def activity() -> None:
    """Start single activities, follow them, and read their results."""


@activity.verb(
    "start",
    example="penstock activity start --type reports.render --task-queue reports \\\n"
    "    --input '[\"2026-04\"]' --max-attempts 5 --start-to-close 2m --wait",
)
@click.option("--type", "activity_type", required=True, metavar="TYPE", help="Activity type to run.")
@click.option("--task-queue", "-t", required=True, metavar="NAME", help="Queue whose workers run it.")
@click.option("--id", "--activity-id", "activity_id", metavar="ID", help="Activity id; generated if omitted.")
@input_option
@click.option("--business-key", metavar="TEXT", help="Your own name for it.")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="Most attempts before it fails.")
@click.option(
    "--backoff",
    type=SecondsParam(),
    multiple=True,
    metavar="TIME",
    help="Interval before a retry; repeatable.",
)
@click.option(
    "--non-retryable", multiple=True, metavar="TYPE", help="Error type that is not retried; repeatable."
)
@_timeout("start-to-close", "Timeout of one attempt: 90s, 15m, 2h.")
@_timeout("schedule-to-start", "Timeout of the wait in the queue.")
@_timeout("schedule-to-close", "Timeout of all attempts together.")
@_timeout("heartbeat", "Heartbeat timeout of a running attempt.")
@click.option(
    "--on-lost-lease",
    type=click.Choice(["redeliver", "fail"]),
    help="If its worker dies: deliver it again, or count a failed attempt (redeliver).",
)
@id_policy_options
@unique_options
@with_priority_options
@click.option("--wait", is_flag=True, help="Wait until it is closed, then print its result.")
@click.pass_obj
def start_activity(
    session: CliSession,
    /,
    values: tuple[Any, ...],
    max_attempts: int | None,
    backoff: tuple[int, ...],
    non_retryable: tuple[str, ...],
    id_policies: dict[str, Any],
    priority_options: dict[str, Any],
    wait: bool,
    **fields: Any,
) -> None:
    """Start a single activity, and with --wait print its result."""
    retry_policy = given(
        max_attempts=max_attempts,
        backoff_seconds=list(backoff) or None,
        non_retryable_error_types=list(non_retryable) or None,
    )
    body = given(
        input=arguments(values),
        retry_policy=retry_policy,
        **with_default(id_policies, fields["activity_id"], None),
        **priority_options,
        **fields,
    )
    answer = session.connect().post("activities", body=body)
    note_existing(answer.body.get("outcome"))
    if not wait:
        session.show(answer, _draw_one)
        return
    started = str(answer.body.get("activity_id"))
    echo_err(f"Started {started}; waiting until it is closed. Ctrl-C stops the waiting, not the activity.")
    _show_result(session, started, answer.body.get("workflow_run_id"))


@activity.verb("describe", example="penstock activity describe render-2026-04")
@click.argument("activity_id")
@run_option
@click.pass_obj
def describe_activity(session: CliSession, activity_id: str, run_id: str | None) -> None:
    """Show the state of an activity: status, attempts, deadlines."""
    session.show(session.connect().get("activities", activity_id, query={"run_id": run_id}), _draw_one)


@activity.verb("result", example="penstock activity result render-2026-04")
@click.argument("activity_id")
@run_option
@click.option("--no-wait", is_flag=True, help="Do not wait for an activity that still runs.")
@click.pass_obj
def show_result(session: CliSession, activity_id: str, run_id: str | None, no_wait: bool) -> None:
    """Wait until an activity is closed, then print its result."""
    if no_wait:
        body = session.connect().get("activities", activity_id, query={"run_id": run_id}).body
        if not is_closed(body):
            state = str(body.get("status"))
            raise StillOpen(
                "activity_not_closed", f"{activity_id} is {state}.", "Leave out --no-wait to wait for it."
            )
    _show_result(session, activity_id, run_id)


@activity.verb("cancel", example='penstock activity cancel render-2026-04 --reason "wrong month"')
@click.argument("activity_id")
@reason_option
@click.pass_obj
def cancel_activity(session: CliSession, activity_id: str, reason: str | None) -> None:
    """Cancel an open activity."""
    answer = session.connect().post("activities", activity_id, "cancel", body=given(reason=reason))
    echo_err(f"Cancelled {activity_id}.")
    session.show(answer, _draw_cancelled)


@activity.verb("list", example="penstock activity list --status running")
@click.option(
    "--status",
    "bucket",
    type=click.Choice(["running", "completed", "failed", "cancelled", "terminated"]),
    help="Only these.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=50, show_default=True, help="Most rows to show."
)
@click.option("--page-token", metavar="TOKEN", help="Continue a list: `next_page_token` of its JSON answer.")
@click.pass_obj
def list_activities(session: CliSession, bucket: str | None, limit: int, page_token: str | None) -> None:
    """List standalone activities, newest first."""
    answer = read_pages(
        session.connect(),
        "activities",
        rows="activities",
        limit=limit,
        page_max=LIST_PAGE_MAX,
        query={"status": bucket},
        token=page_token,
    )
    session.show(answer, _draw_list)


def _show_result(session: CliSession, activity_id: str, run_id: str | None) -> None:
    connection = session.connect()
    again = f"Wait again with {command_hint('activity', 'result', activity_id)}."
    which = {"run_id": run_id}
    with interruptible("Stopped waiting; the activity continues.", lambda: again):
        closed = wait_until_closed(connection, "activities", activity_id, "result", query=which)
    session.show(closed, _draw_result)
    if closed.body.get("status") != "completed":
        described = connection.get("activities", activity_id, query=which).body
        raise _not_completed(activity_id, described, closed.body.get("failure") or {})


def _not_completed(activity_id: str, described: dict[str, Any], failure: dict[str, Any]) -> CommandError:
    """The error with the timeout or failure that ended an activity, and its number of attempts."""
    state = str(described.get("closed_reason") or described.get("status"))
    count = described.get("attempt_count")
    attempts = "1 attempt" if count == 1 else f"{count} attempts"
    kind = failure.get("timeout_kind") or failure.get("exception_type") or failure.get("exception_class")
    message = failure.get("message") or failure.get("reason")
    cause = ": ".join(str(part) for part in (kind, message) if part)
    ended = f"{activity_id} ended as {state} after {attempts}"
    return CommandError(
        f"activity_{state}",
        f"{ended}: {cause}" if cause else f"{ended}.",
        f"See {command_hint('activity', 'describe', activity_id)}.",
    )


def _draw_result(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("status") == "completed":
        screen.value(result_of(body))


def _draw_cancelled(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(body, "activity=activity_id:name, outcome")


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    rows = body["activities"]
    if not rows:
        start = command_hint("activity", "start", "--type", "TYPE", "--task-queue", "QUEUE")
        echo_err(f"No activities here. Start one with {start}.")
        return
    screen.rows(
        rows,
        "activity=activity_id:name, type=activity_type, status:status, task queue, attempts=attempt_count, "
        "started=started_at:when, closed=closed_at:when",
        status=lambda row: "quarantined" if row.get("is_quarantined") else row.get("status"),
    )
    if body.get("next_page_token"):
        echo_err(f"The first {len(rows)} are shown. See more with --limit.")


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "activity=activity_id:name, run=workflow_run_id, type=activity_type, summary, status:status, "
        "closed as=closed_reason:status, namespace, task queue, business key, attempts=attempt_count, "
        "worker deaths, result, started=started_at:exact, last heartbeat=last_heartbeat_at:exact, "
        "heartbeat details, closed=closed_at:exact, start deadline=schedule_to_start_deadline_at:exact, "
        "close deadline=schedule_to_close_deadline_at:exact",
        worker_deaths=_deaths,
        result=lambda body: data(opened(body.get("result"))),
        heartbeat_details=lambda body: heartbeat_text(body.get("last_heartbeat")),
    )


def _deaths(body: dict[str, Any]) -> object:
    """How many workers died running it, if any did, and whether that ended it."""
    count = body.get("worker_deaths") or None
    return f"{count}, which ended it: it is quarantined" if count and body.get("is_quarantined") else count


for _command in (pause_activity, resume_activity, reset_activity, run_activity_now, update_activity_options):
    activity.add_command(_command)
