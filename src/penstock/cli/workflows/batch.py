"""Commands for batches of workflows: count the matches, ask for confirmation, then act in portions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import arguments, given
from penstock.cli.output.exits import echo_err
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.batch_run import BatchRequest, counted, draw_preview, preview, run_batch
from penstock.cli.workflows.run_options import input_option, reason_option

_QUERY = click.option(
    "--query",
    required=True,
    metavar="QUERY",
    help="Which, such as \"WorkflowType = 'orders' AND customer = 'acme'\".",
)
_YES = click.option("--yes", is_flag=True, help="Do not ask before acting.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only count them and show some.")
_RESUME = click.option(
    "--resume", "token", metavar="TOKEN", help="Resume an interrupted batch, which printed this token."
)


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (_RESUME, _DRY_RUN, _YES, _QUERY):
        function = option(function)
    return function


@noun("batch", example="penstock workflow batch cancel --query \"WorkflowType = 'orders'\" --dry-run")
def batch() -> None:
    """Cancel, terminate or signal all open workflows that match a query."""


@batch.verb("cancel", example="penstock workflow batch cancel --query \"WorkflowType = 'orders'\" --dry-run")
@_shared
@reason_option
@click.pass_obj
def cancel_batch(
    session: CliSession, query: str, reason: str | None, yes: bool, dry_run: bool, token: str | None
) -> None:
    """Cancel all open workflows that match a query."""
    _act(session, BatchRequest("cancel", "Cancel", query, given(reason=reason)), yes, dry_run, token)


@batch.verb("terminate", example="penstock workflow batch terminate --query \"customer = 'acme'\" --yes")
@_shared
@reason_option
@click.pass_obj
def terminate_batch(
    session: CliSession, query: str, reason: str | None, yes: bool, dry_run: bool, token: str | None
) -> None:
    """Terminate all open workflows that match a query."""
    _act(session, BatchRequest("terminate", "Terminate", query, given(reason=reason)), yes, dry_run, token)


@batch.verb(
    "signal", example="penstock workflow batch signal pause --query \"WorkflowType = 'orders'\" --dry-run"
)
@click.argument("signal_name", metavar="NAME")
@input_option
@_shared
@click.option("--request-id", metavar="ID", help="Makes the signal idempotent per run; generated if omitted.")
@click.pass_obj
def signal_batch(
    session: CliSession,
    signal_name: str,
    values: tuple[Any, ...],
    query: str,
    yes: bool,
    dry_run: bool,
    token: str | None,
    request_id: str | None,
) -> None:
    """Send a signal to all open workflows that match a query."""
    details = {"signal_name": signal_name, "input": arguments(values)}
    planned = BatchRequest("signal", f"Send {signal_name} to", query, details, request_id)
    _act(session, planned, yes, dry_run, token)


def _act(session: CliSession, planned: BatchRequest, yes: bool, dry_run: bool, token: str | None) -> None:
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("A batch asks for confirmation; without a terminal, pass --yes or --dry-run.")
    connection = session.connect()
    found = preview(connection, planned)
    if dry_run:
        session.show(found, draw_preview)
        return
    count = int(found.body.get("matched") or 0)
    if not count:
        echo_err("No open workflow fits; nothing was done.")
        if session.json:
            click.echo(json.dumps({"matched": 0, "acted": 0, "skipped": 0, "failed": 0}))
        return
    if not yes:
        _ask(planned, count, found.body)
    run_batch(session, connection, planned, count, token)


def _ask(planned: BatchRequest, count: int, found: dict[str, Any]) -> None:
    some = [str(each.get("workflow_id")) for each in found.get("sample") or []]
    if some:
        rest = f" and {count - len(some)} more" if count > len(some) else ""
        echo_err(f"These fit: {', '.join(some)}{rest}.")
    click.confirm(f"{planned.title} {counted(found)}?", abort=True, err=True)
