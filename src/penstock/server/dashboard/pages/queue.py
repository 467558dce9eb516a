"""One queue: the pipe of its gates, who holds its leases, its keys, what waits in which order, and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.ports.gather import gather
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.gates import KINDS, binding, binding_words, pipe
from penstock.server.dashboard.pages.queues import forecast_words
from penstock.server.dashboard.pages.way_back import with_way_back
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

WAITING_SHOWN = 20
CHANGES_SHOWN = 8
POINTS_SHOWN = 40


async def load(view: View) -> Values:
    name = view.path["name"]
    body = await view.read("describe_task_queue", name=name)
    kind = view.query.get("kind") or _busier(body)
    kind = kind if kind in KINDS else KINDS[0]
    of_kind = {"task_queue_type": kind}
    section, counts = body["admission"][f"{kind}_tasks"], body["stats"][f"{kind}_tasks"]
    limits, history, waiting, series = await gather(
        view.read("read_task_queue_limits", of_kind, name=name),
        view.read("read_task_queue_config_history", of_kind | {"limit": str(CHANGES_SHOWN)}, name=name),
        view.read("read_waiting_tasks", of_kind | {"limit": str(WAITING_SHOWN)}, name=name),
        view.read("read_queue_series", {"queue": name, "kind": kind}),
    )
    scope = f"queue:{view.namespace}/{name}/{kind}"
    words, tone = forecast_words(counts["forecast"])
    binds, _ = binding_words(section, counts["ready_count"])
    return {
        "name": name,
        "kind": kind,
        "kinds": [each for each in KINDS if each == kind or _is_used(body, each)],
        "body": body,
        "section": section,
        "counts": counts,
        "limits": limits,
        "pipe": pipe(section, counts["rate"], counts["ready_count"], view.namespace, name),
        "binding": binding(section),
        "binds": binds,
        "cause": lede(section, counts, limits, words),
        "forecast": words,
        "forecast_tone": tone,
        "leases": leases_of(body, kind),
        "keys": counts["top_keys"],
        "key_count": sum(each["key_count"] for each in counts["backlog_by_priority"]),
        "waits": {each["key"]: each for each in series["metrics"]["waits"]},
        "got": got_over_time(series["metrics"]["shares"]),
        "waiting": waiting["tasks"],
        "workers": body["pollers"],
        "slots": f"available_{kind}_slots",
        "slots_of": f"max_concurrent_{kind}_tasks",
        "changes": with_way_back([each | {"scope": scope} for each in history["changes"]], view.namespace),
        "version": history["version"] if "version" in history else limits["version"],
        "charts": charts(series["metrics"]),
        "since": series["from"],
    }


def _busier(body: Body) -> str:
    """The kind of tasks to show first: activity tasks, unless the queue has only the others."""
    return KINDS[0] if _is_used(body, KINDS[0]) or not _is_used(body, KINDS[1]) else KINDS[1]


def _is_used(body: Body, kind: str) -> bool:
    counts = body["stats"][f"{kind}_tasks"]
    slots = body["admission"][f"{kind}_tasks"]["configured_slot_count"]
    return bool(slots or counts["ready_count"] or counts["leased_count"] or counts["added_last_minute"])


def lede(section: Body, counts: Body, limits: Body, forecast: str) -> tuple[str, str]:
    """The state of a queue in one sentence, and what follows from it."""
    waiting, cap = counts["ready_count"], binding(section)
    if not waiting:
        running = counts["leased_count"]
        return (
            "Nothing waits.",
            f"{running:,} {'task runs' if running == 1 else 'tasks run'}." if running else "",
        )
    tasks = "1 task waits" if waiting == 1 else f"{waiting:,} tasks wait"
    drains = f"{tasks}; at this pace: {forecast}."
    if cap is None:
        words, _ = binding_words(section, waiting)
        return (
            (f"{words[:1].upper()}{words[1:]}.", drains) if words else ("No limit holds a task back.", drains)
        )
    first = _who(limits) if cap["scope"].startswith("queue:") else ""
    words, _ = binding_words(section, waiting)
    return f"{words[:1].upper()}{words[1:]}.", f"{first}{drains}"


def _who(limits: Body) -> str:
    live = limits["limits"]["max_active_leases_per_queue"]["live"]
    if live is None:
        return ""
    reason = f": “{live['reason']}”" if live["reason"] else ""
    return f"{live['updated_by']} set it{reason}. "


def leases_of(body: Body, kind: str) -> list[Body]:
    """The leases of one kind of tasks, those that have been held longest first."""
    mine = [each for each in body["current_leases"] if each["task_type"] == kind]
    return sorted(mine, key=lambda each: each["leased_at"] or "")


def got_over_time(shares: Sequence[Body]) -> dict[str, list[float]]:
    """The share that each key got over the last hour, in percent, for a line."""
    found: dict[str, list[float]] = {}
    for line in shares:
        got = [point[1]["got"] for point in line["points"] if point[1]["got"] is not None]
        found[line["key"]] = thinned([round(100 * each, 1) for each in got])
    return found


def thinned(values: Sequence[float]) -> list[float]:
    """At most `POINTS_SHOWN` of some values, evenly spread."""
    step = max(1, -(-len(values) // POINTS_SHOWN))
    return list(values[::step])


def charts(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The charts of a queue's last hour."""
    return [
        chart("Waiting", ["waiting", "dispatchable"], [metrics["ready"], metrics["dispatchable"]]),
        chart(
            "In and out, a second",
            ["arrivals", "dispatches"],
            [metrics["added_per_second"], metrics["dispatched_per_second"]],
        ),
        chart("Running", ["running"], [metrics["running"]]),
        chart("Oldest wait, seconds", ["oldest wait"], [metrics["oldest_wait_seconds"]]),
    ]


def chart(title: str, names: Sequence[str], lines: Sequence[Sequence[Body]]) -> dict[str, Any]:
    """A chart of some series that have the same instants: what is drawn, and what it says in words."""
    points = [line[0]["points"] if line else [] for line in lines]
    times = [point[0] / 1000 for point in points[0]] if points else []
    values = [[point[1] for point in line] for line in points]
    latest = [line[-1] if line else 0 for line in values]
    said = "; ".join(
        f"{name} {last:g} now, at most {max(line, default=0):g}"
        for name, last, line in zip(names, latest, values, strict=True)
    )
    return {
        "title": title,
        "names": list(names),
        "points": [times, *values],
        "latest": latest,
        "text": f"{title} in the last hour: {said}",
        "is_empty": len(times) < 2,
    }
