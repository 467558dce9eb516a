"""Commands for schedules, which start workflows and activities at given times."""

from __future__ import annotations

import json
from typing import Any

import click

from penstock.cli.grammar import noun, with_options
from penstock.cli.inputs import CONFIRM_DELETION, confirm, given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.priority_options import with_priority_options
from penstock.cli.schedules import views
from penstock.cli.schedules.batch import batch
from penstock.cli.schedules.options import (
    ACTION_OPTIONS,
    JITTER_OPTION,
    MOMENTS,
    NOTE_OPTION,
    OVERLAP_OPTION,
    POLICY_OPTIONS,
    SPEC_OPTIONS,
    InstantParam,
    action_of,
    policies_of,
    spec_of,
)
from penstock.cli.transport.connection import PathIdentifier, ServerResponse
from penstock.cli.transport.pages import LIST_PAGE_MAX, read_pages
from penstock.cli.transport.session import CliSession

SHOWN_AT_CREATION = 3
"""Moments that `create` shows."""
_ID = click.argument("schedule_id", metavar="ID")


@noun("schedule", example='penstock schedule create nightly --cron "0 3 * * *" --type reports.nightly')
def schedule() -> None:
    """Start workflows and activities at given times."""


@schedule.verb(
    "create",
    example='penstock schedule create nightly --cron "30 2 * * *" --timezone Europe/Berlin \\\n'
    "    --type reports.nightly --task-queue reports --input '[\"all\"]'",
)
@click.argument("schedule_id", metavar="[ID]", required=False)
@with_options(*SPEC_OPTIONS, *ACTION_OPTIONS)
@with_priority_options
@with_options(*POLICY_OPTIONS)
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.pass_obj
def create_schedule(
    session: CliSession,
    /,
    schedule_id: str | None,
    priority_options: dict[str, Any],
    paused: bool,
    **fields: Any,
) -> None:
    """Create a schedule, with a generated id if none is given; show its next moments and what to know about them."""
    spec = spec_of(fields)
    if not any(name in spec for name in MOMENTS):
        raise click.UsageError("Say when it fires, with --cron, --every or --calendar.")
    action, policies = action_of(session, fields, priority_options), policies_of(fields)
    if not fields["workflow_type"] and not fields["activity_type"]:
        raise click.UsageError("Say what it starts, with --type or --activity.")
    connection = session.connect()
    asked = given(spec=spec, jitter_seconds=policies.get("jitter_seconds"), count=SHOWN_AT_CREATION)
    preview = connection.post("schedules", "preview", body=asked).body
    body = given(schedule_id=schedule_id, spec=spec, action=action, paused=paused or None, **policies)
    created = connection.post("schedules", body=body)
    schedule_id = str(created.body.get("schedule_id"))
    warnings = [*(preview.get("warnings") or []), *(created.body.get("warnings") or [])]
    answer = _with(
        created,
        next_fire_times=preview.get("next_fire_times") or [],
        timezone=preview.get("timezone"),
        in_words=preview.get("in_words") or [],
        warnings=warnings,
    )
    views.show_warnings(warnings)
    paused_text = f" It is paused; resume it with {command_hint('schedule', 'resume', schedule_id)}."
    echo_err(f"Created the schedule {schedule_id}.{paused_text if paused else ''}")
    session.show(answer, views.draw_created)


@schedule.verb("list", example="penstock schedule list --status paused")
@click.option("--status", type=click.Choice(["active", "paused"]), help="Only these.")
@click.option("--type", "workflow_type", metavar="TYPE", help="Only those that start this type.")
@click.option(
    "--query",
    metavar="QUERY",
    help="Only those that match, such as \"TaskQueue = 'reports' AND Failures > 0\".",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=50, show_default=True, help="Most rows to show."
)
@click.option("--page-token", metavar="TOKEN", help="Continue a list: `next_page_token` of its JSON answer.")
@click.pass_obj
def list_schedules(
    session: CliSession,
    status: str | None,
    workflow_type: str | None,
    query: str | None,
    limit: int,
    page_token: str | None,
) -> None:
    """List schedules, newest first."""
    answer = read_pages(
        session.connect(),
        "schedules",
        rows="schedules",
        limit=limit,
        page_max=LIST_PAGE_MAX,
        query={"status": status, "workflow_type": workflow_type, "query": query},
        token=page_token,
    )
    session.show(answer, views.draw_list)


