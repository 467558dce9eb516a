"""Tasks: standalone activities, which no workflow schedules."""

from __future__ import annotations

from typing import Final

from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.runs.payload_text import pretty
from penstock.server.dashboard.view import View

PAGE_SIZE: Final = 50
STATUSES: Final = ("", "running", "completed", "failed", "cancelled", "terminated")


async def load(view: View) -> Values:
    status, after = view.query.get("status", ""), view.query.get("after")
    status = status if status in STATUSES else ""
    query = {"page_size": str(PAGE_SIZE)} | ({"status": status} if status else {})
    body = await view.read("list_activities", query | ({"next_page_token": after} if after else {}))
    return {
        "tasks": body["activities"],
        "next_page": body["next_page_token"],
        "after": after,
        "status": status,
        "statuses": STATUSES,
    }


async def load_one(view: View) -> Values:
    activity_id = view.path["activity_id"]
    body = await view.read("describe_activity", None, activity_id=activity_id)
    why = None if body["closed_at"] else await view.read("explain_activity", None, activity_id=activity_id)
    shown = {"input": body["input"], "result": body["output"], "failure": body["failure"]}
    payloads = {name: pretty(value) for name, value in shown.items() if value is not None}
    return {
        "task": body,
        "why": why,
        "payloads": payloads if view.sees_payloads else {},
        "sees_payloads": view.sees_payloads,
    }
