"""Commands for budget groups: queues that share limits because they call one downstream."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import given
from penstock.cli.limits.options import (
    PARTS,
    change,
    for_option,
    limit_option,
    part_option,
    reason_option,
    report_pause,
    scope_flags,
    show_history,
    show_scope,
    used_of,
)
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell, name, nothing_yet, plain
from penstock.cli.transport.session import CliSession

_SHARED = click.option(
    "--global",
    "shared",
    is_flag=True,
    help="The group that all namespaces share (changing needs the admin role).",
)


@noun("budget-group", example="penstock budget-group get stripe")
def budget_group() -> None:
    """Show and change limits that several queues share."""


@budget_group.verb("list", example="penstock budget-group list")
@click.pass_obj
def list_groups(session: CliSession) -> None:
    """List the budget groups of the namespace, and those that all namespaces share."""
    session.show(session.connect().get("budget-groups"), _draw_list)


@budget_group.verb("get", example="penstock budget-group get stripe")
@click.argument("group")
@_SHARED
@click.pass_obj
def get_group(session: CliSession, group: str, shared: bool) -> None:
    """Show the limits of a budget group, their usage and holders."""
    answer = session.connect().get("budget-groups", group, query={"scope": _scope(shared)})
    show_scope(session, answer, "Budget group", group)


@budget_group.verb(
    "set", example='penstock budget-group set stripe --max-dispatches-per-minute 600 --reason "their limit"'
)
@click.argument("group")
@_SHARED
@part_option
@scope_flags
@click.pass_obj
def set_group(session: CliSession, /, group: str, shared: bool, part: str, **flags: Any) -> None:
    """Change the limits of a budget group, permanently or with --for. They apply from the next grant."""
    body = change(**flags) | {"kind": PARTS[part], "scope": _scope(shared)}
    answer = session.connect().patch("budget-groups", group, body=body)
    echo_err(f"Changed the limits of the budget group {group}.")
    show_scope(session, answer, "Budget group", group)


@budget_group.verb("history", example="penstock budget-group history stripe")
@click.argument("group")
@_SHARED
@part_option
@limit_option
@click.pass_obj
def group_history(session: CliSession, group: str, shared: bool, part: str, limit: int) -> None:
    """Show who changed which limit of a budget group, newest first."""
    query = {"scope": _scope(shared), "kind": PARTS[part], "limit": limit}
    show_history(session, session.connect().get("budget-groups", group, "history", query=query))


@budget_group.verb("pause", example='penstock budget-group pause stripe --for 30m --reason "they are down"')
@click.argument("group")
@_SHARED
@for_option
@reason_option
@click.pass_obj
def pause_group(
    session: CliSession, group: str, shared: bool, seconds: int | None, reason: str | None
) -> None:
    """Pause dispatch of the queues of a budget group."""
    body = given(expires_in_seconds=seconds, reason=reason) | {"scope": _scope(shared)}
    answer = session.connect().post("budget-groups", group, "pause", body=body)
    report_pause(True, f"the budget group {group}", seconds, "budget-group", "resume", group)
    show_scope(session, answer, "Budget group", group)


@budget_group.verb("resume", example="penstock budget-group resume stripe")
@click.argument("group")
@_SHARED
@reason_option
@click.pass_obj
def resume_group(session: CliSession, group: str, shared: bool, reason: str | None) -> None:
    """Resume the queues of a paused budget group."""
    body = given(reason=reason) | {"scope": _scope(shared)}
    answer = session.connect().post("budget-groups", group, "resume", body=body)
    report_pause(False, f"the budget group {group}", None)
    show_scope(session, answer, "Budget group", group)


def _scope(shared: bool) -> str:
    return "global" if shared else "namespace"


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    rows = [
        (group, part, group[part])
        for group in body.get("budget_groups") or []
        for part in PARTS.values()
        if _is_shown(group, part)
    ]
    if not rows:
        nothing_yet("No budget groups yet. Make one with `penstock budget-group set NAME`.")
        return
    screen.table(
        [
            "budget group",
            "scope",
            "tasks",
            "leases",
            "dispatches a minute",
            "cost a minute",
            "paused",
            "task queues",
        ],
        [_list_row(group, part, view) for group, part, view in rows],
    )


def _is_shown(group: dict[str, Any], part: str) -> bool:
    """Both kinds together always; one of them where it has limits of its own."""
    view = group.get(part)
    if not isinstance(view, dict):
        return False
    return part == "all" or any(
        _value(view, limit) not in (None, False)
        for limit in view.get("limits") or {}
        if limit != "dispatch_window"
    )


def _list_row(group: dict[str, Any], part: str, view: dict[str, Any]) -> list[ScreenCell]:
    counts = view.get("counts") or {}
    return [
        name(group.get("budget_group")),
        plain(group.get("scope")),
        plain(part.removesuffix("_tasks")),
        used_of(counts.get("active_leases"), _value(view, "max_active_leases")),
        used_of(counts.get("dispatches_this_minute"), _value(view, "max_dispatches_per_minute")),
        used_of(counts.get("cost_this_minute"), _value(view, "max_cost_per_minute")),
        ScreenCell("yes", "yellow") if _value(view, "paused") else plain(None),
        plain([str(each.get("task_queue")) for each in group.get("task_queues") or []]),
    ]


def _value(view: dict[str, Any], limit: str) -> Any:
    return ((view.get("limits") or {}).get(limit) or {}).get("value")
