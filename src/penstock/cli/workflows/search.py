"""The commands that find workflows: list them, count them."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, plain, status
from penstock.cli.transport.pages import LIST_PAGE_MAX, read_pages
from penstock.cli.transport.session import CliSession

_TYPE = click.option("--type", "workflow_type", metavar="TYPE", help="Only this workflow type.")
_STATUS = click.option(
    "--status",
    "bucket",
    type=click.Choice(["running", "completed", "failed"]),
    help="Only these; failed includes all that ended without a result.",
)
_QUERY = click.option(
    "--query",
    metavar="QUERY",
    help="Filter, such as \"Status = 'failed' AND StartTime > '24h ago' AND customer = 'acme'\";"
    " plain text matches ids and business keys.",
)


@verb("list", example="penstock workflow list --query \"WorkflowType = 'orders' AND StartTime > '24h ago'\"")
@_TYPE
@_STATUS
@_QUERY
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=50, show_default=True, help="Most rows to show."
)
@click.option("--all", "everything", is_flag=True, help="All rows.")
@click.pass_obj
def list_workflows(
    session: CliSession,
    workflow_type: str | None,
    bucket: str | None,
    query: str | None,
    limit: int,
    everything: bool,
) -> None:
    """List workflows, newest first."""
    answer = read_pages(
        session.connect(),
        "workflows",
        rows="workflows",
        limit=None if everything else limit,
        page_max=LIST_PAGE_MAX,
        query={"workflow_type": workflow_type, "status": bucket, "query": query},
    )
    if workflow_type or bucket or query:
        session.show(answer, _draw_found)
    else:
        session.show(answer, _draw_list)


@verb("count", example="penstock workflow count --query \"StartTime > '24h ago'\" --group-by status")
@_TYPE
@_STATUS
@_QUERY
@click.option("--group-by", type=click.Choice(["status"]), help="Count by this field.")
@click.pass_obj
def count_workflows(
    session: CliSession,
    workflow_type: str | None,
    bucket: str | None,
    query: str | None,
    group_by: str | None,
) -> None:
    """Count workflows."""
    asked = {"workflow_type": workflow_type, "status": bucket, "query": query, "group_by": group_by}
    session.show(session.connect().get("workflows", "count", query=asked), _draw_count)


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    if body["workflows"]:
        _draw_found(screen, body)
        return
    start = command_hint("workflow", "start", "--type", "TYPE", "--task-queue", "QUEUE")
    echo_err(f"No workflows here. Start one with {start}.")


def _draw_found(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body["workflows"],
        "workflow=workflow_id:name, type=workflow_type, status:status, task queue, business key, "
        "started=started_at:when, closed=closed_at:when",
        empty=f"Nothing fits. See everything with {command_hint('workflow', 'list')}.",
    )
    if body.get("next_page_token"):
        echo_err(f"The first {len(body['workflows'])} are shown. See more with --limit, or all with --all.")


def _draw_count(screen: Screen, body: dict[str, Any]) -> None:
    groups = body.get("groups")
    counted = body.get("count")
    if isinstance(groups, dict) and groups:
        screen.table(["status", "count"], [[status(key), plain(count)] for key, count in groups.items()])
    else:
        screen.value(counted)
    if body.get("complete") is False:
        echo_err(f"At least {counted}: there is more than the server counts at once. Narrow it with --query.")
