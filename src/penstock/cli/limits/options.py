"""Flags for limits, and tables that show each limit with its layers, its usage and its holders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from penstock.cli.inputs import SecondsParam, WholeLimitParam, given
from penstock.cli.limits.queue_config import draw_history
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, name, nothing_yet, plain
from penstock.cli.output.times import span
from penstock.cli.transport.session import CliSession

F = TypeVar("F", bound=Callable[..., Any])
PARTS = {"all": "all", "workflow": "workflow_tasks", "activity": "activity_tasks"}
_TITLES = {"all": "All tasks", "workflow_tasks": "Workflow tasks", "activity_tasks": "Activity tasks"}
_PER_MINUTE_MAX = 1_000_000_000
_USED = {
    "max_active_leases": ("active_leases", "remaining_active_leases"),
    "max_active_leases_per_queue": ("active_leases", "remaining_active_leases"),
    "max_dispatches_per_minute": ("dispatches_this_minute", "remaining_dispatches"),
    "max_cost_per_minute": ("cost_this_minute", "remaining_cost"),
}
_FLAGS = {
    "max-active-leases": click.option(
        "--max-active-leases", type=WholeLimitParam(), help="Most leases at a time; 0 closes."
    ),
    "max-dispatches-per-minute": click.option(
        "--max-dispatches-per-minute",
        type=WholeLimitParam(most=_PER_MINUTE_MAX),
        help="Most dispatches per minute.",
    ),
    "max-cost-per-minute": click.option(
        "--max-cost-per-minute",
        type=WholeLimitParam(most=_PER_MINUTE_MAX),
        help="Most cost per minute, in the units of the tasks' estimates.",
    ),
    "dispatch-window": click.option(
        "--dispatch-window",
        type=click.Choice(["minute", "sliding", "default"]),
        help="Calendar minutes, or any sixty seconds.",
    ),
    "dispatch-budget-group": click.option(
        "--dispatch-budget-group", metavar="GROUP", help="The budget group that the queue belongs to."
    ),
}
_SCOPE_FLAGS = ("max-active-leases", "max-dispatches-per-minute", "max-cost-per-minute", "dispatch-window")
_QUEUE_FLAGS = (
    *("max-active-leases", "max-dispatches-per-minute"),
    *("dispatch-window", "dispatch-budget-group"),
)

for_option = click.option(
    "--for",
    "seconds",
    type=SecondsParam(),
    metavar="DURATION",
    help="Expire after this time, such as 30m or 2h.",
)
reason_option = click.option("--reason", metavar="TEXT", help="Why.")
part_option = click.option(
    "--type",
    "part",
    type=click.Choice(list(PARTS)),
    default="all",
    show_default=True,
    help="Which tasks: both kinds together, or one of them.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=50,
    show_default=True,
    help="Most rows to show.",
)


def scope_flags(function: F) -> F:
    """The flags that change the limits of a namespace, a budget group or the cluster."""
    return _flags(_SCOPE_FLAGS)(function)


def queue_flags(function: F) -> F:
    """The flags that change the limits of a queue."""
    return _flags(_QUEUE_FLAGS)(function)


def _flags(names: Sequence[str]) -> Callable[[F], F]:
    unset = click.option(
        "--unset",
        type=click.Choice(names),
        multiple=True,
        metavar="NAME",
        help="Return to the declared value; repeatable.",
    )
    version = click.option(
        "--if-version", type=click.IntRange(0), metavar="N", help="Only if the limits are at this version."
    )

    def add(function: F) -> F:
        for option in (
            version,
            reason_option,
            for_option,
            unset,
            *(_FLAGS[each] for each in reversed(names)),
        ):
            function = option(function)
        return function

    return add


def change(
    *, unset: Sequence[str], seconds: int | None, reason: str | None, if_version: int | None, **limits: Any
) -> dict[str, Any]:
    """The body of a change; one that changes nothing is a usage error."""
    for each in unset:
        if limits.get(each.replace("-", "_")) is not None:
            raise click.UsageError(f"--{each} and --unset {each} cannot both be meant.")
    asked = given(**limits) | {each.replace("-", "_"): "default" for each in unset}
    if not asked:
        raise click.UsageError("Name what to change, such as --max-active-leases 5 or --unset NAME.")
    return asked | given(expires_in_seconds=seconds, reason=reason, if_version=if_version)


def show_scope(session: CliSession, answer: Any, title: str, label: str) -> None:
    """Show the limits of something that is limited as a whole and by kind."""
    session.show(answer, lambda screen, body: draw_parts(screen, body, title, label))


def draw_parts(screen: Screen, body: Mapping[str, Any], title: str, label: str) -> None:
    screen.facts([(title, name(label)), *_facts(body)])
    limited = [part for part in _TITLES if _says_something(body.get(part))]
    for part in limited:
        draw_limits(screen, body[part], _TITLES[part])
    if not limited:
        nothing_yet("Nothing is limited here, neither by the configuration nor by anybody.")


def _facts(body: Mapping[str, Any]) -> list[tuple[str, ScreenCell]]:
    queues = [
        f"{each.get('task_queue')} ({each.get('task_queue_type')})" for each in body.get("task_queues") or []
    ]
    shared = "global" if body.get("scope") == "global" else None
    return [("Shared by", plain("all namespaces" if shared else None)), ("Task queues", plain(queues))]


def _says_something(view: Any) -> bool:
    if not isinstance(view, dict):
        return False
    limits = view.get("limits") or {}
    values = [each.get("value") for limit, each in limits.items() if limit != "dispatch_window"]
    return bool(view.get("version") or any(value not in (None, False) for value in values))


def draw_limits(screen: Screen, view: Mapping[str, Any], title: str) -> None:
    """Draw each limit with its layers, then its holders."""
    limits, counts = view.get("limits") or {}, view.get("counts") or {}
    screen.heading(f"{title} (version {view.get('version')})")
    screen.table(
        ["limit", "effective", "declared", "set", "by", "until", "used now", "left", "reason"],
        [_limit_row(screen, limit, each, counts) for limit, each in limits.items()],
    )
    cooling = view.get("cooling")
    if isinstance(cooling, dict):
        screen.facts(
            [
                ("Cooling down until", screen.when_exactly(cooling.get("until"))),
                ("Open again", screen.when_exactly(cooling.get("opens_fully_at"))),
            ]
        )
    _draw_holders(screen, view.get("holders") or [])


def _limit_row(
    screen: Screen, limit: str, each: Mapping[str, Any], counts: Mapping[str, Any]
) -> list[ScreenCell]:
    live = each.get("live") or {}
    used, left = _USED.get(limit, ("", ""))
    return [
        name(limit),
        _value(limit, each.get("value")),
        _value(limit, each.get("declared")),
        _value(limit, live.get("value")),
        plain(live.get("updated_by")),
        screen.when(live.get("ends_at")),
        plain(counts.get(used)),
        plain(counts.get(left)),
        plain(live.get("reason")),
    ]


def _value(limit: str, value: object) -> ScreenCell:
    if limit == "paused":
        return ScreenCell("yes", "yellow") if value else plain(None)
    if value == 0:
        return ScreenCell("closed", "red")
    return plain(value)


def _draw_holders(screen: Screen, holders: Sequence[Mapping[str, Any]]) -> None:
    if not holders:
        return
    screen.heading("Held by")
    screen.table(
        ["task", "kind", "workflow", "task queue", "worker", "held for", "expires"],
        [
            [
                name(row.get("task_id")),
                plain(row.get("task_type")),
                plain(row.get("workflow_id")),
                plain(row.get("task_queue")),
                plain(row.get("worker")),
                ScreenCell(span(float(row.get("age_seconds") or 0))),
                screen.when(row.get("expires_at")),
            ]
            for row in holders
        ],
    )


def draw_line(screen: Screen, body: Mapping[str, Any]) -> None:
    """Draw the limits of a queue's tasks of one kind, and of the scopes that it belongs to."""
    screen.facts(
        [
            ("Task queue", name(body.get("task_queue"))),
            ("Tasks", plain(body.get("task_queue_type"))),
            ("Namespace", plain(body.get("namespace"))),
        ]
    )
    draw_limits(screen, body, "Limits")
    scopes = body.get("scopes") or []
    if scopes:
        screen.heading("Shared limits that apply")
        screen.table(
            ["scope", "leases", "dispatches a minute", "cost a minute", "paused", "cooling until"],
            [_scope_row(screen, each) for each in scopes],
        )


