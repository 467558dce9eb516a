"""What `dw` prints and how it ends: the output formats, JSON shapes and exit codes of the contract."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.contract.environment_place import may_be_selected
from penstock.cli.output.exits import RequestRefused, ServerUnreachable, StillOpen, warn
from penstock.cli.transport.session import (
    NAMESPACE_VARIABLE,
    SERVER_VARIABLE,
    TOKEN_VARIABLE,
    CliSession,
    ConnectionOption,
    show_json,
)

if TYPE_CHECKING:
    from penstock.cli.contract.environments import Environment
    from penstock.cli.output.screen import Screen
    from penstock.cli.transport.connection import ServerConnection, ServerResponse

TLS_VARIABLE = "DURABLE_WORKFLOW_TLS_VERIFY"
OUTPUTS = ("table", "json", "jsonl")
DEFAULT_NAMESPACE = "default"
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_ROWS = (
    "workflows",
    "runs",
    "activities",
    "task_queues",
    "workers",
    "schedules",
    "namespaces",
    "events",
    "envs",
)
"""Fields that hold the rows of a list: `jsonl` prints one row per line."""
_OUTSIDE = ("events", "envs")
"""Rows that belong to no namespace of their own."""


class ContractExit(enum.IntEnum):
    """Exit codes of the contract."""

    FAILURE = 1
    INVALID = 2
    NETWORK = 3
    AUTH = 4
    NOT_FOUND = 5
    SERVER = 6
    TIMEOUT = 7


class ContractSession(CliSession):
    """The flags of one `dw` command, completed by the environment variables and the selected environment."""

    def __init__(self) -> None:
        super().__init__()
        self.env: str | None = None
        self.output_format: str | None = None
        self.tls_verify: str | None = None
        self.command = ""
        self._is_lines = False
        self._verifies = True
        self._scope: str | None = None

    @property
    def asks_code_to_cancel(self) -> bool:
        """In the contract, a cancelled run whose code cannot clean up is closed at once."""
        return False

    def settle(self, *, connects: bool) -> None:
        """Resolve what was not given: flags win over variables, variables over the environment, that over defaults.

        The token of an environment is for its server only: it is not sent to one that a flag or a variable names.
        """
        preset = self._fill_in() if connects else None
        mode = "json" if self.json else self.output_format or preset or "table"
        self.json, self._is_lines = mode != "table", mode == "jsonl"

    def _fill_in(self) -> str | None:
        """Fill in server, token and namespace; return the preset format."""
        found: Environment | None = None
        if may_be_selected(self.env):
            from penstock.cli.contract.environments import selected

            found = selected(self.env)
        self.server = self.server or os.environ.get(SERVER_VARIABLE)
        self.token = self.token or os.environ.get(TOKEN_VARIABLE)
        self.namespace = self.namespace or os.environ.get(NAMESPACE_VARIABLE)
        if found is not None:
            is_its_server = found.server is None or self.server in (None, found.server)
            self.server = self.server or found.server
            self.token = self.token or (found.token() if is_its_server else None)
            self.namespace = self.namespace or found.namespace
        self._verifies = self._verification(found is None or found.tls_verify)
        self._scope = self.namespace or DEFAULT_NAMESPACE
        return found.output if found else None

    def connect(self) -> ServerConnection:
        connection = super().connect()
        if self._verifies or not any(
            each.scheme == "https" for each in (connection.target, *connection.others)
        ):
            return connection
        warn("The server's certificate is not verified.")
        return replace(connection, verifies=False)

    def show(self, answer: ServerResponse, draw: Callable[[Screen, dict[str, Any]], None]) -> None:
        if self.json:
            self._print(answer.body)
            return
        super().show(answer, draw)

    def show_data(self, data: Any, draw: Callable[[Screen], None]) -> None:
        if self.json and isinstance(data, dict):
            self._print(data)
            return
        super().show_data(data, draw)

    def show_problem(self, problem: click.ClickException, exit_code: int) -> None:
        """Print the error as the contract's envelope, if the output is JSON."""
        if not self.json:
            return
        envelope: dict[str, Any] = {
            "error": problem.message or problem.format_message(),
            "exit_code": exit_code,
            "command": self.command,
            "namespace": self._scope or self.namespace or DEFAULT_NAMESPACE,
            "reason": getattr(problem, "reason", "invalid_usage"),
        }
        if isinstance(problem, RequestRefused):
            errors = problem.body.get("validation_errors") or problem.body.get("errors")
            envelope |= {"status_code": problem.status, "server_response": problem.body}
            envelope |= {"validation_errors": errors} if errors else {}
        show_json(json.dumps(envelope, ensure_ascii=False, default=str))

    def _show_refusal(self, text: str) -> None:
        """A refusal is part of the envelope that `show_problem` prints."""

    def _print(self, body: Mapping[str, Any]) -> None:
        field = next((each for each in _ROWS if isinstance(body.get(each), list)), None)
        shaped = body if self._scope is None else _with_namespace(body, self._scope, field)
        printed = shaped[field] if self._is_lines and field else [shaped]
        for each in printed:
            show_json(json.dumps(each, ensure_ascii=False, default=str))

    def _verification(self, preset: bool) -> bool:
        text = self.tls_verify or os.environ.get(TLS_VARIABLE)
        if not text:
            return preset
        if text.lower() not in (*_YES, *_NO):
            raise click.UsageError(f"--tls-verify must be one of {', '.join((*_YES, *_NO))}.")
        return text.lower() in _YES


