"""Commands for what all namespaces share."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.limits.options import (
    PARTS,
    change,
    limit_option,
    part_option,
    scope_flags,
    show_history,
    show_scope,
)
from penstock.cli.output.exits import echo_err
from penstock.cli.transport.session import CliSession


@noun("cluster", example="penstock cluster limits get")
def cluster() -> None:
    """Show and change what applies to all namespaces together."""


@noun("limits", example="penstock cluster limits get")
def limits() -> None:
    """Show and change the concurrency and rate limits of all queues."""


cluster.add_command(limits)


@limits.verb("get", example="penstock cluster limits get")
@click.pass_obj
def get_limits(session: CliSession) -> None:
    """Show the limits of the whole cluster, their usage and holders."""
    show_scope(session, session.connect().get("cluster", "limits"), "Cluster", "all namespaces")


@limits.verb("set", example="penstock cluster limits set --max-active-leases 500")
@part_option
@scope_flags
@click.pass_obj
def set_limits(session: CliSession, /, part: str, **flags: Any) -> None:
    """Change the limits of the whole cluster (needs the admin role). They apply from the next grant."""
    body = change(**flags) | {"kind": PARTS[part]}
    answer = session.connect().patch("cluster", "limits", body=body)
    echo_err("Changed the limits of the cluster.")
    show_scope(session, answer, "Cluster", "all namespaces")


@limits.verb("history", example="penstock cluster limits history")
@part_option
@limit_option
@click.option(
    "--declared",
    is_flag=True,
    help="Show which limits of the servers' configuration changed, of every queue (needs the admin role).",
)
@click.pass_obj
def limits_history(session: CliSession, part: str, limit: int, declared: bool) -> None:
    """Show who changed which limit of the cluster, newest first."""
    if declared:
        query: dict[str, Any] = {"limit": limit}
        show_history(session, session.connect().get("cluster", "declared-limits", "history", query=query))
        return
    query = {"kind": PARTS[part], "limit": limit}
    show_history(session, session.connect().get("cluster", "limits", "history", query=query))
