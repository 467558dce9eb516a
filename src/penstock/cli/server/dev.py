"""Runs a whole Penstock in one process for development: one SQLite file, one token, nothing to install."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.grammar import CommandReach, VerbCommand
from penstock.cli.output.exits import CommandError, echo_err, warn
from penstock.cli.server.settings import explained, listen_flags, load_settings
from penstock.cli.transport.session import SERVER_VARIABLE, TOKEN_VARIABLE, CliSession, show_json

if TYPE_CHECKING:
    from penstock.server.dashboard import Dashboard

TOKEN_FILE = "token"
DATABASE_FILE = "penstock.db"
_TOKEN_BYTES = 32
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (names a bind, makes none)
_CREDENTIALS = ("TOKEN", "TOKEN_FILE", "SIGNATURE_KEY", "SIGNATURE_KEY_FILE", "AUTH_DRIVER")


@click.command("dev", cls=VerbCommand, reach=CommandReach.HERE, example="penstock dev --data-dir .penstock")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".penstock"),
    show_default=True,
    metavar="DIRECTORY",
    help="Where the database and the token are kept.",
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on [env: DW_HOST].")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port to listen on [env: DW_PORT].")
@click.pass_obj
def dev(session: CliSession, data_dir: Path, host: str | None, port: int | None) -> None:
    """Run a development server, all in one process."""
    prepare(data_dir)
    flags = dev_overrides(data_dir, os.environ) | listen_flags(host, port)
    settings = load_settings(None, flags)
    token = flags.get("DW_AUTH_TOKEN_FILE")
    url = address(settings.listen.host, settings.listen.port)

    def listening(_: str, dashboard: Dashboard | None) -> None:
        link = None if dashboard is None else dashboard.one_time_link(url, _user())
        if session.json:
            facts = {"url": url, "data_dir": str(data_dir), "token_file": token, "dashboard": link}
            show_json(json.dumps(facts))
        _greet(url, data_dir, token, link)

    from penstock import assembly

    with explained():
        assembly.serve(settings, on_listening=listening)


def prepare(data_dir: Path) -> None:
    """Create the directory for this user only, ignored by version control."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = data_dir / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise CommandError(
            "data_dir_unusable", f"{data_dir}: {error.strerror}.", "Choose another with --data-dir."
        ) from error


def dev_overrides(data_dir: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a development server; variables of the environment take precedence."""
    overrides: dict[str, str] = {}
    if "DW_DATABASE_URL" not in environ:
        overrides["DW_DATABASE_URL"] = _database_url(data_dir)
    if "DW_SOURCE_LINES" not in environ:
        overrides["DW_SOURCE_LINES"] = "true"
    if not _has_credentials(environ):
        overrides["DW_AUTH_TOKEN_FILE"] = str(token_file(data_dir).absolute())
    return overrides


def used_overrides(data_dir: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a data directory that a development server has used; nothing in it is made or changed."""
    if not (data_dir / DATABASE_FILE).is_file():
        raise CommandError(
            "data_dir_unusable",
            f"{data_dir} holds no database of a development server.",
            "Name the directory that `penstock dev` was started with.",
        )
    overrides = {"DW_DATABASE_URL": _database_url(data_dir)}
    token = data_dir / TOKEN_FILE
    if not _has_credentials(environ) and os.access(token, os.R_OK):
        overrides["DW_AUTH_TOKEN_FILE"] = str(token.absolute())
    return overrides


def _database_url(data_dir: Path) -> str:
    return f"sqlite:///{(data_dir / DATABASE_FILE).absolute()}"


def _has_credentials(environ: Mapping[str, str]) -> bool:
    return any(key.startswith("DW_") and key.endswith(_CREDENTIALS) for key in environ)


def token_file(data_dir: Path) -> Path:
    """The file with the one token of this data directory, readable by its owner only; made on first use."""
    path = data_dir / TOKEN_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        _check_private(path)
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{secrets.token_urlsafe(_TOKEN_BYTES)}\n")
    return path


def address(host: str, port: int) -> str:
    """The address to give to clients on this machine."""
    host = _LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
        warn(f"{path} could be read by other users; now only by you. Delete it to get a new token.")
    if not path.read_text().strip():
        raise CommandError(
            "token_missing", f"{path} is empty.", "Delete the file; the next start makes a new token."
        )


def _user() -> str:
    """The name of whoever started the server, as the author of changes made in the dashboard."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "developer"


def _greet(url: str, data_dir: Path, token: str | None, dashboard: str | None) -> None:
    echo_err(f"Penstock listens. API {url}/api, documentation {url}/docs")
    if dashboard is not None:
        echo_err(f"Dashboard {dashboard}")
        if "#code=" in dashboard:
            echo_err(
                f"  That link signs you in once, within a minute; later, sign in at {url}/ui with the token."
            )
    echo_err(
        f"Everything is kept in {data_dir}. Ctrl-C stops the server; the next start continues from there."
    )
    echo_err("In another terminal, so that command line and SDKs find it:")
    echo_err(f"  export {SERVER_VARIABLE}={url}")
    if token is not None:
        echo_err(f'  export {TOKEN_VARIABLE}="$(cat {shlex.quote(token)})"')
    echo_err("  penstock workflow list")
    echo_err("ready")
