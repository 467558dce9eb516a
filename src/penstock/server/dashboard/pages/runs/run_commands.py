"""What can be done to one run: cancel, terminate, signal, update; and query, which changes nothing.

A query is put as an action all the same, because a worker answers it: it may take a while, and is not of the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from penstock.errors import NotFound, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import as_cli
from penstock.server.dashboard.pages.runs.asks import asks_of
from penstock.server.dashboard.pages.runs.payload_text import pretty
from penstock.server.dashboard.view import Act, View
from penstock.wire.request_parser import field_error

ACTS: Final = {
    "cancel": "Asks it to stop: its code may clean up first, and the run ends as cancelled.",
    "terminate": "Ends it at once: no code of the workflow runs any more, and nothing is cleaned up.",
    "signal": "Its code gets the signal with the next workflow task, and decides what follows.",
    "update": "Its code gets the update with the next workflow task, may refuse it, and answers with a result.",
    "query": "A worker replays its history and answers. Nothing is changed or recorded.",
}
STACK: Final = "__stack_trace"
"""The query that every run answers: where its code stands."""
NAMED: Final = ("signal", "update", "query")


async def dialog(view: View) -> Values:
    """What the act does to the run, as it is now."""
    act, workflow_id, run_id = _act(view.path["act"]), view.path["workflow_id"], view.path["run_id"]
    run = await view.read("describe_run", workflow_id=workflow_id, run_id=run_id)
    pending = run["pending"]
    asks = [
        each
        for each in await asks_of(view, {"workflow_id": workflow_id, "run_id": run_id})
        if each.kind == act
    ]
    name = view.query.get("name", "")
    parts = [f"{count} open {noun}" for noun, count in pending.items() if count]
    return {
        "act": act,
        "explained": ACTS[act],
        "run": run,
        "pending": ", ".join(parts),
        "action": link("runs", workflow_id, run_id, "act", act, namespace=view.namespace),
        "is_named": act in NAMED,
        "stack": STACK if act == "query" else "",
        "asks": asks,
        "name": name,
        "arguments": next((each.example for each in asks if each.name == name), ""),
        "request_id": view.ctx.entropy.new_id(),
        "command": _command(act, {"workflow_id": workflow_id, "run_id": run_id}, view.query),
    }


async def carry_out(act: Act) -> Outcome:
    """Send the command to this run and no other."""
    name, at = _act(act.path["act"]), {each: act.path[each] for each in ("workflow_id", "run_id")}
    workflow_id = at["workflow_id"]
    request = {"request_id": act.text("request_id")}
    if name in ("cancel", "terminate"):
        await act.change(f"{name}_run", {"reason": act.text("reason")} | request, **at)
        return Outcome(f"{workflow_id} {'is asked to stop' if name == 'cancel' else 'is terminated'}.")
    called = act.text("name")
    if called is None:
        raise field_error("name", f"is missing: which {name}?")
    if name == "query":
        asked = {"input": arguments(act.text("input"))}
        answer = await act.change("query_run", asked, name=called, **at)
        result = answer["result"]
        text = result if isinstance(result, str) else pretty(result).text
        return Outcome(f"{called} of {workflow_id}", answer=text or '""')
    body = {"input": arguments(act.text("input"))} | request
    if name == "update":
        body["wait_for"] = "accepted"
    await act.change(f"{name}_run", body, name=called, **at)
    return Outcome(f"{workflow_id} got the {name} {called}.")


def arguments(text: str | None) -> object:
    """The arguments of a form, which are JSON; None for an empty field."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise field_error("input", 'must be JSON, such as ["approved"]') from None


def _act(name: str) -> str:
    if name not in ACTS:
        raise NotFound(Reason.NOT_FOUND, f"There is no action {name!r}.")
    return name


def _command(act: str, at: Mapping[str, str], query: Mapping[str, str]) -> str:
    named = act in NAMED
    words = ("workflow", act, at["workflow_id"], *((query.get("name") or "NAME",) if named else ()))
    options = {"--input": query.get("input", "")} if named else {"--reason": query.get("reason", "")}
    return as_cli((*words, "--run-id", at["run_id"]), options, query)
