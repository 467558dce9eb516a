"""The first page: what needs attention, worst first, then the queues by their oldest wait, and the last hour.

A verdict is deterministic: it follows from the numbers of one snapshot, and says which. Work that a limit holds back on
purpose is not trouble by itself; it is mentioned once its oldest task has waited longer than `LONG_WAIT_S`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from penstock.errors import Forbidden
from penstock.ports.gather import gather
from penstock.server.dashboard.formats import ago, duration, moment_ms
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.queue import charts
from penstock.server.dashboard.pages.queues import QueueLine, lines_of
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

LONG_WAIT_S = 300
LINES_SHOWN = 8
CAUSES_SHOWN = 6
SCHEDULES_READ = 100
"""The newest schedules are judged."""
LATE_S = 60
"""A schedule whose moment is over for longer than this is late."""


class Verdict(Struct, frozen=True):
    """One thing that needs attention."""

    tone: str
    icon: str
    what: str
    reason: str
    since: str
    address: str
    label: str


async def load(view: View) -> Values:
    body, (health, hidden), schedules = await gather(
        view.read("list_task_queues"),
        view.try_read("read_system_health"),
        view.read("list_schedules", {"page_size": str(SCHEDULES_READ)}),
    )
    lines = lines_of(body)
    verdicts = [
        *_of_lines(lines, view.namespace),
        *of_schedules(schedules["schedules"], view.namespace, view.now_ms),
        *_of_health(health, view.namespace),
    ]
    busiest = max(lines, key=lambda each: (each.waiting, each.counts["dispatched_last_minute"]), default=None)
    series = None
    if busiest is not None:
        series = await view.read("read_queue_series", {"queue": busiest.queue, "kind": busiest.kind})
    return {
        "verdicts": sorted(verdicts, key=lambda each: each.tone != "bad"),
        "is_partial": isinstance(hidden, Forbidden),
        "lines": lines[:LINES_SHOWN],
        "line_count": len(lines),
        "waiting": sum(each.waiting for each in lines),
        "running": sum(each.counts["leased_count"] for each in lines),
        "arrivals": sum(each.counts["added_last_minute"] for each in lines),
        "dispatches": sum(each.counts["dispatched_last_minute"] for each in lines),
        "causes": causes(lines),
        "busiest": busiest,
        "charts": [] if series is None else charts(series["metrics"])[:3],
    }


def causes(lines: list[QueueLine]) -> list[tuple[str, int]]:
    """How many tasks wait for what, the most first."""
    found: Counter[str] = Counter()
    for line in lines:
        if line.waiting:
            found[line.cause] += line.waiting
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))[:CAUSES_SHOWN]


def _of_lines(lines: list[QueueLine], namespace: str) -> Iterator[Verdict]:
    for line in lines:
        kind = line.kind if line.kind != "activity" else None
        address = link("queues", line.queue, namespace=namespace, kind=kind)
        oldest = line.counts["oldest_wait_seconds"] or 0
        tasks = "1 task" if line.waiting == 1 else f"{line.waiting:,} tasks"
        since = f"oldest waits {duration(oldest)}"
        if line.is_without_worker:
            reason = (
                f"{line.binds[:1].upper()}{line.binds[1:]}; {line.detail}." if line.binds else line.status
            )
            yield Verdict(
                "bad",
                "no-workers",
                f"{line.queue}: {tasks} and no worker that takes them",
                reason,
                since,
                address,
                "Open",
            )
        elif line.is_held and oldest >= LONG_WAIT_S:
            reason = f"{line.binds}. Forecast: {line.forecast}."
            yield Verdict(
                "warn",
                "throttled",
                f"{line.queue} is held back: {tasks} wait",
                reason,
                since,
                address,
                "Gates",
            )
        elif line.is_growing and oldest >= LONG_WAIT_S:
            yield Verdict(
                "warn",
                "queues",
                f"{line.queue} grows: {tasks} wait",
                f"It {line.forecast}.",
                since,
                address,
                "Open",
            )


def of_schedules(schedules: list[Body], namespace: str, now_ms: int) -> Iterator[Verdict]:
    """Schedules whose last run failed, and those that nobody fires."""
    for each in schedules:
        name, info = each["schedule_id"], each["info"]
        address = link("schedules", name, namespace=namespace)
        failed_ms, due_ms = moment_ms(info["failed_at"]), moment_ms(each["next_fire_at"])
        if failed_ms is not None:
            latest = each["latest_workflow_instance_id"]
            what = f"{name}: a run of this schedule failed" + (", and it is paused" if each["paused"] else "")
            reason = each["note"] if each["paused"] and each["note"] else f"It started {latest} last."
            since = ago(info["failed_at"], now_ms)
            yield Verdict("bad", "failed", what, reason, since, address, "Open")
        elif due_ms is not None and not each["paused"] and now_ms - due_ms > LATE_S * 1000:
            reason = "Its moment is over, and no server has fired it."
            since = f"due {ago(each['next_fire_at'], now_ms)}"
            yield Verdict("bad", "timed-out", f"{name} is late", reason, since, address, "Open")


_CHECKS = {
    "leases": ("timed-out", "system", "expired leases"),
    "runs": ("blocked", "system", "runs without a task"),
    "activities": ("timed-out", "system", "activities past a timeout"),
    "workflow_tasks": ("blocked", "runs", "runs that fail their workflow task"),
    "store": ("unavailable", "system", "the store"),
}


def _of_health(health: Body | None, namespace: str) -> Iterator[Verdict]:
    for check in [] if health is None else health["checks"]:
        if check["status"] == "ok" or check["name"] not in _CHECKS:
            continue  # workers are judged queue by queue
        icon, page, subject = _CHECKS[check["name"]]
        tone = "bad" if check["status"] == "error" else "warn"
        address = link(page, namespace=namespace)
        yield Verdict(
            tone, icon, f"{check['count']:,} {subject}", check["message"] or "", "now", address, "Open"
        )
