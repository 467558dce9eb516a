"""The palette: pages by name, and whatever has the id or the name that was typed."""

from __future__ import annotations

from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

_PAGES = (
    ("overview", "Overview", ()),
    ("queues", "Queues", ("queues",)),
    ("runs", "Runs", ("runs",)),
    ("workers", "Workers", ("workers",)),
    ("tasks", "Tasks", ("tasks",)),
    ("schedules", "Schedules", ("schedules",)),
    ("limits", "Limits and budget groups", ("limits",)),
    ("rehearse", "Change sets: several limits as one", ("change-sets",)),
    ("changes", "Changes of limits", ("changes",)),
    ("system", "System", ("system",)),
)
_ICONS = {
    "workflow": "runs",
    "run": "runs",
    "activity": "tasks",
    "task": "tasks",
    "worker": "workers",
    "task_queue": "queues",
    "schedule": "schedules",
}


async def load(view: View) -> Values:
    text = view.query.get("q", "").strip()[:512]
    namespace = view.namespace
    entries = [
        {"icon": icon, "label": label, "note": "page", "address": link(*parts, namespace=namespace)}
        for icon, label, parts in _PAGES
        if text.lower() in label.lower()
    ]
    if text:
        body = await view.read("locate_id", {"id": text})
        entries = [entry for each in body["found"] for entry in _entries(each, namespace)] + entries
    return {"entries": entries[:20], "text": text}


def _entries(found: Body, namespace: str) -> list[Body]:
    """The pages that show one found thing; for what may wait, also why it does."""
    kind, name = found["kind"], found["id"]
    address = link(*_address(found), namespace=namespace)
    note = kind.replace("_", " ") + (f" · {found['status']}" if found["status"] else "")
    shown = [{"icon": _ICONS[kind], "label": name, "note": note, "address": address}]
    if kind in ("workflow", "activity", "task"):
        why = link("why", name, namespace=namespace)
        shown.append({"icon": "waiting", "label": f"Why does {name} wait?", "note": "why", "address": why})
    return shown


def _address(found: Body) -> tuple[str, ...]:
    match found["kind"]:
        case "workflow":
            return ("runs", found["workflow_id"])
        case "run":
            return ("runs", found["workflow_id"], found["run_id"])
        case "worker":
            return ("workers", found["id"])
        case "task_queue":
            return ("queues", found["id"])
        case "schedule":
            return ("schedules", found["id"])
        case _:
            return ("why", found["id"])
