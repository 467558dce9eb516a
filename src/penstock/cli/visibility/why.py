"""The command that explains why something waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.grammar import VerbCommand
from penstock.cli.output.exits import CommandError, RequestRefused
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, plain, status
from penstock.cli.output.times import parsed, span
from penstock.cli.transport.session import CliSession

if TYPE_CHECKING:
    from penstock.cli.transport.connection import ServerConnection, ServerResponse

_NOUNS = {"workflows": "instance_not_found", "activities": "activity_not_found", "tasks": "task_not_found"}
"""Kinds of objects to look up, in order, and the reason for a missing one."""


@click.command("why", cls=VerbCommand, example="penstock why charge-42")
@click.argument("what", metavar="WORKFLOW_ID|ACTIVITY_ID|TASK_ID")
@click.pass_obj
def why(session: CliSession, what: str) -> None:
    """Explain why a workflow, an activity or a task waits, what would free it, and when it may start."""
    session.show(_found(session.connect(), what), draw)


def _found(connection: ServerConnection, what: str) -> ServerResponse:
    """The first of a workflow, an activity and a task that has this id."""
    for noun, missing in _NOUNS.items():
        answer = connection.get(noun, what, "why", accept=(404,))
        if answer.status != 404:
            return answer
        if answer.body.get("reason") != missing:
            raise RequestRefused(answer.status, answer.body)
    raise CommandError(
        "not_found",
        f"There is no workflow, activity or task {what!r}.",
        f"See what there is with {command_hint('workflow', 'list')} or {command_hint('activity', 'list')}.",
    )


def draw(screen: Screen, body: dict[str, Any]) -> None:
    """One sentence, then its numbers."""
    screen.line(ScreenCell(str(body.get("summary")), "bold"))
    binding = body.get("binding") or {}
    screen.facts(_facts(screen, body, binding))
    _draw_frees(screen, binding)
    _draw_holders(screen, binding)
    _draw_position(screen, body.get("position"))
    _draw_next(screen, body.get("next") or [])
    _draw_activities(screen, body.get("activities") or [])
    _draw_other_engine(screen, body)


def _facts(screen: Screen, body: dict[str, Any], binding: dict[str, Any]) -> list[tuple[str, ScreenCell]]:
    task = body.get("task") or {}
    return [
        ("Kind", status(binding.get("kind"))),
        ("Scope", plain(binding.get("scope"))),
        ("Used", _used(binding)),
        ("Opens", screen.when_exactly(binding.get("opens_at"))),
        ("Expected start", _expected(screen, body.get("expected_start") or {})),
        ("Task", plain(task.get("task_id"))),
        ("Task queue", _queue(task)),
    ]


def _used(binding: dict[str, Any]) -> ScreenCell:
    if binding.get("max") is None:
        return plain(None)
    return ScreenCell(f"{binding.get('used')} of {binding['max']}")


def _queue(task: dict[str, Any]) -> ScreenCell:
    if not task:
        return plain(None)
    return ScreenCell(
        f"{task.get('task_queue')} ({task.get('task_queue_type')} tasks), type {task.get('type')}"
    )


def _expected(screen: Screen, expected: dict[str, Any]) -> ScreenCell:
    """A time range, or the reason for its absence."""
    first, last = expected.get("from"), expected.get("to")
    if first is None:
        because = expected.get("unknown_because")
        return ScreenCell(f"unknown: {because}") if because else plain(None)
    if last is None:
        return ScreenCell(f"not before {screen.when(first).text}; the latest is unknown")
    return ScreenCell(f"{_ahead(screen, first)} to {_ahead(screen, last)} from now ({first} to {last})")


def _ahead(screen: Screen, stamp: object) -> str:
    instant = parsed(stamp)
    return str(stamp) if instant is None else span(max(0.0, (instant - screen.now).total_seconds()))


def _draw_frees(screen: Screen, binding: dict[str, Any]) -> None:
    frees = binding.get("frees") or []
    if frees:
        screen.heading("What would free it" if len(frees) == 1 else "What would free it (any of these)")
        for each in frees:
            by_hand = " (by hand)" if each.get("manual") else ""
            screen.line(ScreenCell(f"- {each.get('text')}{by_hand}"))


def _draw_holders(screen: Screen, binding: dict[str, Any]) -> None:
    screen.rows(
        binding.get("holders") or [],
        "task=task_id:name, of=workflow_id, task queue, worker, for=age_seconds:span, lease ends=expires_at:when",
        "Who holds it",
    )


def _priority(level: dict[str, Any]) -> str:
    key = level.get("priority_key")
    return f"priority {level.get('priority')}" + ("" if key is None else f" (key {key})")


def _draw_position(screen: Screen, position: dict[str, Any] | None) -> None:
    if not position:
        return
    about = "" if position.get("is_exact") else "about "
    screen.heading(f"Position: {about}{position.get('ahead')} ahead")
    keys = position.get("ahead_by_key") or []
    others = (position.get("ahead_of_other_keys") or 0) - sum(each.get("tasks") or 0 for each in keys)
    levels = position.get("ahead_by_priority") or []
    rows = [{"of": _priority(each), "tasks": each.get("tasks")} for each in levels]
    rows += [
        {"of": f"key {each.get('fairness_key') or '(no key)'}", "tasks": each.get("tasks")} for each in keys
    ]
    rows += [{"of": "other keys", "tasks": others}] * (others > 0)
    if own := position.get("ahead_of_own_key"):
        rows.append({"of": "its own key", "tasks": own})
    screen.rows(rows, "of, tasks before it=tasks")


def _draw_next(screen: Screen, constraints: list[dict[str, Any]]) -> None:
    screen.rows(
        constraints,
        "kind:name, scope, binds, what it is=message",
        "What binds next",
        binds=lambda each: ScreenCell("now" if each.get("is_closed") else "before its turn"),
    )


def _draw_activities(screen: Screen, activities: list[dict[str, Any]]) -> None:
    screen.rows(
        activities,
        "activity=activity_id:name, type=activity_type, kind=binding.kind:status, why=summary",
        "Its open activities",
    )


def _draw_other_engine(screen: Screen, body: dict[str, Any]) -> None:
    """What another engine knows, and what it cannot know."""
    for each in (body.get("findings") or [])[1:]:
        screen.line(ScreenCell(f"- {each.get('message')}"))
    if body.get("unknown"):
        screen.heading("What Temporal does not tell")
        for each in body["unknown"]:
            screen.line(ScreenCell(f"- {each}", "dim"))
