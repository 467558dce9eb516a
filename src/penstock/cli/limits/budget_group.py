"""Commands for budget groups: queues that share limits because they call one downstream."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.limits.options import (
    PARTS,
    LimitedScope,
    for_option,
    is_limited,
    limit_option,
    limit_value,
    part_option,
    reason_option,
    scope_flags,
    used_of,
)
from penstock.cli.output.screen import Screen
from penstock.cli.transport.session import CliSession

_SHARED = click.option(
    "--global",
    "shared",
    is_flag=True,
    help="The group that all namespaces share (changing needs the admin role).",
)


def _scope(group: str, shared: bool) -> LimitedScope:
    query = {"scope": "global" if shared else "namespace"}
    path = ("budget-groups", group)
    return LimitedScope("Budget group", group, f"the budget group {group}", path, path, query)


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
    _scope(group, shared).show(session)


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
    _scope(group, shared).change(session, part, flags)


@budget_group.verb("history", example="penstock budget-group history stripe")
@click.argument("group")
@_SHARED
@part_option
@limit_option
@click.pass_obj
def group_history(session: CliSession, group: str, shared: bool, part: str, limit: int) -> None:
    """Show who changed which limit of a budget group, newest first."""
    _scope(group, shared).history(session, part, limit)


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
    _scope(group, shared).pause(session, seconds, reason, "budget-group")


@budget_group.verb("resume", example="penstock budget-group resume stripe")
@click.argument("group")
@_SHARED
@reason_option
@click.pass_obj
def resume_group(session: CliSession, group: str, shared: bool, reason: str | None) -> None:
    """Resume the queues of a paused budget group."""
    _scope(group, shared).resume(session, reason)


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    """Draw each group as a whole, and its kinds of tasks where they have limits of their own."""
    rows = [
        {**group[part], **group, "part": part.removesuffix("_tasks")}
        for group in body.get("budget_groups") or []
        for part in PARTS.values()
        if isinstance(group.get(part), dict) and (part == "all" or is_limited(group[part]))
    ]
    screen.rows(
        rows,
        "budget group:name, scope, tasks=part, leases, dispatches a minute, cost a minute, "
        "paused=limits.paused.value:flag, task queues",
        empty="No budget groups yet. Make one with `penstock budget-group set NAME`.",
        leases=lambda row: used_of(row, "active_leases", limit_value(row, "max_active_leases")),
        dispatches_a_minute=lambda row: used_of(
            row, "dispatches_this_minute", limit_value(row, "max_dispatches_per_minute")
        ),
        cost_a_minute=lambda row: used_of(row, "cost_this_minute", limit_value(row, "max_cost_per_minute")),
        task_queues=lambda row: [str(each.get("task_queue")) for each in row.get("task_queues") or []],
    )
