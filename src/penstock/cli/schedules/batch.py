"""Commands that pause or resume all schedules that match a query, after a count and a confirmation."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import given
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.output.screen import Screen, plain
from penstock.cli.schedules.options import NOTE_OPTION
from penstock.cli.transport.connection import ServerConnection, ServerResponse
from penstock.cli.transport.session import CliSession

_PATH = ("schedules", "batch-operations")
_QUERY = click.option(
    "--query",
    required=True,
    metavar="QUERY",
    help="Which, such as \"TaskQueue = 'reports' AND team = 'data'\".",
)
_YES = click.option("--yes", is_flag=True, help="Do not ask before acting.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only count them and show some.")


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (_DRY_RUN, _YES, NOTE_OPTION, _QUERY):
        function = option(function)
    return function


@noun("batch", example="penstock schedule batch pause --query \"TaskQueue = 'reports'\" --dry-run")
def batch() -> None:
    """Pause or resume all schedules that match a query."""


@batch.verb("pause", example="penstock schedule batch pause --query \"TaskQueue = 'reports'\" --dry-run")
@_shared
@click.pass_obj
def pause_all(session: CliSession, query: str, note: str | None, yes: bool, dry_run: bool) -> None:
    """Pause all active schedules that match a query; runs that they started continue."""
    _change(session, "pause", given(query=query, note=note), yes, dry_run)


@batch.verb("resume", example="penstock schedule batch resume --query \"Note = 'migration'\" --yes")
@_shared
@click.pass_obj
def resume_all(session: CliSession, query: str, note: str | None, yes: bool, dry_run: bool) -> None:
    """Resume all paused schedules that match a query, each at its next moment."""
    _change(session, "resume", given(query=query, note=note), yes, dry_run)


def _change(session: CliSession, operation: str, asked: dict[str, Any], yes: bool, dry_run: bool) -> None:
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("A batch asks for confirmation; without a terminal, pass --yes or --dry-run.")
    connection = session.connect()
    asked = {"operation": operation, **asked}
    found = connection.post(*_PATH, body=asked | {"dry_run": True})
    if dry_run:
        session.show(found, _draw_preview)
        return
    if not yes:
        _draw_preview(Screen(), found.body)
        click.confirm(f"{operation.capitalize()} {_counted(found.body)}?", abort=True, err=True)
    done = _run(connection, asked)
    session.show(done, _draw_outcome)
    if failed := done.body["failed"]:
        raise CommandError(
            "batch_incomplete", f"{failed} schedules could not be changed.", "Read why above, then repeat it."
        )


def _run(connection: ServerConnection, asked: dict[str, Any]) -> ServerResponse:
    """Change all of them, in portions, and add up the answers."""
    counts = dict.fromkeys(("matched", "acted", "skipped", "failed"), 0)
    failures: list[Any] = []
    token: str | None = None
    while True:
        answer = connection.post(*_PATH, body=asked | given(token=token))
        counts = {name: count + int(answer.body.get(name) or 0) for name, count in counts.items()}
        failures += answer.body.get("failures") or []
        token = answer.body.get("next_token")
        if not token:
            break
    body = {"operation": asked["operation"], **counts, "failures": failures}
    return ServerResponse(answer.status, json.dumps(body, ensure_ascii=False), body)


def _counted(body: dict[str, Any]) -> str:
    matched = body.get("matched") or 0
    at_least = "at least " if body.get("complete") is False else ""
    return f"{at_least}{matched} {'schedule' if matched == 1 else 'schedules'}"


def _draw_preview(screen: Screen, body: dict[str, Any]) -> None:
    sample = body.get("sample") or []
    if sample:
        screen.rows(
            sample, "schedule=schedule_id:name, starts=workflow_type, status:status, next=next_fire:when"
        )
    echo_err(f"Found {_counted(body)} to {body.get('operation')}.")


def _draw_outcome(screen: Screen, body: dict[str, Any]) -> None:
    facts = [("Done", plain(body["acted"]))]
    facts += [(name.capitalize(), plain(body[name])) for name in ("skipped", "failed") if body[name]]
    screen.facts(facts)
    if body["failures"]:
        screen.rows(body["failures"], "schedule=schedule_id:name, reason, message", "Failures")
