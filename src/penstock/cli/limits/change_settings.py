"""The settings of a change set as people give them: a TOML file, and options such as `queue:invoices.paused=true`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, time
from math import isfinite
from pathlib import Path
from typing import Any

import click

from penstock.cli.output.hints import command_hint
from penstock.errors import InvalidInput

_FILE_BYTES_MAX = 1_000_000
_TABLES = ("queues", "groups", "namespace", "cluster")


def asked_settings(file: Path | None, settings: Sequence[str], verb: str) -> dict[str, Any]:
    """The settings as the API takes them; a mistake is a usage error.

    Args:
        file: A TOML file with tables, if there is one.
        settings: Settings such as `queue:invoices.max_active_leases=5`, in addition.
        verb: The command, for the hint at its help.
    """
    body = _from_file(file) if file is not None else {}
    for text in settings:
        _put(body, text)
    if not body:
        raise click.UsageError(
            "Name what to change, such as --set queue:invoices.max_active_leases=5; see "
            f"{command_hint('change', verb, '--help')}."
        )
    _check_values(body)
    if "namespace" in body:
        body["namespace_limits"] = body.pop("namespace")
    return body


def _from_file(file: Path) -> dict[str, Any]:
    from penstock.schema.problems import InvalidValue
    from penstock.schema.toml_file import read_toml_file

    try:
        document = read_toml_file(file, _FILE_BYTES_MAX).document
    except InvalidValue as problem:
        raise click.UsageError(f"{file} {problem.message}") from None
    unknown = [name for name in document if name not in _TABLES]
    if unknown:
        raise click.UsageError(f"{file} has a table {unknown[0]!r}; a change set has {', '.join(_TABLES)}.")
    return document


def _put(body: dict[str, Any], text: str) -> None:
    """Add a setting such as `queue:invoices.weights.acme=3`."""
    from penstock.simulator.changes import parse_setting

    try:
        setting = parse_setting(text)
    except InvalidInput as refused:
        raise click.UsageError(refused.message) from None
    target = setting.target
    table = {"queue": "queues", "group": "groups"}.get(target.scope)
    if table is not None and not target.name:
        raise click.UsageError(f"{text!r} names no {target.scope}; write {target.scope}:NAME.SETTING=VALUE.")
    place = body
    for name in (target.scope,) if table is None else (table, target.name):
        place = _table(place, name, text)
    for name in setting.path[:-1]:
        place = _table(place, name, text)
    if setting.path[-1] in place:
        raise click.UsageError(f"{text.partition('=')[0]} is set twice.")
    place[setting.path[-1]] = setting.value


def _table(place: dict[str, Any], name: str, text: str) -> dict[str, Any]:
    found = place.setdefault(name, {})
    if not isinstance(found, dict):
        raise click.UsageError(f"{text} cannot be added, because {name} is no table in the file.")
    return found


def _check_values(value: object, place: str = "") -> None:
    """Refuse what TOML has and JSON has not."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_values(inner, f"{place}.{name}" if place else name)
    elif isinstance(value, date | time) or (isinstance(value, float) and not isfinite(value)):
        raise click.UsageError(f"{place} is {value}; write a number, a text in quotes, true or false.")
