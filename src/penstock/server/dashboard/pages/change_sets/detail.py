"""One change set: what it changes, what to know before, who approved it, what became of it and was granted under it."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.view import View
from penstock.server.operation import Body


async def load(view: View) -> Values:
    body = await view.read("plan_change_set", None, change_set_id=view.path["change_set_id"])
    return {
        "change_set": body,
        "approvals": body["approvals"] or {"wanted": 0, "missing": 0, "given": []},
        "glass": body["break_glass"],
        "is_open": body["plan"] is not None,
        "history": list(history(body)),
    }


async def load_effect(view: View) -> Values:
    """What was granted under it: read once, because it may be many lines of the journal."""
    body = await view.read("read_change_set_effect", None, change_set_id=view.path["change_set_id"])
    return {"effect": body}


def history(body: Body) -> Iterator[Body]:
    """What happened to a change set, newest first."""
    state, ended = body["state"], body["ended_at"]
    if ended:
        by = body["ended_by"] or "the server"
        yield {"at": ended, "what": state, "by": by, "note": body["refused_because"]}
    if body["applied_at"]:
        glass = body["break_glass"]
        note = "" if glass is None else f"break-glass: {glass['reason']}"
        yield {"at": body["applied_at"], "what": "applied", "by": body["applied_by"], "note": note}
    for each in reversed((body["approvals"] or {}).get("given", [])):
        yield {"at": each["at"], "what": "approved", "by": each["by"], "note": _why_not(each)}
    if body["edited_at"]:
        yield {"at": body["edited_at"], "what": "edited", "by": body["author"], "note": ""}
    yield {
        "at": body["created_at"],
        "what": "proposed",
        "by": "" if body["edited_at"] else body["author"],
        "note": "" if body["edited_at"] else body["change_reason"],
    }


def _why_not(approval: Body) -> str:
    match approval["state"]:
        case "expired":
            return "expired, so it does not count"
        case "outdated":
            since = ", ".join(approval["changed_since"])
            return (
                f"does not count: {since} changed since" if since else "does not count: it was edited since"
            )
        case _:
            return ""
