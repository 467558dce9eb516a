"""Commands for the server's configuration: check it before it is used, show what is in force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.configuration import load_settings
from penstock.cli.exits import say
from penstock.cli.grammar import Reach, noun
from penstock.cli.screen import Cell, Screen, name, nothing_yet, plain
from penstock.cli.session import Session, show_json

if TYPE_CHECKING:
    from penstock.settings import LineLimit, Settings

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


@config.verb("show", example="penstock config show --queue production:payments", reach=Reach.HERE)
@_CONFIG
@click.option(
    "--queue",
    metavar="[NAMESPACE:]NAME",
    help="Show only the limits that are declared for this task queue, and where.",
)
@click.pass_obj
def show(session: Session, config: Path | None, queue: str | None) -> None:
    """Show every setting in force and where it comes from; secrets are masked."""
    from penstock.settings import describe

    settings = load_settings(config)
    if queue is not None:
        _show_queue(session, settings, queue)
        return
    rows = describe(settings)
    if session.json:
        show_json(json.dumps([{"name": row.name, "value": row.value, "source": row.source} for row in rows]))
        return
    Screen().table(
        ["setting", "value", "from"], [[name(row.name), plain(row.value), plain(row.source)] for row in rows]
    )


def _show_queue(session: Session, settings: Settings, given: str) -> None:
    from penstock.settings import limits_of_queue

    namespace, colon, queue = given.partition(":")
    if not colon:
        namespace, queue = settings.default_namespace, given
    limits = limits_of_queue(settings, namespace.lower(), queue)
    if session.json:
        show_json(json.dumps([_as_json(limit) for limit in limits]))
        return
    if not limits:
        nothing_yet("No limit is declared for this task queue.")
        return
    Screen().table(["tasks", "scope", "limit", "value", "from"], [_drawn(limit) for limit in limits])
    say("What operators set while the server runs beats this.")


def _as_json(limit: LineLimit) -> dict[str, Any]:
    said = limit.said
    return {
        "task_queue_type": limit.kind,
        "scope": limit.scope,
        "limit": limit.limit,
        "value": limit.value,
        "window": limit.window,
        "name": said and said.path,
        "source": said and said.source,
    }


def _drawn(limit: LineLimit) -> list[Cell]:
    value = f"{limit.value} (closed)" if limit.value == 0 else str(limit.value)
    if limit.window == "sliding":
        value = f"{value} (sliding)"
    source = f"{limit.said.path} ({limit.said.source})" if limit.said else ""
    return [plain(limit.kind), name(limit.scope), plain(limit.limit), plain(value), plain(source)]
