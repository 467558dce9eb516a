"""Commands for namespaces, the boundary of isolation and permission."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun, with_options
from penstock.cli.inputs import CONFIRM_DELETION, confirm, given
from penstock.cli.limits.namespace_limits import limits, namespace_scope
from penstock.cli.limits.options import for_option, reason_option
from penstock.cli.operations.payload_storage import payload_storage, test_storage
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, plain
from penstock.cli.transport.session import CliSession

_RETENTION = click.IntRange(1, 365)
_OPTIONS = (
    click.option("--description", metavar="TEXT", help="Description of the namespace."),
    click.option("--retention-days", type=_RETENTION, metavar="N", help="Days to keep closed workflows."),
    click.option(
        "--fairness",
        type=click.Choice(["on", "off"]),
        help="Whether its queues share by fairness key, or dispatch in order of arrival.",
    ),
)


@noun("namespace", example="penstock namespace create orders-prod --retention-days 90")
def namespace() -> None:
    """Create, read, change and delete namespaces."""


namespace.add_command(limits)
namespace.add_command(payload_storage)
namespace.add_command(test_storage)


@namespace.verb("list", example="penstock namespace list")
@click.pass_obj
def list_namespaces(session: CliSession) -> None:
    """List all namespaces."""
    session.show(session.connect().get("namespaces"), _draw_list)


@namespace.verb("describe", example="penstock namespace describe orders-prod")
@click.argument("target", metavar="NAME")
@click.pass_obj
def describe_namespace(session: CliSession, target: str) -> None:
    """Show one namespace."""
    session.show(session.connect().get("namespaces", target), _draw_one)


@namespace.verb("create", example='penstock namespace create orders-prod --description "production orders"')
@click.argument("target", metavar="NAME")
@with_options(*_OPTIONS)
@click.pass_obj
def create_namespace(session: CliSession, /, target: str, **fields: Any) -> None:
    """Create a namespace (needs the admin role)."""
    answer = session.connect().post("namespaces", body=given(name=target, **fields))
    echo_err(f"Created the namespace {answer.body.get('name', target)}.")
    session.show(answer, _draw_one)


@namespace.verb("update", example="penstock namespace update orders-prod --retention-days 30")
@click.argument("target", metavar="NAME")
@with_options(*_OPTIONS)
@click.pass_obj
def update_namespace(session: CliSession, /, target: str, **fields: Any) -> None:
    """Change the description, retention or fairness of a namespace (needs the admin role)."""
    body = given(**fields)
    if not body:
        raise click.UsageError("Name what to change: --description, --retention-days or --fairness.")
    answer = session.connect().put("namespaces", target, body=body)
    echo_err(f"Updated the namespace {answer.body.get('name', target)}.")
    session.show(answer, _draw_one)


@namespace.verb("delete", example="penstock namespace delete orders-test --yes")
@click.argument("target", metavar="NAME")
@click.option("--with-closed-runs", is_flag=True, help="Also its closed runs, workers and queues.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
@click.pass_obj
def delete_namespace(session: CliSession, target: str, with_closed_runs: bool, yes: bool) -> None:
    """Delete a namespace; one with open runs is never deleted (needs the admin role)."""
    connection = session.connect()
    what = " and everything in it" if with_closed_runs else ""
    confirm(f"Delete the namespace {target}{what}?", yes, CONFIRM_DELETION)
    query = {"with_closed_runs": "true"} if with_closed_runs else {}
    answer = connection.delete("namespaces", target, query=query)
    echo_err(f"Deleted the namespace {answer.body.get('name', target)}.")
    session.show(answer, _draw_deleted)


@namespace.verb("pause", example='penstock namespace pause orders-prod --for 10m --reason "migration"')
@click.argument("target", metavar="NAME")
@for_option
@reason_option
@click.pass_obj
def pause_namespace(session: CliSession, target: str, seconds: int | None, reason: str | None) -> None:
    """Pause dispatch in a namespace; running tasks continue."""
    namespace_scope(target).pause(session, seconds, reason, "namespace")


@namespace.verb("resume", example="penstock namespace resume orders-prod")
@click.argument("target", metavar="NAME")
@reason_option
@click.pass_obj
def resume_namespace(session: CliSession, target: str, reason: str | None) -> None:
    """Resume a paused namespace."""
    namespace_scope(target).resume(session, reason)


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body.get("namespaces") or [],
        "name:name, status:status, retention, created=created_at:when, description",
        empty="No namespaces yet. Create one with `penstock namespace create NAME`.",
        retention=lambda row: f"{row.get('retention_days')} days",
    )


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "name:name, status:status, description, retention, fairness, "
        "payload storage=external_payload_storage, created=created_at:exact, updated=updated_at:exact",
        retention=lambda body: f"{body.get('retention_days')} days",
    )


def _draw_deleted(screen: Screen, body: dict[str, Any]) -> None:
    deleted = body.get("deleted") or {}
    screen.fields(body, "name:name, status:status")
    if deleted:
        screen.heading("Deleted with it")
        screen.facts([(str(kind).replace("_", " "), plain(count)) for kind, count in deleted.items()])
