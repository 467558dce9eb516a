"""Commands for the limits of a namespace."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.limits.options import LimitedScope, limit_option, own_flags, part_option
from penstock.cli.transport.session import CliSession


def namespace_scope(target: str) -> LimitedScope:
    path = ("namespaces", target)
    return LimitedScope("Namespace", target, f"the namespace {target}", (*path, "limits"), path)


@noun("limits", example="penstock namespace limits get orders-prod")
def limits() -> None:
    """Show and change the concurrency and rate limits of a namespace."""


@limits.verb("get", example="penstock namespace limits get orders-prod")
@click.argument("target", metavar="NAME")
@click.pass_obj
def get_limits(session: CliSession, target: str) -> None:
    """Show the limits of a namespace, their usage and holders."""
    namespace_scope(target).show(session)


@limits.verb(
    "set", example="penstock namespace limits set orders-prod --type activity --max-active-leases 50"
)
@click.argument("target", metavar="NAME")
@part_option
@own_flags
@click.pass_obj
def set_limits(session: CliSession, /, target: str, part: str, **flags: Any) -> None:
    """Change the limits of a namespace, permanently or with --for. They apply from the next grant."""
    namespace_scope(target).change(session, part, flags)


@limits.verb("history", example="penstock namespace limits history orders-prod")
@click.argument("target", metavar="NAME")
@part_option
@limit_option
@click.pass_obj
def limits_history(session: CliSession, target: str, part: str, limit: int) -> None:
    """Show who changed which limit of a namespace, newest first."""
    namespace_scope(target).history(session, part, limit)
