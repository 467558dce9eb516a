"""Explains the admission of a task queue: may it dispatch now, what limits it, and what to do about that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.cli.output.screen import Screen, ScreenCell, plain, status

Facts = Iterator[tuple[str, ScreenCell]]
_BAR_CHARACTERS = 12

_TASK_MEANING = {
    "accepting": "Workers have free slots and no server limit is full.",
    "throttled": "A server limit is reached. Raise it only if the downstream can take more.",
    "saturated": "All slots of the workers are in use. Add workers or slots.",
    "no_slots": "The workers offer no slots for this kind of task. Give them some.",
    "no_worker_for_type": "Tasks wait that no worker of this queue takes. Start one with their type and build.",
    "no_active_workers": "No healthy worker polls this queue. Start one.",
    "unavailable": "The server cannot coordinate this limit now, so it holds the tasks back.",
}

_QUERY_MEANING = {
    "accepting": "There is room for more queries.",
    "full": "As many queries wait as are allowed; new ones get status 429.",
    "unavailable": "The server cannot coordinate the queries now; new ones get status 503.",
}

_LIMITS = (
    ("Leases, queue", "active_lease", "active_leases_per_queue"),
    ("Leases, namespace", "namespace_active_lease", "active_leases_per_namespace"),
    ("Dispatches/min, queue", "dispatch", "dispatches_per_minute"),
    ("Dispatches/min, namespace", "namespace_dispatch", "dispatches_per_minute_per_namespace"),
    ("Dispatches/min, group", "budget_group_dispatch", "dispatches_per_minute_per_budget_group"),
)
"""Label, the words in the names of count and remainder, and the words in the name of the limit."""


def draw_admission(screen: Screen, admission: dict[str, Any]) -> None:
    """Draw one panel per kind of task."""
    for key, title in (("workflow_tasks", "Workflow tasks"), ("activity_tasks", "Activity tasks")):
        if isinstance(section := admission.get(key), dict):
            _draw_section(screen, title, section, _task_facts(section), _TASK_MEANING)
    if isinstance(section := admission.get("query_tasks"), dict):
        _draw_section(screen, "Query tasks", section, _query_facts(section), _QUERY_MEANING)


def _draw_section(
    screen: Screen, title: str, section: dict[str, Any], facts: Facts, meaning: dict[str, str]
) -> None:
    state = status(section.get("status"))
    screen.panel(ScreenCell(f"{title}: {state.text}", state.style), facts, meaning.get(state.text, ""))


def _task_facts(section: dict[str, Any]) -> Facts:
    if "ready_count" in section:
        yield "Ready", plain(section["ready_count"])
    if "active_worker_count" in section:
        yield "Active workers", plain(section["active_worker_count"])
    yield "Worker slots", _slots(section)
    for route in section.get("unserved") or []:
        build = f", build {route['build_id']}" if route.get("build_id") else ""
        text = f"{route.get('ready_count')} of type {route.get('type')}{build}: {route.get('message')}"
        yield "Taken by no worker", ScreenCell(text, "red")
    limits = [(label, gauge) for label, words, cap in _LIMITS if (gauge := _limit(section, words, cap))]
    for label, gauge in limits:
        yield _named(label, section), gauge
    if not limits:
        yield "Lease and dispatch caps", ScreenCell("none", "dim")
    elif source := section.get("server_budget_source"):
        yield "Limits from", plain(source)
    if section.get("server_lock_required") and section.get("server_lock_supported") is False:
        yield "Coordination", ScreenCell("needed and not available", "red")


def _limit(section: dict[str, Any], words: str, cap: str) -> ScreenCell | None:
    limit = section.get(f"server_max_{cap}")
    if limit is None:
        return None
    suffix = "_this_minute" if "dispatch" in words else ""
    count = section.get(f"server_{words}_count{suffix}")
    left = section.get(f"server_remaining_{words}_capacity")
    if count is None and isinstance(limit, int) and isinstance(left, int):
        count = limit - left
    return _gauge(count, limit)


def _named(label: str, section: dict[str, Any]) -> str:
    group = section.get("server_dispatch_budget_group")
    return f"{label} {group}" if label.endswith("group") and group else label


def _slots(section: dict[str, Any]) -> ScreenCell:
    total, leased = section.get("configured_slot_count"), section.get("leased_count")
    if leased is None:
        return plain(total)
    claimed = section.get("claimed_count") or 0
    gauge = _gauge(leased - claimed, total)
    return ScreenCell(f"{gauge.text}; {claimed} claimed ahead", gauge.style) if claimed else gauge


def _gauge(count: object, cap: object) -> ScreenCell:
    """Used of allowed, with a bar, red where nothing is left."""
    if not isinstance(count, int) or not isinstance(cap, int):
        return plain(cap)
    share = 1.0 if count >= cap else count / cap
    full = int(share * _BAR_CHARACTERS)
    left = max(0, cap - count)
    style = "red" if left == 0 else "yellow" if share >= 0.8 else ""
    return ScreenCell(f"{'#' * full}{'.' * (_BAR_CHARACTERS - full)} {count} of {cap}, {left} left", style)


def _query_facts(section: dict[str, Any]) -> Facts:
    count, cap = section.get("approximate_pending_count"), section.get("max_pending_per_queue")
    yield "Waiting", _gauge(count, cap)
    if section.get("lock_supported") is False:
        yield "Coordination", ScreenCell("needed and not available", "red")
