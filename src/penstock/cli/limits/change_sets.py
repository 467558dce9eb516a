"""Commands for change sets: several settings of limits that are applied, expired and rolled back as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import SecondsParam, given
from penstock.cli.limits.change_settings import asked_settings
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, plain, status
from penstock.cli.output.times import span
from penstock.cli.transport.connection import PathIdentifier
from penstock.cli.transport.session import CliSession

F = TypeVar("F", bound=Callable[..., Any])
_IN_FORCE = "It is in force from the next grant on."
_STATES = ("proposed", "scheduled", "applied", "expired", "withdrawn", "refused")
_REASON = click.option("--reason", required=True, metavar="TEXT", help="Why; shown in every change log.")
_ID = click.argument("change_set_id", metavar="ID")
_PLAN = click.option(
    "--plan", metavar="HASH", help="Only if this is still the plan, as `change plan` printed it."
)
_BREAK_GLASS = click.option(
    "--break-glass",
    metavar="WHY",
    help="Apply it without the approvals that it needs, in an emergency; admins only, recorded and shown.",
)


@noun(
    "change",
    example='penstock change new --set queue:invoices.max_active_leases=5 --reason "slow database" --apply',
)
def change() -> None:
    """Change several limits as one: propose, approve, apply, expire, roll back."""


def _proposal(function: F) -> F:
    """The options that say what a change set does."""
    for option in (
        click.option(
            "--at",
            metavar="TIME",
            help="Have the server apply it at this time, such as 2026-03-01T08:00:00Z.",
        ),
        click.option(
            "--for",
            "seconds",
            type=SecondsParam(),
            metavar="DURATION",
            help="Give every setting its old value back after this time, such as 2h, unless somebody changed it "
            "meanwhile.",
        ),
        _REASON,
        click.option(
            "--file",
            "file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="A TOML file with tables queues.NAME, groups.NAME, namespace and cluster.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="LIMIT=VALUE",
            help="A limit: queue:NAME.SETTING, group:NAME.SETTING, namespace.SETTING, cluster.SETTING; null unsets it.",
        ),
    ):
        function = option(function)
    return function


@change.verb(
    "new",
    example="penstock change new --set queue:invoices.max_active_leases=5 --set queue:invoices.weights.acme=3 \\\n"
    '    --reason "slow database" --for 2h --apply',
)
@_proposal
@click.option("--apply", "applies", is_flag=True, help="Apply it at once.")
@_BREAK_GLASS
@click.pass_obj
def new(
    session: CliSession,
    settings: tuple[str, ...],
    file: Path | None,
    reason: str,
    seconds: int | None,
    at: str | None,
    applies: bool,
    break_glass: str | None,
) -> None:
    """Propose a change of several settings, and show what they have now."""
    if applies and at is not None:
        raise click.UsageError("--apply applies it now, --at later; give one of them.")
    if break_glass is not None and not applies:
        raise click.UsageError("--break-glass is for applying at once: give --apply too.")
    body = asked_settings(file, settings, "new")
    body |= given(reason=reason, expires_in_seconds=seconds, apply_at=at)
    answer = session.connect().post("change-sets", body=body)
    change_set_id = str(answer.body["change_set_id"])
    if applies:
        echo_err(f"Proposed as {change_set_id}.")
        _act(session, change_set_id, "apply", _IN_FORCE, **given(break_glass=break_glass))
        return
    _say_next(answer.body)
    session.show(answer, _draw)


@change.verb(
    "edit",
    example='penstock change edit 01JQ --set queue:invoices.max_active_leases=7 --reason "slow database"',
)
@_ID
@_proposal
@click.pass_obj
def edit(
    session: CliSession,
    change_set_id: str,
    settings: tuple[str, ...],
    file: Path | None,
    reason: str,
    seconds: int | None,
    at: str | None,
) -> None:
    """Replace all that a change set does, by the present values. Its approvals are dropped."""
    body = asked_settings(file, settings, "edit")
    body |= given(reason=reason, expires_in_seconds=seconds, apply_at=at)
    answer = session.connect().put("change-sets", PathIdentifier(change_set_id), body=body)
    _say_next(answer.body)
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
    """Show a change set, what its settings have now, what is in its way, and what was granted under it."""
    connection = session.connect()
    body = connection.get("change-sets", PathIdentifier(change_set_id)).body
    if body.get("applied_at"):
        effect = connection.get("change-sets", PathIdentifier(change_set_id), "effect").body
        body |= {"effect": {name: effect[name] for name in ("scopes", "is_complete", "gaps")}}
    session.show_data(body, lambda screen: _draw(screen, body))


@change.verb("plan", example="penstock change plan 01JQ")
@_ID
@click.pass_obj
def plan(session: CliSession, change_set_id: str) -> None:
    """Say in words what an apply would do now, what to know before, and the hash of that plan."""
    session.show(session.connect().get("change-sets", PathIdentifier(change_set_id), "plan"), _draw_plan)


@change.verb("approve", example="penstock change approve 01JQ --plan 3f29c1d27ab05e44")
@_ID
@_PLAN
@click.pass_obj
def approve(session: CliSession, change_set_id: str, plan: str | None) -> None:
    """Approve what an apply would do now; the author cannot, and an edit needs a new approval."""
    _act(session, change_set_id, "approve", "Approved as it is now.", **given(plan=plan))


@change.verb("unapprove", example="penstock change unapprove 01JQ")
@_ID
@click.pass_obj
def unapprove(session: CliSession, change_set_id: str) -> None:
    """Take your approval back."""
    _act(session, change_set_id, "unapprove", "It has no approval of yours.")


@change.verb("apply", example="penstock change apply 01JQ --at 2026-03-01T08:00:00Z")
@_ID
@click.option("--at", metavar="TIME", help="Have the server apply it at this time; left out: now.")
@_PLAN
@_BREAK_GLASS
@click.pass_obj
def apply(
    session: CliSession, change_set_id: str, at: str | None, plan: str | None, break_glass: str | None
) -> None:
    """Apply all settings in one transaction; if one of them moved, none is applied."""
    done = _IN_FORCE if at is None else f"The server applies it at {at}."
    _act(session, change_set_id, "apply", done, **given(apply_at=at, plan=plan, break_glass=break_glass))


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
@_BREAK_GLASS
@click.pass_obj
def rollback(
    session: CliSession, change_set_id: str, reason: str, applies: bool, break_glass: str | None
) -> None:
    """Propose a change set that gives every setting its old value back."""
    if break_glass is not None and not applies:
        raise click.UsageError("--break-glass is for applying at once: give --apply too.")
    answer = session.connect().post(
        "change-sets", PathIdentifier(change_set_id), "rollback", body={"reason": reason}
    )
    if applies:
        new_id = str(answer.body["change_set_id"])
        echo_err(f"Proposed as {new_id}.")
        _act(session, new_id, "apply", _IN_FORCE, **given(break_glass=break_glass))
        return
    _say_next(answer.body)
    session.show(answer, _draw)


def _act(session: CliSession, change_set_id: str, verb: str, done: str, **body: Any) -> None:
    answer = session.connect().post("change-sets", PathIdentifier(change_set_id), verb, body=body)
    echo_err(done)
    session.show(answer, _draw)


def _say_next(body: dict[str, Any]) -> None:
    """Say what is missing before the change set is in force."""
    change_set_id, missing = str(body["change_set_id"]), (body.get("approvals") or {}).get("missing")
    if missing:
        approve = command_hint("change", "approve", change_set_id)
        people = "person" if missing == 1 else "people"
        echo_err(f"Nothing is changed yet. It needs the approval of {missing} other {people}: {approve}.")
    elif not body.get("apply_at"):
        echo_err(f"Nothing is changed yet. Apply it with {command_hint('change', 'apply', change_set_id)}.")


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    glass = body.get("break_glass")
    if glass:
        lacked = f"without {glass['missing_approvals']} of its approvals"
        text = f"BREAK-GLASS: applied by {glass['by']} {lacked}: {glass['reason']}"
        screen.facts([("!", ScreenCell(text, "bold red"))])
    screen.fields(
        body,
        "change set=change_set_id:name, state:status, reason=change_reason, author, created=created_at:when, "
        "edited=edited_at:when, applies=apply_at:when, scheduled by, refused because, applied=applied_at:when, "
        "applied by, approved by, expires=expires_at:when, ended=ended_at:when, ended by, undoes, plan",
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
    _draw_approvals(screen, body.get("approvals") or {})
    _draw_effect(screen, body.get("effect") or {})


def _draw_effect(screen: Screen, effect: dict[str, Any]) -> None:
    rows = [
        {"scope": each["scope"], "when": when, **each[part]}
        for each in effect.get("scopes") or []
        for part, when in (
            ("before", "hour before"),
            ("under", "in force" if each["is_current"] else "until its next change"),
        )
    ]
    screen.rows(
        rows,
        "scope:name, settings=when, version, grants, waited p50=wait_p50_ms, p95=wait_p95_ms, longest=wait_max_ms",
        "Granted under it",
        waited_p50=lambda row: _wait(row["wait_p50_ms"]),
        p95=lambda row: _wait(row["wait_p95_ms"]),
        longest=lambda row: _wait(row["wait_max_ms"]),
    )
    for each in effect.get("gaps") or []:
        echo_err(each)


def _wait(ms: int | None) -> ScreenCell:
    return plain(None if ms is None else span(ms / 1_000))


def _draw_approvals(screen: Screen, approvals: dict[str, Any]) -> None:
    if not approvals.get("wanted") and not approvals.get("given"):
        return
    screen.heading(f"Approvals: {approvals['wanted']} wanted, {approvals['missing']} missing")
    screen.rows(
        approvals["given"],
        "by:name, when=at:when, counts=state, until=expires_at:when",
        counts=lambda row: _counts(row),
    )


def _counts(row: dict[str, Any]) -> ScreenCell:
    if row["state"] == "counts":
        return ScreenCell("yes", "green")
    since = f": {', '.join(row['changed_since'])} changed since" if row["changed_since"] else ""
    return ScreenCell(f"no, {row['state']}{since}", "yellow")


def _draw_plan(screen: Screen, body: dict[str, Any]) -> None:
    for line in body["summary"]:
        screen.facts([("•", plain(line))])
    _draw(screen, body)
    screen.rows(
        body["checks"],
        "check, message",
        "Before it is applied",
        check=lambda row: ScreenCell("stops", "red") if row["stops"] else ScreenCell("note", "yellow"),
    )


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body["change_sets"],
        "change set=change_set_id:name, state:status, settings, author, created=created_at:when, reason=change_reason",
        empty="No change set yet. Propose one with penstock change new.",
        state=_listed_state,
        settings=lambda row: plain(len(row["items"])),
    )


def _listed_state(row: dict[str, Any]) -> ScreenCell:
    if row.get("break_glass"):
        return ScreenCell(f"{row['state']}, BREAK-GLASS", "bold red")
    return status(row["state"])


def _value(value: object) -> ScreenCell:
    return ScreenCell("unset", "dim") if value is None else plain(value)
