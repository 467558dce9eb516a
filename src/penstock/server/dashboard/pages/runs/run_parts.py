"""Two pages beside that of a run: its streams, as their items come, and everything that is known for debugging it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.runs.payload_text import opened, pretty, short
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

ITEMS_SHOWN: Final = 100
TEXT_MAX: Final = 20_000
DEBUG_MAX: Final = 64_000


class DebugRow(Struct, frozen=True):
    """A row of what is open in a run."""

    name: str
    state: str
    where: str | None
    at: str
    attempts: int | None
    note: str | None
    activity_id: str = ""
    """Of an activity."""
    is_paused: bool = False


async def stream(view: View) -> Values:
    """The newest items of a stream. Looking acknowledges nothing: its reader still has them to read."""
    at = {name: view.path[name] for name in ("workflow_id", "run_id", "stream")}
    about = (await view.read("describe_stream", None, **at))["stream"]
    start = max(0, about["total_items"] - ITEMS_SHOWN)
    query = {"from": str(start), "max_items": str(ITEMS_SHOWN), "acknowledge": "false"}
    page = await view.read("read_stream", query, **at)
    items = page["items"]
    values = [opened(each["value"]) for each in items] if view.sees_payloads else []
    return {
        "workflow_id": view.path["workflow_id"],
        "run_id": view.path["run_id"],
        "stream": about,
        "items": list(reversed(items)),
        "texts": [short(each) for each in reversed(values)],
        "joined": _joined(values),
        "sees_payloads": view.sees_payloads,
    }


def _joined(values: Sequence[Any]) -> str:
    """The items as one text, where each is a piece of text, such as the tokens of a model."""
    if not values or not all(isinstance(each, str) for each in values):
        return ""
    return "".join(values)[-TEXT_MAX:]


async def debug(view: View) -> Values:
    """The findings, the open tasks, activities and timers of a run, and all of it as JSON."""
    at = {name: view.path[name] for name in ("workflow_id", "run_id")}
    body = await view.read("debug_run", None, **at)
    return {
        "workflow_id": at["workflow_id"],
        "run_id": at["run_id"],
        "body": body,
        "execution": body["execution"],
        "rows": _open_work(body),
        "json": pretty(body, DEBUG_MAX),
        "sees_payloads": view.sees_payloads,
    }


def _open_work(body: Body) -> list[DebugRow]:
    """What is open: workflow tasks, activities and timers."""
    tasks = [
        DebugRow(
            "workflow task",
            each["status"],
            each["lease_owner"] or each["queue"],
            each["leased_at"] or each["available_at"],
            each["attempt_count"],
            each["last_error"] or each["summary"],
        )
        for each in body["tasks"]
    ]
    activities = [
        DebugRow(
            each["activity_type"],
            each["status"],
            each["queue"],
            each["started_at"] or each["scheduled_at"],
            each["attempt_count"],
            each["last_error"] or each["summary"],
            each["activity_execution_id"],
            each["pause"] is not None,
        )
        for each in body["activities"]
    ]
    timers = [
        DebugRow("timer", "waiting", None, each["fire_at"], None, each["timer_kind"])
        for each in body["timers"]
    ]
    return [*tasks, *activities, *timers]
