"""The dialogs of what can be done to one run, and the commands that they send to it.

A query is put as an action all the same, because a worker answers it: it may take a while, and is not of the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import as_cli, whole
from penstock.server.dashboard.pages.runs.asks import asks_of
from penstock.server.dashboard.pages.runs.payload_text import pretty
from penstock.server.dashboard.pages.runs.run_acts import RunAct, act_of
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body
from penstock.wire.request_parser import field_error

STACK: Final = "__stack_trace"
"""The query that every run answers: where its code stands."""


async def dialog(view: View) -> Values:
    """What the act does to the run, as it is now."""
    name, workflow_id, run_id = view.path["act"], view.path["workflow_id"], view.path["run_id"]
    act = act_of(name)
    run = await view.read("describe_run", workflow_id=workflow_id, run_id=run_id)
    is_named = "name" in act.takes
    asks = await asks_of(view, {"workflow_id": workflow_id, "run_id": run_id}) if is_named else []
    asks = [each for each in asks if each.kind == name]
    called = view.query.get("name", "")
    parts = [f"{count} open {noun}" for noun, count in run["pending"].items() if count]
    refused = run["is_terminal"] and name in ("signal", "update", "cancel", "terminate", "pause", "resume")
    return {
        "act": name,
        "about": act,
        "run": run,
        "refused": refused,
        "pending": ", ".join(parts),
        "action": link("runs", workflow_id, run_id, "act", name, namespace=view.namespace),
        "stack": STACK if name == "query" else "",
        "asks": asks,
        "name": called,
        "arguments": next((each.example for each in asks if each.name == called), ""),
        "event": view.query.get("event", ""),
        "reapply": view.query.get("reapply") or ("none" if name == "fork" else "signals"),
        "request_id": view.ctx.entropy.new_id(),
        "command": _command(name, act, {"workflow_id": workflow_id, "run_id": run_id}, view.query),
    }


async def carry_out(act: Act) -> Outcome:
    """Send the command to this run and no other."""
    name, at = act.path["act"], {each: act.path[each] for each in ("workflow_id", "run_id")}
    about, workflow_id = act_of(name), at["workflow_id"]
    body: dict[str, Any] = {"request_id": act.text("request_id")} if about.is_repeatable else {}
    if "name" not in about.takes:
        answer = await act.change(f"{name}_run", body | _fields(act, about), **at)
        return Outcome(f"{workflow_id} {about.done}.", go_to=_after(act, name, about, answer))
    called = act.text("name")
    if called is None:
        raise field_error("name", f"is missing: which {name}?")
    asked = {"input": arguments(act.text("input"))}
    if name == "query":
        answer = await act.change("query_run", asked, name=called, **at)
        result = answer["result"]
        text = result if isinstance(result, str) else pretty(result).text
        return Outcome(f"{called} of {workflow_id}", answer=text or '""')
    waits = {"wait_for": "accepted"} if name == "update" else {}
    await act.change(f"{name}_run", body | asked | waits, name=called, **at)
    return Outcome(f"{workflow_id} {about.done} {called}.")


def _fields(act: Act, about: RunAct) -> dict[str, Any]:
    """What the form says beside the name of a message and its arguments."""
    body: dict[str, Any] = {"reason": act.text("reason")} if "reason" in about.takes else {}
    if "event" in about.takes:
        body |= {"event": whole(act.text("event"), "event"), "reapply": act.text("reapply")}
        if body["event"] is None:
            raise field_error("event", "is missing: from which event on?")
    if "id" in about.takes:
        body["workflow_id"] = act.text("id")
    return body


def _after(act: Act, name: str, about: RunAct, answer: Body) -> str | None:
    """Where to look then: at the run that came of it, or at the list, where a run is gone."""
    if name == "delete":
        return link("runs", namespace=act.namespace)
    if about.leads_to_run:
        return link("runs", answer["workflow_id"], answer["run_id"], namespace=act.namespace)
    return None


def arguments(text: str | None) -> object:
    """The arguments of a form, which are JSON; None for an empty field."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise field_error("input", 'must be JSON, such as ["approved"]') from None


def _command(name: str, about: RunAct, at: Mapping[str, str], query: Mapping[str, str]) -> str:
    named = (query.get("name") or "NAME",) if "name" in about.takes else ()
    options = {f"--{each}": query.get(each, "") for each in about.takes if each != "name"}
    if "event" in about.takes:
        options["--event"] = query.get("event") or "N"
    sure = ("--yes",) if name == "delete" else ()
    return as_cli(
        ("workflow", name, at["workflow_id"], *named, "--run-id", at["run_id"], *sure), options, query
    )
