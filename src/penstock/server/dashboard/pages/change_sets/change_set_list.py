"""All change sets of a namespace, newest first."""

from __future__ import annotations

from typing import Final

from penstock.errors import NotFound, Reason
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.view import View

PAGE_SIZE: Final = 50
STATES: Final = ("", "proposed", "scheduled", "applied", "expired", "withdrawn", "refused")


async def load(view: View) -> Values:
    state = view.query.get("state", "")
    if state not in STATES:
        raise NotFound(Reason.NOT_FOUND, f"There is no state {state[:40]!r} of change sets.")
    query = {"page_size": str(PAGE_SIZE)} | ({"state": state} if state else {})
    if after := view.query.get("after"):
        query["next_page_token"] = after
    body = await view.read("list_change_sets", query)
    return {
        "change_sets": body["change_sets"],
        "next_page": body["next_page_token"],
        "state": state,
        "states": STATES,
    }
