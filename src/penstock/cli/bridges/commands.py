"""Commands for bridge adapters, through which other systems start, signal and update workflows."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import JsonObjectParam, arguments, given
from penstock.cli.output.screen import Screen, plain
from penstock.cli.transport.connection import PathIdentifier
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import input_option

_EXAMPLE = (
    "penstock bridge webhook stripe --action start_workflow --idempotency-key evt_1001 \\\n"
    """    --target '{"workflow_type": "orders.fulfil", "task_queue": "orders"}' --input '{"order": 7}'"""
)


@noun("bridge", example="penstock bridge list")
def bridge() -> None:
    """Send events through bridge adapters, and list those that accept webhooks."""


@bridge.verb("list", example="penstock bridge list")
@click.pass_obj
def list_adapters(session: CliSession) -> None:
    """List the adapters that the server's configuration declares, without their secrets."""
    session.show(session.connect().get("bridge-adapters"), _draw_adapters)


@bridge.verb("webhook", example=_EXAMPLE)
@click.argument("adapter")
@click.option(
    "--action", required=True, metavar="ACTION", help="start_workflow, signal_workflow or update_workflow."
)
@click.option(
    "--idempotency-key",
    required=True,
    metavar="KEY",
    help="Identifies the event; a repetition has no effect.",
)
@click.option(
    "--target",
    type=JsonObjectParam(),
    required=True,
    metavar="JSON",
    help="The workflow to act on: workflow_type, or workflow_id with signal_name or update_name.",
)
@input_option
@click.option("--correlation", type=JsonObjectParam(), metavar="JSON", help="Repeated in the outcome.")
@click.pass_obj
def send_event(
    session: CliSession,
    adapter: str,
    action: str,
    idempotency_key: str,
    target: dict[str, Any],
    values: tuple[Any, ...],
    correlation: dict[str, Any] | None,
) -> None:
    """Send one event through an adapter, and print its outcome. A rejected one ends with code 1."""
    body = given(
        action=action,
        idempotency_key=idempotency_key,
        target=target,
        input=arguments(values) if values else None,
        correlation=correlation,
    )
    sent = session.connect().post("bridge-adapters", "webhook", PathIdentifier(adapter), body=body)
    session.show(sent, _draw_outcome)


def _draw_outcome(screen: Screen, body: dict[str, Any]) -> None:
    names = ("outcome", "reason", "adapter", "action", "idempotency_key", "workflow_id", "run_id")
    screen.facts(
        [(name.replace("_", " ").capitalize(), plain(body[name])) for name in names if body.get(name)]
    )


def _draw_adapters(screen: Screen, body: dict[str, Any]) -> None:
    adapters = body.get("adapters") or []
    if not adapters:
        screen.line(plain("No adapter is declared for this namespace."))
        return
    rows = [
        [
            plain(each.get("adapter")),
            plain(each.get("scheme")),
            plain(", ".join(map(str, each.get("secrets") or []))),
            plain(f"{each.get('tolerance_seconds')} s"),
            plain(", ".join(str(route.get("action")) for route in each.get("routes") or [])),
        ]
        for each in adapters
    ]
    screen.table(("Adapter", "Scheme", "Secrets", "Tolerance", "Routes"), rows)
