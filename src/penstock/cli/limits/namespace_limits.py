"""Commands for the limits of a namespace, and for its pause."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import given
from penstock.cli.limits.options import (
    PARTS,
    change,
    limit_option,
    part_option,
    report_pause,
    scope_flags,
    show_history,
    show_scope,
)
from penstock.cli.output.exits import echo_err
from penstock.cli.transport.session import CliSession


@noun("limits", example="penstock namespace limits get orders-prod")
def limits() -> None:
    """Show and change the concurrency and rate limits of a namespace."""


@limits.verb("get", example="penstock namespace limits get orders-prod")
@click.argument("target", metavar="NAME")
@click.pass_obj
def get_limits(session: CliSession, target: str) -> None:
    """Show the limits of a namespace, their usage and holders."""
    show_scope(session, session.connect().get("namespaces", target, "limits"), "Namespace", target)


@limits.verb(
    "set", example="penstock namespace limits set orders-prod --type activity --max-active-leases 50"
)
@click.argument("target", metavar="NAME")
@part_option
@scope_flags
@click.pass_obj
def set_limits(session: CliSession, /, target: str, part: str, **flags: Any) -> None:
    """Change the limits of a namespace, permanently or with --for. They apply from the next grant."""
    body = change(**flags) | {"kind": PARTS[part]}
    answer = session.connect().patch("namespaces", target, "limits", body=body)
    echo_err(f"Changed the limits of the namespace {target}.")
    show_scope(session, answer, "Namespace", target)


@limits.verb("history", example="penstock namespace limits history orders-prod")
@click.argument("target", metavar="NAME")
@part_option
@limit_option
@click.pass_obj
def limits_history(session: CliSession, target: str, part: str, limit: int) -> None:
    """Show who changed which limit of a namespace, newest first."""
    query = {"kind": PARTS[part], "limit": limit}
    show_history(session, session.connect().get("namespaces", target, "limits", "history", query=query))


def pause(session: CliSession, target: str, seconds: int | None, reason: str | None) -> None:
    """Hold a namespace back."""
    body = given(expires_in_seconds=seconds, reason=reason)
    answer = session.connect().post("namespaces", target, "pause", body=body)
    report_pause(True, f"the namespace {target}", seconds, "namespace", "resume", target)
    show_scope(session, answer, "Namespace", target)


def resume(session: CliSession, target: str, reason: str | None) -> None:
    """Let a namespace go on."""
    answer = session.connect().post("namespaces", target, "resume", body=given(reason=reason))
    report_pause(False, f"the namespace {target}", None)
    show_scope(session, answer, "Namespace", target)
