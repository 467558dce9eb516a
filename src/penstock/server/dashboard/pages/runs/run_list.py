"""Runs: a query box, views that are addresses, and pages by position, newest first.

A list does not move while it is read: it is of one moment, which it names, and shows another when asked. Nothing on it
is counted beyond the page, because a count of all that match costs as much as there are runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from penstock.errors import PenstockError, Reason
from penstock.server.dashboard.formats import clock, until
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.runs.completion import completions
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

PAGE_SIZE: Final = 50
COLUMNS_MAX: Final = 6
OWN_COLUMNS: Final[Mapping[str, str]] = {
    "BusinessKey": "business_key",
    "Key": "fairness_key",
    "Priority": "priority",
    "CloseTime": "closed_at",
    "LastProgress": "last_progress_at",
}
"""What every run has, beside the columns that are always there; search attributes are offered too."""
_INSTANTS: Final = frozenset({"CloseTime", "LastProgress"})
_REFUSED = frozenset({Reason.INVALID_QUERY, Reason.VALIDATION_FAILED})

VIEWS: Final = (
    ("All", ""),
    ("Open", "Status = 'open'"),
    ("Failed today", "Status = 'failed' AND StartTime > '24h ago'"),
    ("Open for a day", "Status = 'open' AND StartTime < '1d ago'"),
    ("Timed out", "Status = 'timed_out'"),
)
"""Queries by name. Any other view is an address too: bookmark it."""


class WaitPhrase(Struct, frozen=True):
    """What a run waits for, in two lines: what, and which kind of wait that is."""

    what: str
    how: str
    kind: str


async def load(view: View) -> Values:
    text, after = view.query.get("q", "").strip(), view.query.get("after")
    attributes, _ = await view.try_read("list_search_attributes")
    registered = _registered(attributes)
    offered = [*OWN_COLUMNS, *registered]
    chosen = [each for each in view.query.get("columns", "").split(",") if each in offered][:COLUMNS_MAX]
    problem: PenstockError | None = None
    body: Body = {"workflows": [], "next_page_token": None}
    query = {"page_size": str(PAGE_SIZE), "include": "tasks"}
    query |= {"query": text} if text else {}
    query |= {"next_page_token": after} if after else {}
    try:
        body = await view.read("list_workflows", query)
    except PenstockError as error:
        if error.reason not in _REFUSED:
            raise
        problem = error
    runs = body["workflows"]
    return {
        "text": text,
        "after": after,
        "runs": runs,
        "waits": {
            # A reason may quote an error of the workflow code.
            each["run_id"]: wait_phrase(
                each if view.sees_payloads else each | {"wait_reason": None}, view.now_ms
            )
            for each in runs
        },
        "next_page": body["next_page_token"],
        "problem": problem,
        "views": VIEWS,
        "offered": offered,
        "columns": chosen,
        "cells": {each["run_id"]: [_cell(each, name, view.now_ms) for name in chosen] for each in runs},
        "suggestions": completions(text, registered, {}),
    }


async def suggest(view: View) -> Values:
    """What may come next in a query, with the names that workers and queues of the namespace have."""
    attributes, _ = await view.try_read("list_search_attributes")
    workers, _ = await view.try_read("list_workers")
    found = (workers or {}).get("workers", [])
    values = {
        "WorkflowType": _sorted(
            name for each in found for name in each.get("supported_workflow_types") or []
        ),
        "TaskQueue": _sorted(each["task_queue"] for each in found),
        "BuildId": _sorted(each["build_id"] for each in found if each.get("build_id")),
    }
    text = view.query.get("q", "")
    return {"text": text, "suggestions": completions(text, _registered(attributes), values)}


def _cell(run: Body, column: str, now_ms: int) -> str:
    """What a chosen column shows of a run; empty if it has nothing of it."""
    if column in OWN_COLUMNS:
        value = run[OWN_COLUMNS[column]]
        return clock(value, now_ms) if value is not None and column in _INSTANTS else _text(value)
    return _text((run["search_attributes"] or {}).get(column))


def _text(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(str(each) for each in value) if isinstance(value, list) else str(value)


def _sorted(names: Iterable[object]) -> list[str]:
    return sorted({str(each) for each in names})


def _registered(body: Body | None) -> Mapping[str, str]:
    """The search attributes of users, by name."""
    return (body or {}).get("custom_attributes") or {}


def wait_phrase(run: Body, now_ms: int) -> WaitPhrase | None:
    """What an open run waits for; None for one that is closed."""
    if run["waits_for"] is None:
        return None
    if run["wait_kind"] == "replay_blocked":
        return WaitPhrase("a build that replays its history", "blocked by code", "gate")
    tasks: Sequence[Body] = run["tasks"]
    for state, make in (("ready", _held), ("leased", _running), ("delayed", _delayed)):
        mine = [each for each in tasks if each["state"] == state]
        if mine:
            # An activity tells more than the workflow task beside it.
            return make(min(mine, key=lambda each: str(each["kind"])), now_ms)
    return WaitPhrase(_designed(run), "waiting by design", "design")


def _held(task: Body, _: int) -> WaitPhrase:
    return WaitPhrase(_what(task), f"ready in {task['task_queue']}, not dispatched", "gate")


def _running(task: Body, _: int) -> WaitPhrase:
    return WaitPhrase(_what(task), f"runs, from {task['task_queue']}", "running")


def _delayed(task: Body, now_ms: int) -> WaitPhrase:
    at = task["available_at"]
    return WaitPhrase(
        _what(task), f"backoff or delay until {clock(at, now_ms)}, in {until(at, now_ms)}", "design"
    )


def _what(task: Body) -> str:
    name = task["type"] or "activity" if task["kind"] == "activity" else "a workflow task"
    return f"{name} and {task['count'] - 1} more" if task["count"] > 1 else str(name)


def _designed(run: Body) -> str:
    reason = str(run["wait_reason"] or "")
    reason = reason.removeprefix("Waiting for ")
    return reason or str(run["wait_kind"] or "its code")