@schedule.verb("describe", example="penstock schedule describe nightly")
@_ID
@click.pass_obj
def describe_schedule(session: CliSession, schedule_id: str) -> None:
    """Show a schedule: when it fires, its counters, its next moments and latest fires."""
    session.show(session.connect().get(*_path(schedule_id)), views.draw_one)


@schedule.verb("why", example="penstock schedule why nightly")
@_ID
@click.pass_obj
def explain_schedule(session: CliSession, schedule_id: str) -> None:
    """Explain what a schedule waits for, and why fires started nothing."""
    session.show(session.connect().get(*_path(schedule_id), "why"), views.draw_explanation)


@schedule.verb("update", example='penstock schedule update nightly --cron "0 4 * * *"')
@_ID
@with_options(*SPEC_OPTIONS, *ACTION_OPTIONS)
@with_priority_options
@with_options(*POLICY_OPTIONS)
@click.option(
    "--if-version",
    type=click.IntRange(1),
    metavar="N",
    help="Refuse if the schedule was updated since this version, and say what moved.",
)
@click.pass_obj
def update_schedule(
    session: CliSession,
    /,
    schedule_id: str,
    priority_options: dict[str, Any],
    if_version: int | None,
    **fields: Any,
) -> None:
    """Change what is given and keep the rest; --cron, --every and --calendar together replace each other."""
    body = given(action=action_of(session, fields, priority_options), **policies_of(fields))
    changed = spec_of(fields)
    if not body and not changed:
        raise click.UsageError("Name what to change, such as --cron, --input or --overlap.")
    connection = session.connect()
    if changed:
        found = connection.get(*_path(schedule_id)).body
        before = found.get("spec") or {}
        if_version = if_version or found.get("version")
        if any(name in changed for name in MOMENTS):
            before = {name: value for name, value in before.items() if name not in MOMENTS}
        body["spec"] = before | changed
    answer = connection.put(*_path(schedule_id), body=body | given(if_version=if_version))
    echo_err(f"Updated the schedule {schedule_id}.")
    session.show(answer, views.draw_outcome)


@schedule.verb("pause", example='penstock schedule pause nightly --note "migration"')
@_ID
@NOTE_OPTION
@click.pass_obj
def pause_schedule(session: CliSession, schedule_id: str, note: str | None) -> None:
    """Pause a schedule; runs that it started continue."""
    _act(session, schedule_id, "pause", given(note=note))


@schedule.verb("resume", example="penstock schedule resume nightly")
@_ID
@NOTE_OPTION
@click.pass_obj
def resume_schedule(session: CliSession, schedule_id: str, note: str | None) -> None:
    """Resume a paused schedule at its next moment; the pause is not caught up."""
    _act(session, schedule_id, "resume", given(note=note))


@schedule.verb("trigger", example="penstock schedule trigger nightly --overlap allow_all")
@_ID
@OVERLAP_OPTION
@click.pass_obj
def trigger_schedule(session: CliSession, schedule_id: str, overlap_policy: str | None) -> None:
    """Fire a schedule now, also if it is paused."""
    _act(session, schedule_id, "trigger", given(overlap_policy=overlap_policy))


