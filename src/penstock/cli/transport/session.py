"""Server, credentials, namespace and output format, from flags and environment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output.escapes import shown_json

if TYPE_CHECKING:
    from penstock.cli.output.screen import Screen
    from penstock.cli.transport.connection import ServerConnection, ServerResponse
    from penstock.cli.transport.signing import RequestSigning

SERVER_VARIABLE = "DURABLE_WORKFLOW_SERVER_URL"
TOKEN_VARIABLE = "DURABLE_WORKFLOW_AUTH_TOKEN"
NAMESPACE_VARIABLE = "DURABLE_WORKFLOW_NAMESPACE"
SIGNATURE_VARIABLES = (
    "DW_ADMIN_SIGNATURE_KEY",
    "DW_OPERATOR_SIGNATURE_KEY",
    "DW_SIGNATURE_KEY",
    "DW_WORKER_SIGNATURE_KEY",
)
"""Variables with keys for a server that requires signatures."""
DEFAULT_SERVER = "http://127.0.0.1:8080"
ENGINE_ADDRESSES = ("temporal://", "temporals://")
"""How addresses of other engines begin."""


@dataclass(slots=True)
class CliSession:
    """The flags so far: one after the verb wins over one before the noun, and both over the environment."""

    server: str | None = None
    token: str | None = None
    namespace: str | None = None
    insecure: bool = False
    json: bool = False
    signature_key: str | None = None

    @property
    def asks_code_to_cancel(self) -> bool:
        """Whether what is started receives a cancel request that comes before its code has run."""
        return True

    def connect(self) -> ServerConnection:
        """Return the connection that the flags and the environment describe; no request is sent yet."""
        from penstock.cli.transport.connection import ServerConnection, Target

        address = self.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
        if address.startswith(ENGINE_ADDRESSES):
            return self._engine(address)
        target, *others = Target.parse_all(address)
        return ServerConnection(
            target,
            others=tuple(others),
            signing=self._signing(),
            token=self.token or os.environ.get(TOKEN_VARIABLE) or None,
            namespace=self.namespace or os.environ.get(NAMESPACE_VARIABLE) or None,
            insecure=self.insecure,
            on_refusal=self._show_refusal,
        )

    def _engine(self, address: str) -> ServerConnection:
        """The connection to another engine."""
        from penstock.cli.transport.connection import Target
        from penstock.cli.transport.engine_connection import EngineConnection

        if self.signature_key is not None:
            raise click.UsageError(
                "--signature-key: Temporal has no signed requests; pass the API key as --token."
            )
        return EngineConnection(
            Target.parse(DEFAULT_SERVER),
            token=self.token or os.environ.get(TOKEN_VARIABLE) or None,
            namespace=self.namespace or os.environ.get(NAMESPACE_VARIABLE) or None,
            insecure=self.insecure,
            on_refusal=self._show_refusal,
            url=address,
        )

    def _signing(self) -> RequestSigning | None:
        """The keys that sign requests, if there are any."""
        if self.signature_key is None and not any(os.environ.get(each) for each in SIGNATURE_VARIABLES):
            return None
        from penstock.cli.transport.signing import RequestSigning

        return RequestSigning.found(self.signature_key, os.environ)

    def show(self, answer: ServerResponse, draw: Callable[[Screen, dict[str, Any]], None]) -> None:
        """Print the response: as JSON with --json, else with `draw`."""
        if self.json:
            show_json(answer.text)
            return
        from penstock.cli.output.screen import Screen

        draw(Screen(), answer.body)

    def show_data(self, data: Any, draw: Callable[[Screen], None]) -> None:
        """Print data of this machine: as JSON with --json, else with `draw`."""
        if self.json:
            show_json(json.dumps(data, ensure_ascii=False, default=str))
            return
        from penstock.cli.output.screen import Screen

        draw(Screen())

    def _show_refusal(self, text: str) -> None:
        """With --json, a refusal is data too: scripts branch on its `reason`."""
        if self.json:
            show_json(text)


def show_json(text: str) -> None:
    """Print a JSON document on stdout."""
    click.echo(shown_json(text.rstrip("\n")))


def show_json_line(value: Mapping[str, Any]) -> None:
    """Print a value as one line of JSON on stdout, at once."""
    click.echo(shown_json(json.dumps(value, ensure_ascii=False)))


class ConnectionOption(click.Option):
    """A flag that is accepted before the noun and after the verb."""

    def __init__(self, *declarations: str, **attributes: Any) -> None:
        first, *rest = declarations
        super().__init__([f"--{first}", *rest], expose_value=False, callback=_remember, **attributes)


def _remember(ctx: click.Context, option: click.Parameter, value: object) -> None:
    session = ctx.ensure_object(CliSession)
    if value and option.name:
        setattr(session, option.name.replace("-", "_"), value)


def json_option() -> ConnectionOption:
    """The flag that every command takes."""
    return ConnectionOption("json", is_flag=True, help="Print the answer as JSON.")


def connection_options() -> list[click.Parameter]:
    """The flags of every command that connects to a server."""
    return [
        ConnectionOption(
            "server",
            metavar="URL",
            help=f"Server URL; A,B: the next one if it fails [env: {SERVER_VARIABLE}].",
        ),
        ConnectionOption("token", metavar="TOKEN", help=f"Bearer token [env: {TOKEN_VARIABLE}]."),
        ConnectionOption(
            "signature-key",
            metavar="ID:KEY",
            help="Sign requests with this key of operator, admin, worker or shared [env: DW_OPERATOR_SIGNATURE_KEY …].",
        ),
        ConnectionOption("namespace", metavar="NAME", help=f"Namespace [env: {NAMESPACE_VARIABLE}]."),
        ConnectionOption("insecure", is_flag=True, help="Send the token over plain http to another machine."),
        json_option(),
    ]
