"""What a search is to reach: a quantile of waits, or the end of a backlog."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import TaskKind
from penstock.errors import InvalidInput, Reason
from penstock.simulator.measures import Measures, QueueName, quantile
from penstock.simulator.model_file import milliseconds
from penstock.simulator.workload import Workload

_WAIT = re.compile(
    r"(p50|p90|p95|p99) wait(?: of (?:key )?(?P<key>.+?))? in (?P<queue>.+?) *<= *(?P<most>.+)"
)
_BACKLOG = re.compile(r"backlog of (?P<queue>.+?) gone (?:(?:within|in) (?P<most>.+)|by (?P<by>.+))")
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


class SearchTarget(Struct, frozen=True):
    """A figure of a queue, and the most that it may be, in milliseconds."""

    text: str
    queue: str
    most_ms: int
    quantile: float | None = None
    """Of waits; None: the time at which the backlog is gone."""
    key: str | None = None
    by: str | None = None
    """The time of day in UTC, or the instant, by which a backlog is to be gone; `at_start` makes it `most_ms`."""

    def at_start(self, start_ms: int) -> SearchTarget:
        """The target of a load that begins at an instant. Raises `InvalidInput` if the time has passed by then."""
        if self.by is None:
            return self
        most_ms = round(_moment(self.by, start_ms).timestamp() * 1000) - start_ms
        if most_ms <= 0:
            raise _invalid(f"{self.by} is before the load begins.")
        return replace(self, most_ms=most_ms)

    def name_in(self, workload: Workload) -> QueueName:
        """The queue that is meant: its activity tasks, if it has any. Raises `InvalidInput` if it has no tasks."""
        kinds = {each.kind for each in workload.arrivals if each.queue == self.queue}
        if not kinds:
            raise _invalid(f"There are no tasks for the queue {self.queue!r}.")
        return self.queue, TaskKind.ACTIVITY if TaskKind.ACTIVITY in kinds else TaskKind.WORKFLOW

    def figure(self, measures: Measures, name: QueueName) -> float:
        """The figure in one run; infinite if tasks never get their turn."""
        queue = measures.queues.get(name)
        if queue is None:
            return 0.0
        if self.quantile is None:
            return float("inf") if queue.cleared_at_ms is None else queue.cleared_at_ms
        if self.key is None:
            left, waits = queue.waiting, queue.waits()
        else:
            of_key = queue.key(self.key)
            left, waits = of_key.waiting, sorted(of_key.waits)
        return float("inf") if left else quantile(waits, self.quantile)


def parse_target(text: str) -> SearchTarget:
    """Read a target. Raises `InvalidInput` with all forms."""
    wait = _WAIT.fullmatch(text.strip())
    if wait:
        most_ms = milliseconds(wait["most"])
        return SearchTarget(text, wait["queue"], most_ms, _QUANTILES[wait[1]], wait["key"])
    backlog = _BACKLOG.fullmatch(text.strip())
    if backlog and backlog["most"]:
        return SearchTarget(text, backlog["queue"], milliseconds(backlog["most"]))
    if backlog:
        _moment(backlog["by"], 0)
        return SearchTarget(text, backlog["queue"], 0, by=backlog["by"])
    raise _invalid(
        f"{text!r} is no target; write 'p95 wait of tenant-a in invoices <= 30s', 'p95 wait in invoices <= 30s', "
        "'backlog of invoices gone within 2h' or 'backlog of invoices gone by 09:00'"
    )


def _moment(text: str, start_ms: int) -> datetime:
    """An instant, or the next time that a clock in UTC shows `09:00`."""
    start = datetime.fromtimestamp(start_ms / 1000, UTC)
    clock = _CLOCK.fullmatch(text.strip())
    if clock:
        found = start.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return found if found > start else found + timedelta(days=1)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _invalid(f"{text!r} is no time; write 09:00 (UTC) or 2026-01-05T09:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
