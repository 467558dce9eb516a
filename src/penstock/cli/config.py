"""Commands for the server's configuration: check it before it is used, show what is in force."""

from __future__ import annotations

import json
from pathlib import Path

import click

from penstock.cli.configuration import load_settings
from penstock.cli.exits import say
from penstock.cli.grammar import Reach, noun
from penstock.cli.screen import Screen, name, plain
from penstock.cli.session import Session, show_json

_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with the server's settings."
)


@noun("config", example="penstock config check --config penstock.toml")
def config() -> None:
    """Check and show the configuration of a server."""


@config.verb("check", example="penstock config check --config penstock.toml", reach=Reach.HERE)
@_CONFIG
@click.pass_obj
def check(session: Session, config: Path | None) -> None:
    """Check the configuration and name every problem; exit code 78 if there is one."""
    settings = load_settings(config)
    if session.json:
        show_json(json.dumps({"valid": True, "warnings": list(settings.warnings)}))
    say("The configuration is valid.")


@config.verb("show", example="penstock config show --json", reach=Reach.HERE)
@_CONFIG
@click.pass_obj
def show(session: Session, config: Path | None) -> None:
    """Show every setting in force and where it comes from; secrets are masked."""
    from penstock import settings

    rows = settings.describe(load_settings(config))
    if session.json:
        show_json(json.dumps([{"name": row.name, "value": row.value, "source": row.source} for row in rows]))
        return
    Screen().table(
        ["setting", "value", "from"], [[name(row.name), plain(row.value), plain(row.source)] for row in rows]
    )
