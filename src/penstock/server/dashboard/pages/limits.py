"""All limits of a namespace as a tree of scopes: the cluster, the namespace, its budget groups, their queues.

A scope without a limit is a row too, because it is where one would set it. Each row has what is used, whether it binds,
who set it, why, and until when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from penstock.core.limits import run_caps
from penstock.ports.gather import gather
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.gates import binding
from penstock.server.dashboard.pages.queues import QueueLine, lines_of
from penstock.server.dashboard.pages.settings import run_caps as cap_dialogs
from penstock.server.dashboard.pages.way_back import with_way_back
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

_SCOPE_LIMITS = (
    ("max_active_leases", "leases", "active_leases"),
    ("max_dispatches_per_minute", "dispatches a minute", "dispatches_this_minute"),
    ("max_cost_per_minute", "cost a minute", "cost_this_minute"),
)
_QUEUE_SETTINGS = {
    "max_running": ("leases", "active_leases", "cap"),
    "max_dispatches_per_minute": ("dispatches a minute", "dispatches_per_minute", ""),
    "queue_rps_limit": ("rate a second", "rate", "rate"),
    "paused": ("paused", "paused", "resume"),
}
_PARTS = {"all": "", "workflow_tasks": " (workflow tasks)", "activity_tasks": " (activity tasks)"}
_EXPIRES_SOON_S = 3_600


class LimitRow(Struct, frozen=True):
    """One limit of one scope."""

    depth: int
    name: str
    address: str
    limit: str
    used: float | None = None
    most: float | None = None
    state: str = ""
    """`binds`, `paused`, `cooling`, `near`, or nothing."""
    live: Body | None = None
    source: str = ""
    version: int | None = None
    dialog: str = ""
    opens_at: str | None = None

    @property
    def is_set(self) -> bool:
        return self.most is not None or bool(self.state)


async def load(view: View) -> Values:
    (cluster, namespace), (groups, of_runs), (queues, changes) = await gather(
        gather(view.read("read_cluster_limits"), view.read("read_namespace_limits", name=view.namespace)),
        gather(view.read("list_budget_groups"), view.read("list_run_limits")),
        gather(view.read("list_task_queues"), view.read("read_limit_changes", {"limit": "8"})),
    )
    lines = lines_of(queues)
    rows = [
        *_scope_rows(0, "cluster", "", cluster, view.namespace),
        *_scope_rows(0, view.namespace, "", namespace, view.namespace),
        *_group_rows(groups["budget_groups"], lines, view.namespace),
        *_line_rows(1, (each for each in lines if _group_of(each) is None), view.namespace),
        *(_run_row(each, view.namespace) for each in of_runs["run_limits"]),
    ]
    show = view.query.get("show", "")
    views = {
        "": rows,
        "binds": [row for row in rows if row.state in ("binds", "paused", "cooling")],
        "near": [row for row in rows if row.state in ("binds", "near")],
        "live": [row for row in rows if row.live is not None],
        "expires": [row for row in rows if row.live is not None and row.live["ends_at"]],
    }
    return {
        "rows": views.get(show, rows),
        "show": show if show in views else "",
        "counts": {name: sum(row.is_set for row in each) for name, each in views.items()},
        "changes": with_way_back([named_change(each) for each in changes["changes"]], view.namespace),
    }


def named_change(change: Body) -> Body:
    """A change with the name of what it was made to, as people call it."""
    word, _, rest = change["scope"].partition(":")
    parts = rest.split("/")
    match word:
        case "queue":
            where = f"queue {'/'.join(parts[1:-1])}" + (
                " (workflow tasks)" if parts[-1] == "workflow" else ""
            )
        case "group":
            where = f"group {'/'.join(parts[1:])}"
        case "namespace":
            where = f"namespace {rest}"
        case "runs":
            where = f"runs of {run_caps.scope_text(change['scope'])}"
        case "declared":
            where = "declared limits"
        case _:
            where = change["scope"]
    return change | {"where": where}


def _group_of(line: QueueLine) -> str | None:
    group: str | None = line.section["server_dispatch_budget_group"]
    return group


def _group_rows(groups: Iterable[Body], lines: list[QueueLine], namespace: str) -> Iterator[LimitRow]:
    for group in groups:
        name = group["budget_group"]
        shared = "" if group["scope"] == "namespace" else " (all namespaces)"
        yield from _scope_rows(1, f"group {name}", shared, group, namespace)
        yield from _line_rows(2, (each for each in lines if _group_of(each) == name), namespace)


def _scope_rows(depth: int, name: str, note: str, body: Body, namespace: str) -> Iterator[LimitRow]:
    """The limits of a scope that are set; one row without any if none is."""
    found = False
    for part, words in _PARTS.items():
        view = body[part]
        for row in _part_rows(depth, f"{name}{note}{words}", view, namespace):
            found = True
            yield row
    if not found:
        whole = body["all"]
        dialog = link("limits", "change", namespace=namespace, scope=whole["scope"])
        yield LimitRow(depth, f"{name}{note}", "", "no limit", version=whole["version"], dialog=dialog)


def _part_rows(depth: int, name: str, view: Body, namespace: str) -> Iterator[LimitRow]:
    dialog = link("limits", "change", namespace=namespace, scope=view["scope"])
    if view["limits"]["paused"]["value"]:
        live = view["limits"]["paused"]["live"]
        yield LimitRow(
            depth, name, "", "pause", state="paused", live=live, version=view["version"], dialog=dialog
        )
    cooling = view.get("cooling")
    if cooling is not None and cooling["is_closed"]:
        yield LimitRow(
            depth, name, "", "cool-down", state="cooling", opens_at=cooling["until"], source="upstream"
        )
    for setting, words, counter in _SCOPE_LIMITS:
        limit = view["limits"].get(setting)
        if limit is None or limit["value"] is None:
            continue
        used = view["counts"].get(counter) or 0
        yield LimitRow(
            depth,
            name,
            "",
            words,
            used,
            limit["value"],
            _state(used, limit["value"]),
            limit["live"],
            limit["source"] or "",
            view["version"],
            dialog,
        )


def _run_row(cap: Body, namespace: str) -> LimitRow:
    """A cap on runs: how many are open, and how many wait to start."""
    live, counts = cap["limits"]["max_open_runs"], cap["counts"]
    most = None if live is None else live["value"]
    state = "" if most is None else _state(counts["open_runs"], most)
    return LimitRow(
        1,
        f"runs of {cap_dialogs.scope_words(cap['scope'], cap['name'])}",
        "",
        f"open runs, {counts['waiting_runs']:,} wait" if counts["waiting_runs"] else "open runs",
        counts["open_runs"],
        most,
        state,
        live,
        "",
        cap["version"],
        cap_dialogs.address_of(cap["scope"], cap["name"], namespace),
    )


def _state(used: float, most: float) -> str:
    if used >= most:
        return "binds"
    return "near" if used * 4 >= most * 3 else ""


def _line_rows(depth: int, lines: Iterable[QueueLine], namespace: str) -> Iterator[LimitRow]:
    for line in sorted(lines, key=lambda each: (each.queue, each.kind)):
        yield from _queue_rows(depth, line, namespace)


def _queue_rows(depth: int, line: QueueLine, namespace: str) -> Iterator[LimitRow]:
    kind = None if line.kind == "activity" else line.kind
    name = line.queue if kind is None else f"{line.queue} (workflow tasks)"
    address = link("queues", line.queue, namespace=namespace, kind=kind)
    caps = [cap for cap in line.section["caps"] if cap["scope"].startswith("queue:")]
    found = [_queue_row(depth, name, address, cap, line, namespace) for cap in caps]
    if not found:
        dialog = link("queues", line.queue, "cap", namespace=namespace, kind=line.kind)
        found = [LimitRow(depth, name, address, "no limit", dialog=dialog)]
    yield from found


def _queue_row(
    depth: int, name: str, address: str, cap: Mapping[str, Any], line: QueueLine, namespace: str
) -> LimitRow:
    setting, (words, _, what) = next(
        (setting, row) for setting, row in _QUEUE_SETTINGS.items() if row[1] == cap["limit"]
    )
    live = line.settings.get(setting)
    closed = cap["remaining"] <= 0
    state = "paused" if setting == "paused" else "binds" if closed and cap is binding(line.section) else ""
    if not state and cap["max"]:
        state = _state(cap["used"], cap["max"])
    most = (
        cap["max"] if cap["max"] is not None else (live or {}).get("value") if setting != "paused" else None
    )
    dialog = link("queues", line.queue, what, namespace=namespace, kind=line.kind) if what else ""
    return LimitRow(
        depth,
        name,
        address,
        words,
        cap["used"],
        most,
        state,
        live,
        "" if live else "declared",
        None,
        dialog,
        cap["opens_at"],
    )
