"""All keys of a queue: paged by backlog, or those whose name contains a text."""

from __future__ import annotations

from typing import Final

from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.gates import KINDS
from penstock.server.dashboard.view import View

PAGE_SIZE: Final = 50


async def load(view: View) -> Values:
    name, kind = view.path["name"], view.query.get("kind", "")
    kind = kind if kind in KINDS else KINDS[0]
    search, after = view.query.get("search", "").strip(), view.query.get("after")
    query = {"task_queue_type": kind, "page_size": str(PAGE_SIZE), "search": search}
    query |= {"next_page_token": after} if after else {}
    body = await view.read("list_task_queue_keys", query, name=name)
    return {
        "name": name,
        "kind": kind,
        "keys": body["keys"],
        "search": search,
        "after": after,
        "next_page": body["next_page_token"],
    }
