"""The workers of a recorded window: each for as long as it took tasks, with its slots.

A worker without a line was there all the time, because every change has a line: the server's present registrations
name those. A worker that was granted tasks and is in neither is unknown; it is given the slots that it was seen to use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from penstock.core.verify.journal import LeaseEnded, LeaseGranted, WorkerChanged
from penstock.simulator.traces.trace_file import RecordedWorker

KINDS = ("activity", "workflow")


class RecordedWorkers:
    """Collects the workers of a window from the lines of the journal, in their order."""

    def __init__(self, from_ms: int) -> None:
        """Start at the beginning of the window; times of the result count from it."""
        self._from_ms = from_ms
        self._spans: list[tuple[WorkerChanged, int, int | None, str]] = []
        """Of each worker: what it offers, from when, until when, and the state that ended it."""
        self._open: dict[str, tuple[WorkerChanged, int]] = {}
        self._named: set[str] = set()
        """Workers that have a line."""
        self._running: dict[tuple[str, str], tuple[str, str, str]] = {}
        self._seen: dict[tuple[str, str, str], list[int]] = {}
        """Workers with grants by queue and kind: leases now, most leases, first grant, last end."""
        self.unknown: list[str] = []

    def changed(self, line: WorkerChanged) -> None:
        """Note that a worker came, changed or went."""
        at_ms = max(0, line.at_ms - self._from_ms)
        before = self._open.pop(line.worker_id, None)
        if before is None and line.state != "registered" and line.worker_id not in self._named:
            before = (line, 0)
        self._named.add(line.worker_id)
        if before is not None and at_ms > 0:
            self._spans.append((before[0], before[1], at_ms, line.state))
        if line.state == "registered":
            self._open[line.worker_id] = (line, at_ms)

    def granted(self, line: LeaseGranted) -> None:
        """Note a grant to a worker, which therefore was there."""
        name = (line.worker_id or "", line.task_queue, line.kind)
        at_ms = line.at_ms - self._from_ms
        seen = self._seen.setdefault(name, [0, 0, max(0, at_ms), max(0, at_ms)])
        seen[0] += 1
        seen[1] = max(seen[1], seen[0])
        seen[3] = max(seen[3], at_ms)
        self._running[line.lease_id] = name

    def ended(self, line: LeaseEnded) -> None:
        """Note the end of a lease, which frees a slot."""
        found = self._running.pop(line.lease_id, None)
        if found is not None:
            seen = self._seen[found]
            seen[0] -= 1
            seen[3] = max(seen[3], line.at_ms - self._from_ms)

    def workers(self, now: Iterable[Mapping[str, Any]], until_ms: int) -> Iterator[RecordedWorker]:
        """All workers of the window.

        Args:
            now: the workers that are registered, as the API shows them.
            until_ms: the length of the window.
        """
        used = {(queue, kind) for _, queue, kind in self._seen}
        for each in now:
            silent_ms = _silent_ms(each, self._from_ms)
            if each["worker_id"] in self._named or silent_ms <= 0:
                continue
            if silent_ms < until_ms and each["status"] == "stale":
                self._spans.append((_registered(each), 0, silent_ms, "silent"))
            else:
                self._open[each["worker_id"]] = (_registered(each), 0)
        spans = [*self._spans, *((line, since, None, "") for line, since in self._open.values())]
        known: set[str] = set()
        for line, joins_ms, ends_ms, state in spans:
            known.add(line.worker_id)
            for kind in KINDS:
                slots = line.activity_slots if kind == "activity" else line.workflow_slots
                if slots and joins_ms < until_ms and (line.task_queue, kind) in used:
                    yield _worker(line, kind, slots, (joins_ms, ends_ms), dies=state == "silent")
        for (worker_id, queue, kind), (_, most, first_ms, last_ms) in self._seen.items():
            if worker_id not in known | self._named and last_ms >= 0:
                self.unknown.append(worker_id)
                yield RecordedWorker(worker_id, queue, kind, most, (), first_ms, max(last_ms, first_ms + 1))


def _silent_ms(shown: Mapping[str, Any], from_ms: int) -> int:
    """When a worker was heard last, after the beginning of the window."""
    return round(datetime.fromisoformat(shown["last_heartbeat_at"]).timestamp() * 1000) - from_ms


def _registered(shown: Mapping[str, Any]) -> WorkerChanged:
    return WorkerChanged(
        0,
        0,
        shown.get("namespace") or "",
        shown["worker_id"],
        "registered",
        shown["task_queue"],
        shown.get("max_concurrent_activity_tasks") or 0,
        shown.get("max_concurrent_workflow_tasks") or 0,
        tuple(shown.get("supported_activity_types") or ()),
        tuple(shown.get("supported_workflow_types") or ()),
    )


def _worker(
    line: WorkerChanged, kind: str, slots: int, span: tuple[int, int | None], *, dies: bool
) -> RecordedWorker:
    types = line.activity_types if kind == "activity" else line.workflow_types
    joins_ms, ends_ms = span
    return RecordedWorker(
        line.worker_id,
        line.task_queue,
        kind,
        slots,
        tuple(types),
        joins_ms,
        None if dies else ends_ms,
        ends_ms if dies else None,
    )