def exit_code_of(problem: click.ClickException) -> int:
    """The contract's exit code for an error."""
    if isinstance(problem, RequestRefused):
        return int(_code_of_status(problem.status))
    if isinstance(problem, StillOpen) or isinstance(problem.__cause__, TimeoutError):
        return int(ContractExit.TIMEOUT)
    if isinstance(problem, ServerUnreachable):
        return int(ContractExit.NETWORK)
    return problem.exit_code


def _code_of_status(status: int) -> ContractExit:
    named = {
        401: ContractExit.AUTH,
        403: ContractExit.AUTH,
        404: ContractExit.NOT_FOUND,
        408: ContractExit.TIMEOUT,
    }
    if status in named:
        return named[status]
    return ContractExit.SERVER if status >= 500 else ContractExit.INVALID


def _with_namespace(body: Mapping[str, Any], scope: str, field: str | None) -> dict[str, Any]:
    """The answer with the namespace that it is about, which for a namespace is its own name, in it and in its rows."""
    shaped = dict(body)
    if "retention_days" in body and body.get("name"):
        shaped.setdefault("namespace", body["name"])
    shaped["namespace"] = shaped.get("namespace") or scope
    plane = body.get("control_plane")
    if isinstance(plane, dict):
        for key, of_plane in (
            ("schema", "schema"),
            ("schema_version", "version"),
            ("operation", "operation"),
        ):
            shaped.setdefault(f"control_plane_{key}", plane.get(of_plane))
    if field and field not in _OUTSIDE:
        shaped[field] = [
            {
                **row,
                "namespace": row.get("namespace") or (row.get("name") if field == "namespaces" else scope),
            }
            for row in body[field]
        ]
    return shaped


def output_options(own: Iterable[click.Parameter]) -> list[click.Parameter]:
    """The option for the format, for commands that have JSON."""
    if not any(param.name == "json" for param in own):
        return []
    return [
        ConnectionOption(
            "output",
            "output_format",
            type=click.Choice(OUTPUTS),
            help="Format; jsonl prints one row per line.",
        )
    ]


def server_options() -> list[click.Parameter]:
    """The contract's further options of commands that connect to a server."""
    return [
        ConnectionOption("env", metavar="NAME", help="Environment of `dw env:set` to use [env: DW_ENV]."),
        ConnectionOption(
            "tls-verify", metavar="BOOL", help=f"Whether to verify certificates [env: {TLS_VARIABLE}]."
        ),
    ]
