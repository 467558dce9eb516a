"""Commands for what all namespaces share."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.limits.options import LimitedScope, limit_option, own_flags, part_option, show_history
from penstock.cli.transport.session import CliSession

_CLUSTER = LimitedScope("Cluster", "all namespaces", "the cluster", ("cluster", "limits"))


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
    _CLUSTER.show(session)


@limits.verb("set", example="penstock cluster limits set --max-active-leases 500")
@part_option
@own_flags
@click.pass_obj
def set_limits(session: CliSession, /, part: str, **flags: Any) -> None:
    """Change the limits of the whole cluster (needs the admin role). They apply from the next grant."""
    _CLUSTER.change(session, part, flags)


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
        show_history(session, "cluster", "declared-limits", "history", limit=limit)
    else:
        _CLUSTER.history(session, part, limit)
