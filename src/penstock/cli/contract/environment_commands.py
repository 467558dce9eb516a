"""Commands for the environments of `dw`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.contract.environment_place import path
from penstock.cli.contract.session import OUTPUTS
from penstock.cli.grammar import CommandReach, noun
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen
from penstock.cli.transport.session import CliSession

if TYPE_CHECKING:
    from penstock.cli.contract.environments import EnvironmentFile, TokenSource

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOW_TOKEN = click.option("--show-token", is_flag=True, help="Print tokens that are kept in the file.")
_FIELDS = "name:name, current:bool, server, namespace, token, verifies TLS=tls_verify:bool, output"


@noun("env", example="dw env:set prod --server https://dw.example.com --token-env PROD_TOKEN")
def env() -> None:
    """Create, select and delete environments: named presets of server, namespace and token."""


@env.verb(
    "set", example="dw env:set dev --server http://127.0.0.1:8080 --make-default", reach=CommandReach.HERE
)
@click.argument("name")
@click.option("--server", metavar="URL", help="Server URL.")
@click.option("--namespace", metavar="NAME", help="Namespace.")
@click.option("--token-env", metavar="VARIABLE", help="Variable that holds the token when a command runs.")
@click.option("--token", metavar="TOKEN", help="The token itself, kept in the file; prefer --token-env.")
@click.option("--tls-verify", type=click.BOOL, metavar="BOOL", help="Whether to verify certificates.")
@click.option("--profile-output", type=click.Choice(["", *OUTPUTS]), help="Format to print in.")
@click.option("--make-default", is_flag=True, help="Also select it.")
@click.pass_obj
def set_environment(
    session: CliSession,
    /,
    name: str,
    token_env: str | None,
    token: str | None,
    make_default: bool,
    **fields: Any,
) -> None:
    """Create an environment or change the given fields of one; an empty text clears a field."""
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            "NAME must begin with a letter or digit; then letters, digits, '.', '_' and '-'."
        )
    changed = {field: value if value != "" else None for field, value in fields.items() if value is not None}
    if "profile_output" in changed:
        changed["output"] = changed.pop("profile_output")
    changed |= _token_source(token_env, token)
    stored = _read()
    stored.change(name, changed)
    if make_default:
        stored.current_env = name
    stored.write()
    echo_err(f"Saved the environment {name}.")
    _show(session, stored, name)


@env.verb("list", example="dw env:list", reach=CommandReach.HERE)
@_SHOW_TOKEN
@click.pass_obj
def list_environments(session: CliSession, show_token: bool) -> None:
    """List all environments."""
    stored = _read()
    rows = [_row(stored, name, show_token=show_token) for name in sorted(stored.envs)]
    data = {"current_env": stored.current_env, "config_path": str(path()), "envs": rows}
    session.show_data(
        data,
        lambda screen: screen.rows(
            rows, _FIELDS, empty="No environments yet. Create one with `dw env:set NAME`.", token=_token
        ),
    )


@env.verb("show", example="dw env:show prod", reach=CommandReach.HERE)
@click.argument("name", required=False)
@_SHOW_TOKEN
@click.pass_obj
def show_environment(session: CliSession, name: str | None, show_token: bool) -> None:
    """Show one environment, or the selected one."""
    stored = _read()
    wanted = name or stored.current_env
    if wanted is None:
        raise click.UsageError("No environment is selected; name one, or select it with `dw env:use NAME`.")
    stored.named(wanted)
    _show(session, stored, wanted, show_token=show_token)


@env.verb("use", example="dw env:use prod", reach=CommandReach.HERE)
@click.argument("name")
@click.pass_obj
def use_environment(session: CliSession, name: str) -> None:
    """Select the environment of commands that name none."""
    stored = _read()
    stored.named(name)
    stored.current_env = name
    stored.write()
    echo_err(f"Selected the environment {name}.")
    _show(session, stored, name)


@env.verb("delete", example="dw env:delete staging", reach=CommandReach.HERE)
@click.argument("name")
@click.pass_obj
def delete_environment(session: CliSession, name: str) -> None:
    """Delete an environment."""
    stored = _read()
    stored.named(name)
    del stored.envs[name]
    was_current = stored.current_env == name
    if was_current:
        stored.current_env = None
    stored.write()
    echo_err(f"Deleted the environment {name}.")
    data = {
        "name": name,
        "deleted": True,
        "was_current": was_current,
        "config_path": str(path()),
    }
    session.show_data(data, lambda _screen: None)


def _read() -> EnvironmentFile:
    from penstock.cli.contract.environments import read

    return read()


def _token_source(token_env: str | None, token: str | None) -> dict[str, TokenSource | None]:
    from penstock.cli.contract.environments import TokenSource

    if token_env and token:
        raise click.UsageError("--token and --token-env contradict each other; give one of them.")
    if token_env and not _VARIABLE.fullmatch(token_env):
        raise click.UsageError("--token-env must be the name of a variable, not the token.")
    if token_env:
        return {"token_source": TokenSource("env", token_env)}
    if token:
        return {"token_source": TokenSource("literal", token)}
    return {} if token_env is None and token is None else {"token_source": None}


def _row(stored: EnvironmentFile, name: str, *, show_token: bool) -> dict[str, object]:
    return {**stored.envs[name].described(name, show_token=show_token), "current": name == stored.current_env}


def _show(session: CliSession, stored: EnvironmentFile, name: str, *, show_token: bool = False) -> None:
    data = {**_row(stored, name, show_token=show_token), "config_path": str(path())}

    def draw(screen: Screen) -> None:
        screen.fields(data, f"{_FIELDS}, file=config_path", token=_token)

    session.show_data(data, draw)


def _token(row: Any) -> str | None:
    source = row.get("token_source")
    return f"{source['type']}: {source.get('env') or source.get('value')}" if source else None
