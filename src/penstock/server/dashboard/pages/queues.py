"""All task queues of a namespace: what binds each, and whether it drains by itself.

A queue has a line for each kind of task that it holds or has workers for. Lines are sorted by the wait of their oldest
task, the longest first, and those that nothing waits in by name: an order that changes only when the queues do.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.server.dashboard.formats import duration
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.gates import KINDS, binding, binding_words
from penstock.server.dashboard.view import View
from penstock.server.operation import Body

_TROUBLED = frozenset({"no_active_workers", "no_slots", "no_worker_for_type", "unavailable"})


class QueueLine(Struct, frozen=True):
    """The tasks of one kind in one queue."""

    queue: str
    kind: str
    status: str
    binds: str
    detail: str
    counts: Body
    section: Body
    settings: Body
    """The settings that somebody set, with author, reason and end."""
    forecast: str
    forecast_tone: str

    @property
    def waiting(self) -> int:
        return int(self.counts["ready_count"])

    @property
    def dispatchable(self) -> int:
        """Tasks that no limit holds back; those that no worker can run are among them, and alert."""
        return 0 if self.is_held else self.waiting

    @property
    def is_held(self) -> bool:
        return bool(self.waiting) and any(cap["remaining"] <= 0 for cap in self.section["caps"])

    @property
    def is_without_worker(self) -> bool:
        return bool(self.waiting) and self.status in _TROUBLED

    @property
    def is_growing(self) -> bool:
        return bool(self.counts["forecast"]["state"] == "grows")

    @property
    def cause(self) -> str:
        """What its waiting tasks wait for, without numbers."""
        closed = binding(self.section)
        if closed is not None:
            return f"{closed['scope'].partition(':')[0]} {closed['limit'].replace('_', ' ')}"
        return self.status.replace("_", " ") if self.binds else "its turn"

    @property
    def key(self) -> str:
        """Where the line is in the response of the API."""
        return f"{self.queue}.{self.kind}"


async def load(view: View) -> Values:
    found = lines_of(await view.read("list_task_queues"))
    show = view.query.get("show", "")
    views = {
        "": found,
        "held": [each for each in found if each.is_held],
        "growing": [each for each in found if each.is_growing],
        "unserved": [each for each in found if each.is_without_worker],
    }
    return {
        "lines": views.get(show, found),
        "show": show if show in views else "",
        "counts": {name: len(each) for name, each in views.items()},
    }


def lines_of(body: Body) -> list[QueueLine]:
    """The lines of all queues in a response of `list_task_queues`."""
    found = [
        line for queue in body["task_queues"] for kind in KINDS if (line := line_of(queue, kind)) is not None
    ]
    return sorted(
        found,
        key=lambda each: (
            -(each.counts["oldest_wait_seconds"] or 0),
            not each.waiting,
            each.queue,
            each.kind,
        ),
    )


def line_of(queue: Body, kind: str) -> QueueLine | None:
    """The line of one kind of tasks; None if there are no such tasks, no worker takes them, and no setting."""
    section, counts = queue["admission"][f"{kind}_tasks"], queue["stats"][f"{kind}_tasks"]
    waiting = counts["ready_count"]
    active = ("ready_count", "delayed_count", "leased_count", "added_last_minute")
    settings = queue["settings"][f"{kind}_tasks"]
    if not any(counts[name] for name in active) and not section["configured_slot_count"] and not settings:
        return None
    binds, detail = binding_words(section, waiting)
    words, tone = forecast_words(counts["forecast"])
    return QueueLine(
        queue["name"],
        kind,
        section["status"],
        binds,
        detail,
        counts,
        section,
        settings,
        words,
        tone,
    )


def forecast_words(forecast: Body) -> tuple[str, str]:
    """A forecast as people read it, and its tone."""
    match forecast["state"]:
        case "empty":
            return "empty", "good"
        case "clears":
            return f"clear in about {duration(forecast['clear_in_seconds'])}", ""
        case "steady":
            return "steady", ""
        case "grows":
            return f"grows by {forecast['grows_per_second']:.2g} /s, will not drain", "bad"
        case _:
            return "stalled", "bad"