def _scope_row(screen: Screen, scope: Mapping[str, Any]) -> list[ScreenCell]:
    counts = scope.get("counts") or {}
    return [
        name(scope.get("scope")),
        used_of(counts.get("active_leases"), scope.get("max_active_leases")),
        used_of(counts.get("dispatches_this_minute"), scope.get("max_dispatches_per_minute")),
        used_of(counts.get("cost_this_minute"), scope.get("max_cost_per_minute")),
        _value("paused", scope.get("paused")),
        screen.when((scope.get("cooling") or {}).get("until")),
    ]


def used_of(used: object, most: object) -> ScreenCell:
    """How much of a limit is used."""
    if most is None:
        return plain(None)
    if most == 0:
        return ScreenCell("closed", "red")
    full = isinstance(used, int) and isinstance(most, int) and used >= most
    return ScreenCell(f"{used or 0} of {most}", "yellow" if full else "")


def show_history(session: CliSession, answer: Any) -> None:
    session.show(answer, draw_history)


def report_pause(paused: bool, what: str, seconds: int | None, *words: str) -> None:
    """Print the effect of a pause or resume, and how to undo it."""
    if not paused:
        echo_err(f"Resumed {what}.")
        return
    if seconds is not None:
        echo_err(f"Paused {what} for {span(seconds)}. Running tasks continue.")
        return
    echo_err(f"Paused {what} until {command_hint(*words)}. Running tasks continue.")
