"""Commands for the database of a server: migrate, status, backup."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.grammar import CommandReach, noun
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, plain
from penstock.cli.server.dev import used_overrides
from penstock.cli.server.settings import explained, load_settings
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.settings import Settings

_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with the server's settings."
)
_DATA_DIR = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Use the database that `penstock dev` keeps here.",
)


@noun("db", example="penstock db status --config penstock.toml")
def db() -> None:
    """Migrate, check and back up the server's database."""


@db.verb("migrate", example="penstock db migrate --config penstock.toml", reach=CommandReach.HERE)
@_CONFIG
@_DATA_DIR
@click.pass_obj
def migrate(session: CliSession, config: Path | None, data_dir: Path | None) -> None:
    """Bring the database schema up to date."""
    settings = _settings(config, data_dir)
    from penstock import assembly

    with explained():
        outcome = assembly.migrate(settings)
    echo_err("The database is up to date.")
    _show(session, outcome)


@db.verb("status", example="penstock db status --json", reach=CommandReach.HERE)
@_CONFIG
@_DATA_DIR
@click.pass_obj
def show_status(session: CliSession, config: Path | None, data_dir: Path | None) -> None:
    """Show which schema the database has and which this release needs."""
    settings = _settings(config, data_dir)
    from penstock import assembly

    with explained():
        outcome = assembly.schema_status(settings)
    _show(session, outcome)


@db.verb(
    "backup",
    example="penstock db backup penstock-2026-04-22.db --data-dir .penstock",
    reach=CommandReach.HERE,
)
@click.argument("path", type=click.Path(path_type=Path))
@_CONFIG
@_DATA_DIR
@click.pass_obj
def backup(session: CliSession, path: Path, config: Path | None, data_dir: Path | None) -> None:
    """Write a consistent copy of the database to a new file."""
    if path.exists():
        raise click.UsageError(f"{path} exists already; a backup never overwrites.")
    settings = _settings(config, data_dir)
    from penstock import assembly

    with explained():
        outcome = assembly.backup(settings, path)
    echo_err(f"Wrote {path}.")
    _show(session, outcome)


def _settings(config: Path | None, data_dir: Path | None) -> Settings:
    if data_dir is None:
        return load_settings(config)
    if config is not None:
        raise click.UsageError("--config and --data-dir both name a database; give one of them.")
    return load_settings(None, used_overrides(data_dir, os.environ))


def _show(session: CliSession, outcome: object) -> None:
    """Show what an operation returned: a record or a mapping of named facts, or nothing."""
    facts = _named(outcome)
    if session.json:
        show_json(json.dumps(facts, default=str))
    elif facts:
        Screen().facts([(key.replace("_", " ").capitalize(), plain(value)) for key, value in facts.items()])


def _named(outcome: object) -> dict[str, Any]:
    if dataclasses.is_dataclass(outcome) and not isinstance(outcome, type):
        return dataclasses.asdict(outcome)
    return {str(key): value for key, value in outcome.items()} if isinstance(outcome, dict) else {}
