"""Flags for limits, and tables that show each limit with its layers, its usage and its holders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from penstock.cli.inputs import SecondsParam, WholeLimitParam, given
from penstock.cli.limits.queue_config import draw_history
from penstock.cli.output.columns import lookup
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.cli.output.times import span
from penstock.cli.transport.connection import ServerResponse
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
    "change-approvals": click.option(
        "--change-approvals",
        type=WholeLimitParam(most=2),
        help="How many others approve a change of these limits; lowering it needs their approval.",
    ),
    "dispatch-budget-group": click.option(
        "--dispatch-budget-group", metavar="GROUP", help="The budget group that the queue belongs to."
    ),
}
_OWN_FLAGS = ("change-approvals",)
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
    """The flags that change the limits of a budget group."""
    return _flags(_SCOPE_FLAGS)(function)


def own_flags(function: F) -> F:
    """The flags that change the limits of a namespace or of the cluster."""
    return _flags((*_SCOPE_FLAGS, *_OWN_FLAGS))(function)


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


@dataclass(frozen=True, slots=True)
class LimitedScope:
    """A scope with limits for all tasks and for each kind: the cluster, a namespace or a budget group."""

    title: str
    label: str
    what: str
    path: tuple[str, ...]
    pause_path: tuple[str, ...] = ()
    query: Mapping[str, Any] = field(default_factory=dict)

    def show(self, session: CliSession) -> None:
        """Show its limits."""
        self._draw(session, session.connect().get(*self.path, query=self.query))

    def change(self, session: CliSession, part: str, flags: dict[str, Any]) -> None:
        """Change its limits as the flags say, and show them."""
        body = change(**flags) | {"kind": PARTS[part], **self.query}
        answer = session.connect().patch(*self.path, body=body)
        echo_err(f"Changed the limits of {self.what}.")
        self._draw(session, answer)

    def history(self, session: CliSession, part: str, limit: int) -> None:
        """Show who changed its limits."""
        show_history(session, *self.path, "history", kind=PARTS[part], limit=limit, **self.query)

    def pause(self, session: CliSession, seconds: int | None, reason: str | None, noun: str) -> None:
        """Pause dispatch; `noun` is the command that resumes it."""
        body = {**given(expires_in_seconds=seconds, reason=reason), **self.query}
        answer = session.connect().post(*self.pause_path, "pause", body=body)
        report_pause(True, self.what, seconds, noun, "resume", self.label)
        self._draw(session, answer)

    def resume(self, session: CliSession, reason: str | None) -> None:
        """Resume dispatch."""
        answer = session.connect().post(
            *self.pause_path, "resume", body={**given(reason=reason), **self.query}
        )
        report_pause(False, self.what, None)
        self._draw(session, answer)

    def _draw(self, session: CliSession, answer: ServerResponse) -> None:
        session.show(answer, lambda screen, body: draw_parts(screen, body, self.title, self.label))


def show_history(session: CliSession, *path: str, **query: object) -> None:
    """Show the changes of limits, newest first."""
    session.show(session.connect().get(*path, query=query), draw_history)


def draw_parts(screen: Screen, body: Mapping[str, Any], title: str, label: str) -> None:
    queues = [
        f"{each.get('task_queue')} ({each.get('task_queue_type')})" for each in body.get("task_queues") or []
    ]
    shared = "all namespaces" if body.get("scope") == "global" else None
    screen.facts([(title, name(label)), ("Shared by", plain(shared)), ("Task queues", plain(queues))])
    limited = [part for part in _TITLES if is_limited(body.get(part), also_if_changed=True)]
    for part in limited:
        draw_limits(screen, body[part], _TITLES[part])
    if not limited:
        echo_err("Nothing is limited here, neither by the configuration nor by anybody.")


def is_limited(view: Any, *, also_if_changed: bool = False) -> bool:
    """Whether any limit is set; optionally also whether one ever was."""
    if not isinstance(view, dict):
        return False
    values = [limit_value(view, limit) for limit in view.get("limits") or {} if limit != "dispatch_window"]
    return bool(also_if_changed and view.get("version")) or any(
        value not in (None, False) for value in values
    )


def limit_value(view: Mapping[str, Any], limit: str) -> Any:
    """The effective value of a limit."""
    return lookup(view, f"limits.{limit}.value")


def draw_limits(screen: Screen, view: Mapping[str, Any], title: str) -> None:
    """Draw each limit with its layers, then its holders."""
    counts = view.get("counts") or {}
    screen.heading(f"{title} (version {view.get('version')})")
    screen.table(
        ["limit", "effective", "declared", "set", "by", "until", "used now", "left", "reason"],
        [_limit_row(screen, limit, each, counts) for limit, each in (view.get("limits") or {}).items()],
    )
    if isinstance(cooling := view.get("cooling"), dict):
        screen.fields(cooling, "cooling down until=until:exact, open again=opens_fully_at:exact")
    screen.rows(
        view.get("holders") or [],
        "task=task_id:name, kind=task_type, workflow=workflow_id, task queue, worker, "
        "held for=age_seconds:span, expires=expires_at:when",
        "Held by",
    )


def _limit_row(
    screen: Screen, limit: str, each: Mapping[str, Any], counts: Mapping[str, Any]
) -> list[ScreenCell]:
    live = each.get("live") or {}
    used, left = _USED.get(limit, ("", ""))
    return [
        name(limit),
        *(
            _value(limit, layer.get(key))
            for layer, key in ((each, "value"), (each, "declared"), (live, "value"))
        ),
        plain(live.get("updated_by")),
        screen.when(live.get("ends_at")),
        plain(counts.get(used)),
        plain(counts.get(left)),
        plain(live.get("reason")),
    ]


def _value(limit: str, value: object) -> ScreenCell:
    if limit == "paused":
        return ScreenCell("yes", "yellow") if value else plain(None)
    return ScreenCell("closed", "red") if value == 0 else plain(value)


def draw_queue_limits(screen: Screen, body: Mapping[str, Any]) -> None:
    """Draw the limits of a queue's tasks of one kind, and of the scopes that it belongs to."""
    screen.fields(body, "task queue:name, tasks=task_queue_type, namespace")
    draw_limits(screen, body, "Limits")
    screen.rows(
        body.get("scopes") or [],
        "scope:name, leases, dispatches a minute, cost a minute, paused:flag, cooling until=cooling.until:when",
        "Shared limits that apply",
        leases=lambda row: used_of(row, "active_leases", row.get("max_active_leases")),
        dispatches_a_minute=lambda row: used_of(
            row, "dispatches_this_minute", row.get("max_dispatches_per_minute")
        ),
        cost_a_minute=lambda row: used_of(row, "cost_this_minute", row.get("max_cost_per_minute")),
    )


def used_of(view: Mapping[str, Any], count: str, most: object) -> ScreenCell:
    """Usage of a limit, such as `3 of 5`."""
    used = lookup(view, f"counts.{count}")
    if most is None:
        return plain(None)
    if most == 0:
        return ScreenCell("closed", "red")
    full = isinstance(used, int) and isinstance(most, int) and used >= most
    return ScreenCell(f"{used or 0} of {most}", "yellow" if full else "")


def report_pause(paused: bool, what: str, seconds: int | None, *words: str) -> None:
    """Print the effect of a pause or resume, and how to undo it."""
    if not paused:
        echo_err(f"Resumed {what}.")
        return
    if seconds is not None:
        echo_err(f"Paused {what} for {span(seconds)}. Running tasks continue.")
        return
    echo_err(f"Paused {what} until {command_hint(*words)}. Running tasks continue.")
