"""Why something waits: the sentence, what would free it, who holds it, and when it starts.

Any id will do: of a workflow, a run, an activity or a task. A workflow that waits for one activity is explained by that
activity. Each way out is a button that opens the change with its effect; none applies anything by itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.errors import NotFound, Reason
from penstock.server.dashboard.formats import moment_ms
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

_ORDER = ("task", "activity", "workflow", "run")
_READ = {
    "task": ("explain_task", "task_id"),
    "activity": ("explain_activity", "activity_id"),
    "workflow": ("explain_workflow", "workflow_id"),
    "run": ("explain_workflow", "workflow_id"),
}


class WayOut(Struct, frozen=True):
    """One remedy: the server's words, and where it is carried out."""

    title: str
    note: str
    label: str = ""
    dialog: str = ""
    """The dialog that plans it."""
    page: str = ""
    """The page that shows what to wait for."""
    command: str = ""


class StartRange(Struct, frozen=True):
    """The range of an expected start on a line, in per cent of it."""

    left: int
    width: int
    ends_at_ms: int


async def load(view: View) -> Values:
    found = await _subject(view)
    whole, shown = found, found
    waiting = [each for each in found.get("activities", []) if each["waits"]]
    binding = found["binding"]
    if binding is not None and binding["kind"] == "waiting_for_activity" and len(waiting) == 1:
        shown = waiting[0]
    task = shown["task"]
    return {
        "subject": view.path["id"],
        "whole": whole,
        "found": shown,
        "task": task,
        "waiting": waiting if len(waiting) > 1 else [],
        "ways": ways_out(shown, view.namespace),
        "start": start_range(shown["expected_start"], view.now_ms),
        "holders": [] if shown["binding"] is None else shown["binding"]["holders"],
        "command": _command(whole),
    }


async def _subject(view: View) -> Body:
    name = view.path["id"]
    items = (await view.read("locate_id", {"id": name}))["found"]
    by_kind = {each["kind"]: each for each in reversed(items)}
    for kind in _ORDER:
        if kind in by_kind:
            operation, parameter = _READ[kind]
            subject = by_kind[kind]["workflow_id"] if kind == "run" else name
            return await view.read(operation, None, **{parameter: str(subject)})
    raise NotFound(
        Reason.NOT_FOUND, f"No workflow, run, activity or task of this namespace has the id {name[:200]!r}."
    )


def _command(found: Body) -> str:
    return f"penstock why {shlex.quote(found['workflow_id'])}"


def ways_out(found: Body, namespace: str) -> list[WayOut]:
    """What would free it, the binding constraint first, without repetitions."""
    constraints: Sequence[Body] = [each for each in (found["binding"], *found["next"]) if each is not None]
    ways: dict[str, WayOut] = {}
    for constraint in constraints:
        for remedy in constraint["frees"]:
            if not constraint["is_closed"] and remedy["action"] in ("raise", "end_leases"):
                continue  # it does not bind yet, so this would free nothing
            way = _way(remedy, constraint, found, namespace)
            ways.setdefault(way.title, way)
        if (
            constraint["kind"] == "fairness_turn"
            and found["task"] is not None
            and found["task"]["fairness_key"]
        ):
            way = _more_weight(found["task"], namespace)
            ways.setdefault(way.title, way)
    return list(ways.values())


def _way(remedy: Body, constraint: Body, found: Body, namespace: str) -> WayOut:
    title = remedy["text"][:1].upper() + remedy["text"][1:]
    note = constraint["message"][:1].upper() + constraint["message"][1:] + "."
    scope = remedy.get("scope") or ""
    match remedy["action"]:
        case "raise":
            return WayOut(
                title,
                note,
                "Plan it…",
                dialog=change_of(scope, namespace, to=remedy.get("to"), kind=constraint["kind"]),
            )
        case "resume":
            return WayOut(title, note, "Plan it…", dialog=change_of(scope, namespace, resume=True))
        case "end_leases":
            return WayOut(title, note, "See the holders", page="#holders")
        case "register_worker":
            task = found["task"] or {}
            queue = task.get("task_queue", "")
            return WayOut(
                title, note, command=f"penstock worker run app.py --task-queue {shlex.quote(queue)}"
            )
        case _:
            return WayOut(title, note)


def _more_weight(task: Body, namespace: str) -> WayOut:
    key, queue = task["fairness_key"], task["task_queue"]
    dialog = link("queues", queue, "keys", key, namespace=namespace, kind=task["task_queue_type"])
    return WayOut(
        f"Raise the weight of {key}",
        "It goes sooner; the other keys of its level later.",
        "Plan it…",
        dialog=dialog,
    )


def change_of(scope: str, namespace: str, *, to: Any = None, kind: str = "", resume: bool = False) -> str:
    """The address of the dialog that changes a limit of a scope; empty if there is none."""
    word, _, rest = scope.partition(":")
    parts = rest.split("/")
    value = None if to is None else f"{to:g}" if isinstance(to, float) else str(to)
    if word == "queue" and len(parts) >= 3:
        name, tasks = "/".join(parts[1:-1]), parts[-1]
        what = "resume" if resume else "rate" if kind == "rate" else "cap"
        return link("queues", name, what, namespace=namespace, kind=tasks, to=value)
    if word == "key" and len(parts) >= 4:
        more = {"cap": value} if not resume and kind == "key_running" else {"paused": "no"} if resume else {}
        return link(
            "queues", parts[1], "keys", "/".join(parts[3:]), namespace=namespace, kind=parts[2], **more
        )
    if word in ("namespace", "group") or scope.startswith("cluster"):
        field = {"dispatches_per_minute": "dispatches", "cost_per_minute": "cost"}.get(kind, "leases")
        more = {"paused": "no"} if resume else {field: value}
        return link("limits", "change", namespace=namespace, scope=scope, **more)
    return ""


def start_range(expected: Body, now_ms: int) -> StartRange | None:
    """Where an expected start lies on a line from now on; None if it is unknown or open."""
    from_ms, to_ms = moment_ms(expected["from"]), moment_ms(expected["to"])
    if from_ms is None or to_ms is None:
        return None
    span = max(to_ms - now_ms, 1_000) * 5 // 4
    left = max(0, min(100, 100 * (from_ms - now_ms) // span))
    return StartRange(left, max(2, min(100 - left, 100 * (to_ms - from_ms) // span)), now_ms + span)