@schedule.verb(
    "backfill",
    example="penstock schedule backfill nightly --from 2026-03-01 --to 2026-03-08 \\\n"
    "    --overlap buffer_all --dry-run",
)
@_ID
@click.option(
    "--from", "start_time", type=InstantParam(), required=True, metavar="TIME", help="Start of the period."
)
@click.option(
    "--to",
    "end_time",
    type=InstantParam(),
    required=True,
    metavar="TIME",
    help="End of the period, which is not part of it.",
)
@OVERLAP_OPTION
@click.option("--dry-run", is_flag=True, help="Only list the moments, and predict what becomes of them.")
@click.pass_obj
def backfill_schedule(
    session: CliSession, /, schedule_id: str, dry_run: bool, overlap_policy: str | None, **period: str
) -> None:
    """Fire a schedule now for each of its moments in a period."""
    body = given(**period, overlap_policy=overlap_policy, dry_run=dry_run or None)
    session.show(session.connect().post(*_path(schedule_id), "backfill", body=body), views.draw_backfill)


@schedule.verb("delete", example="penstock schedule delete nightly --yes")
@_ID
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
@click.pass_obj
def delete_schedule(session: CliSession, schedule_id: str, yes: bool) -> None:
    """Delete a schedule; runs that it started continue."""
    connection = session.connect()
    confirm(f"Delete the schedule {schedule_id}?", yes, CONFIRM_DELETION)
    answer = connection.delete(*_path(schedule_id))
    echo_err(f"Deleted the schedule {schedule_id}.")
    session.show(answer, views.draw_outcome)


@schedule.verb("history", example="penstock schedule history nightly --limit 20")
@_ID
@click.option(
    "--limit", type=click.IntRange(1, 500), metavar="N", default=100, show_default=True, help="Most events."
)
@click.option(
    "--after", type=click.IntRange(0), metavar="N", default=0, help="Only events after this number."
)
@click.option("--all", "show_all", is_flag=True, help="All events, read in pages of --limit.")
@click.pass_obj
def show_history(session: CliSession, schedule_id: str, limit: int, after: int, show_all: bool) -> None:
    """Show the events of a schedule, also of a deleted one: changes, fires, and why fires were skipped."""
    connection, path = session.connect(), (*_path(schedule_id), "history")
    answer = connection.get(*path, query={"limit": limit, "after_sequence": after})
    events = list(answer.body.get("events") or [])
    while show_all and (cursor := answer.body.get("next_cursor")) is not None:
        answer = connection.get(*path, query={"limit": limit, "after_sequence": cursor})
        events += answer.body.get("events") or []
    session.show(_with(answer, events=events), views.draw_events)


@schedule.verb(
    "preview", example='penstock schedule preview --cron "30 2 * * *" --timezone Europe/Berlin --count 5'
)
@with_options(*SPEC_OPTIONS, JITTER_OPTION)
@click.option(
    "--count",
    type=click.IntRange(1, 100),
    metavar="N",
    default=10,
    show_default=True,
    help="Moments to show.",
)
@click.option("--after", type=InstantParam(), metavar="TIME", help="Moments after this time, not after now.")
@click.pass_obj
def preview_schedule(
    session: CliSession, /, jitter_seconds: int | None, count: int, after: str | None, **fields: Any
) -> None:
    """Show when a schedule would fire, in words and with warnings; nothing is saved."""
    body = given(spec=spec_of(fields), jitter_seconds=jitter_seconds, count=count, after=after)
    if "spec" not in body:
        raise click.UsageError("Say when it fires, with --cron, --every or --calendar.")
    session.show(session.connect().post("schedules", "preview", body=body), views.draw_preview)


schedule.add_command(batch)


def _act(session: CliSession, schedule_id: str, action: str, body: dict[str, Any]) -> None:
    session.show(session.connect().post(*_path(schedule_id), action, body=body), views.draw_outcome)


def _path(schedule_id: str) -> tuple[str, ...]:
    return "schedules", PathIdentifier(schedule_id)


def _with(answer: ServerResponse, **fields: Any) -> ServerResponse:
    body = answer.body | fields
    return ServerResponse(answer.status, json.dumps(body, ensure_ascii=False), body)
