"""The dashboard: pages below `/ui`, made on the server from the operations of the public API.

How to add a page
-----------------

1. Write `pages/<subject>.py` with a coroutine `load(view: View) -> Mapping`. It reads with
   `await view.read("name of a GET operation", {query}, path=…)`, which returns the body that the HTTP API would send,
   and reshapes it into what the template shows. Everything runs in one read transaction, so all numbers are of one
   snapshot: **await nothing but `view.read`** (no `asyncio`, no sleep: the store drives the coroutine), change
   nothing, and expect to be started again. `view.try_read` returns the `Forbidden` of an operation that the role may
   not use, for `{{ hidden(error, role) }}`. If the API lacks what you need, add an operation to the API; a page has
   no side door.
2. Write `templates/<subject>.html`: `{% extends "shell.html" %}` with the blocks `title`, `crumbs` and `main`. The
   macros of `macros.html` (`chip`, `icon`, `use`, `meter`, `pair`, `spark`, `opens`, `empty`, `hidden`, `copy`) are
   global; never import them. Addresses come from `link("queues", name, namespace=ns)`. Filters: `count`, `duration`
   (seconds), `percent`, `per_minute`, `clock`, `ago` and `until` (instants), `shown` (every name that users chose).
   Values in every template: `now_ms`, `query`, `namespace`, `ns` (None for the default namespace), `role`,
   `can_change`, `is_admin`.
3. What changes while the page is open stands in a block `live_<name>` that renders exactly one element with
   `id="<name with dashes>"`. It sees only the values of `load` and those above: not `visitor`, and nothing that the
   template sets outside the block. The stream renders it once a second for all viewers and morphs it into the page.
   Rows have an `id`, so that a morph keeps them; a chart is marked so that a morph skips its children.
4. Numbers of the API carry `data-field="operation:path.to.field"`; `tests/server/dashboard/test_truth.py` compares
   each with the API's answer.
5. Changes: `{{ opens(link("queues", name, "cap", namespace=ns), "Change…", allowed=can_change) }}` opens a dialog,
   a page with `is_fragment=True` that shows the effect first (`pages/change_dialog.py:dialog`, `change.html`).
   Its form is posted to an action: a coroutine `act(act: Act) -> Outcome` that calls
   `act.change("name of an operation", {body}, path=…)`. CSRF, origin, role and author are taken care of.
6. Add both to the tables in `pages/__init__.py`. No inline script or style, ever: the content policy forbids it, and
   geometry is SVG attributes in per cent.

`site.Site` answers the requests; it is imported by `assembly` only where the dashboard is turned on.
"""

from __future__ import annotations

from typing import Protocol

from penstock.server.request_reader import Receive, Scope
from penstock.server.response_writer import Send


class Dashboard(Protocol):
    """What the server needs of its dashboard."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a path below `/ui`."""
        ...

    def one_time_link(self, url: str, name: str) -> str | None:
        """An address that signs somebody in once, within a minute; None where nobody needs to, or can."""
        ...

    def close(self) -> None:
        """End all streams, because the server stops."""
        ...


__all__ = ["Dashboard"]
