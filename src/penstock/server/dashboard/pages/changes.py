"""Who changed which limit, when and why: everything that concerns a namespace, newest first."""

from __future__ import annotations

from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.limits import named_change
from penstock.server.dashboard.pages.way_back import with_way_back
from penstock.server.dashboard.view import View

SHOWN = 50


async def load(view: View) -> Values:
    query = {"limit": str(SHOWN)}
    if before := view.query.get("before"):
        query["before"] = before
    body = await view.read("read_limit_changes", query)
    changes = [named_change(each) for each in body["changes"]]
    older = changes[-1]["at"] if len(changes) == SHOWN else None
    # An older page does not know what came after it.
    shown = changes if before else with_way_back(changes, view.namespace)
    return {"changes": shown, "older": older, "before": before}
