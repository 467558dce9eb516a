"""Commands for change sets: several settings of limits that are applied, expired and rolled back as one."""

from __future__ import annotations

from datetime import date, time
from math import isfinite
from pathlib import Path
from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import SecondsParam, given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, plain
from penstock.cli.transport.connection import PathIdentifier
from penstock.cli.transport.session import CliSession
from penstock.errors import InvalidInput

_FILE_BYTES_MAX = 1_000_000
_TABLES = ("queues", "groups", "namespace", "cluster")
_STATES = ("proposed", "scheduled", "applied", "expired", "withdrawn", "refused")
_REASON = click.option("--reason", required=True, metavar="TEXT", help="Why; shown in every change log.")
_ID = click.argument("change_set_id", metavar="ID")


@noun(
    "change",
    example='penstock change new --set queue:invoices.max_active_leases=5 --reason "slow database" --apply',
)
def change() -> None:
    """Change several limits as one: propose, apply, expire, roll back."""


@change.verb(
    "new",
    example="penstock change new --set queue:invoices.max_active_leases=5 --set queue:invoices.weights.acme=3 \\\n"
    '    --reason "slow database" --for 2h --apply',
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="LIMIT=VALUE",
    help="A limit: queue:NAME.SETTING, group:NAME.SETTING, namespace.SETTING, cluster.SETTING; null unsets it.",
)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A TOML file with tables queues.NAME, groups.NAME, namespace and cluster.",
)
@_REASON
@click.option(
    "--for",
    "seconds",
    type=SecondsParam(),
    metavar="DURATION",
    help="Give every setting its old value back after this time, such as 2h, unless somebody changed it meanwhile.",
)
@click.option(
    "--at", metavar="TIME", help="Have the server apply it at this time, such as 2026-03-01T08:00:00Z."
)
@click.option("--apply", "applies", is_flag=True, help="Apply it at once.")
@click.pass_obj
def new(
    session: CliSession,
    settings: tuple[str, ...],
    file: Path | None,
    reason: str,
    seconds: int | None,
    at: str | None,
    applies: bool,
) -> None:
    """Propose a change of several settings, and show what they have now."""
    if applies and at is not None:
        raise click.UsageError("--apply applies it now, --at later; give one of them.")
    body = _from_file(file) if file is not None else {}
    for text in settings:
        _put(body, text)
    if not body:
        raise click.UsageError(
            "Name what to change, such as --set queue:invoices.max_active_leases=5; see "
            f"{command_hint('change', 'new', '--help')}."
        )
    _check_values(body)
    if "namespace" in body:
        body["namespace_limits"] = body.pop("namespace")
    body |= given(reason=reason, expires_in_seconds=seconds, apply_at=at)
    connection = session.connect()
    answer = connection.post("change-sets", body=body)
    change_set_id = str(answer.body["change_set_id"])
    if applies:
        answer = connection.post("change-sets", PathIdentifier(change_set_id), "apply", body={})
        echo_err(f"In force from the next grant on; settings changed: {len(answer.body['items'])}.")
    elif at is None:
        echo_err(f"Nothing is changed yet. Apply it with {command_hint('change', 'apply', change_set_id)}.")
    session.show(answer, _draw)


@change.verb("list", example="penstock change list --state applied")
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    metavar="N",
    default=20,
    show_default=True,
    help="Most rows to show.",
)
@click.option("--page-token", metavar="TOKEN", help="Continue a list where its last page ended.")
@click.pass_obj
def list_change_sets(session: CliSession, state: str | None, limit: int, page_token: str | None) -> None:
    """List change sets, newest first."""
    query = given(state=state, page_size=limit, next_page_token=page_token)
    session.show(session.connect().get("change-sets", query=query), _draw_list)


@change.verb("show", example="penstock change show 01JQ")
@_ID
@click.pass_obj
def show(session: CliSession, change_set_id: str) -> None:
    """Show a change set, what its settings have now, and what is in its way."""
    session.show(session.connect().get("change-sets", PathIdentifier(change_set_id)), _draw)


@change.verb("apply", example="penstock change apply 01JQ")
@_ID
@click.pass_obj
def apply(session: CliSession, change_set_id: str) -> None:
    """Apply all settings in one transaction; if one of them moved, none is applied."""
    _act(session, change_set_id, "apply", "It is in force from the next grant on.")


@change.verb("withdraw", example="penstock change withdraw 01JQ")
@_ID
@click.pass_obj
def withdraw(session: CliSession, change_set_id: str) -> None:
    """Give up a change set that is not applied."""
    _act(session, change_set_id, "withdraw", "It cannot be applied any more.")


@change.verb("rollback", example='penstock change rollback 01JQ --reason "made it worse"')
@_ID
@_REASON
@click.option("--apply", "applies", is_flag=True, help="Apply the rollback at once.")
@click.pass_obj
def rollback(session: CliSession, change_set_id: str, reason: str, applies: bool) -> None:
    """Propose a change set that gives every setting its old value back."""
    connection = session.connect()
    answer = connection.post(
        "change-sets", PathIdentifier(change_set_id), "rollback", body={"reason": reason}
    )
    new_id = str(answer.body["change_set_id"])
    if applies:
        answer = connection.post("change-sets", PathIdentifier(new_id), "apply", body={})
    else:
        echo_err(f"Nothing is changed yet. Apply it with {command_hint('change', 'apply', new_id)}.")
    session.show(answer, _draw)


def _act(session: CliSession, change_set_id: str, verb: str, done: str) -> None:
    answer = session.connect().post("change-sets", PathIdentifier(change_set_id), verb, body={})
    echo_err(done)
    session.show(answer, _draw)


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


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "change set=change_set_id:name, state:status, reason=change_reason, author, created=created_at:when, "
        "applies=apply_at:when, applied=applied_at:when, applied by, expires=expires_at:when, ended=ended_at:when, "
        "ended by, undoes",
    )
    screen.rows(
        body["items"],
        "setting=path:name, before, after, now",
        "Settings",
        before=lambda row: _value(row["before"]),
        after=lambda row: _value(row["after"]),
        now=lambda row: _value(row.get("now")),
    )
    screen.rows(
        body.get("moved") or [],
        "setting=path:name, now, by, when=at:when",
        "Not as this change set expects",
        now=lambda row: _value(row["now"]),
    )


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body["change_sets"],
        "change set=change_set_id:name, state:status, settings, author, created=created_at:when, reason=change_reason",
        empty="No change set yet. Propose one with penstock change new.",
        settings=lambda row: plain(len(row["items"])),
    )


def _value(value: object) -> ScreenCell:
    return ScreenCell("unset", "dim") if value is None else plain(value)
