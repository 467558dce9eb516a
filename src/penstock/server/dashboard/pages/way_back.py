"""The way back from a change: the dialog of the same limit, filled in with what was there before."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.limits.run_caps import scope_of
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import NONE
from penstock.server.dashboard.pages.settings.queue_settings import FIELDS as QUEUE_FIELDS
from penstock.server.dashboard.pages.settings.run_caps import FIELDS as CAP_FIELDS
from penstock.server.operation import Body

_OF_KEY = {
    "fairness_weight_override": "weight",
    "max_running": "cap",
    "rps_limit": "rate",
    "paused": "paused",
}
_OF_SCOPE = {
    "max_active_leases": "leases",
    "max_dispatches_per_minute": "dispatches",
    "max_cost_per_minute": "cost",
    "dispatch_window": "window",
    "paused": "paused",
}
_OF_QUEUE = {
    "max_running": ("cap", "to"),
    "max_dispatches_per_minute": ("cap", "dispatches"),
    "dispatch_budget_group": ("group", "to"),
    "queue_rps_limit": ("rate", "to"),
} | {each.setting: ("settings", each.name) for each in QUEUE_FIELDS}
_OF_RUNS = {each.setting: each.name for each in CAP_FIELDS}


def with_way_back(changes: Sequence[Body], namespace: str) -> list[Body]:
    """Changes, newest first, each with the address of the dialog that undoes it.

    Only the newest change of a setting has one: an older one is already replaced.

    Args:
        changes: What was recorded, each with its `scope`.
        namespace: The namespace of the page.
    """
    seen: set[tuple[str, str, str | None]] = set()
    found = []
    for change in changes:
        name = (change["scope"], change["setting"], change["fairness_key"])
        found.append(change | {"undo": "" if name in seen else _dialog(change, namespace)})
        seen.add(name)
    return found


def _dialog(change: Body, namespace: str) -> str:
    word, _, rest = change["scope"].partition(":")
    parts, setting, key = rest.split("/"), change["setting"], change["fairness_key"]
    before = NONE if change["before"] is None else str(change["before"]).removesuffix(".0")
    shared = {"namespace": namespace, "reason": f"back to before v{change['version']}", "for": NONE}
    if word == "queue" and len(parts) >= 3:
        queue, kind = "/".join(parts[1:-1]), parts[-1]
        if key:
            field = _OF_KEY.get(setting)
            value = ("yes" if change["before"] else "no") if field == "paused" else before
            return link("queues", queue, "keys", key, kind=kind, **shared, **{field: value}) if field else ""
        if setting == "paused":
            return link("queues", queue, "pause" if change["before"] else "resume", kind=kind, **shared)
        dialog, field = _OF_QUEUE.get(setting, ("", ""))
        return link("queues", queue, dialog, kind=kind, **shared, **{field: before}) if field else ""
    if word == "runs":
        runs, field = scope_of(change["scope"]), _OF_RUNS.get(setting)
        if field is None:
            return ""
        address = {"scope": runs.kind.value, "name": runs.value}
        return link("run-limits", "change", **address, **shared, **{field: before})
    field = _OF_SCOPE.get(setting)
    if field is None or word.partition("/")[0] not in ("cluster", "namespace", "group"):
        return ""
    value = ("yes" if change["before"] else "no") if field == "paused" else before
    return link("limits", "change", scope=change["scope"], **shared, **{field: value})
