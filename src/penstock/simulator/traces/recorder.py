"""From a journal to a trace: one window of one namespace, complete in itself.

The journal is read from its beginning, so that tasks that waited or ran when the window began are carried over: their
lines stand first, with their own times, which lie before the window. A journal that begins later than the window, or
whose clock was set, gives a trace that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    SettingsChanged,
    TaskGone,
    TaskReady,
    WorkerChanged,
)
from penstock.core.verify.journal_clock import CLOCK_STEP_MS
from penstock.simulator.traces.recorded_limits import RecordedLimits
from penstock.simulator.traces.recorded_workers import RecordedWorkers
from penstock.simulator.traces.trace_file import TraceTail

UNKNOWN_SHOWN_MAX = 5
Event = dict[str, Any]


class ServerState(Struct, frozen=True):
    """What the server says at the time of the export."""

    workers: tuple[Mapping[str, Any], ...] = ()
    queues: Mapping[tuple[str, str], Mapping[str, Any]] = {}
    """The settings of each queue, by name and kind."""


class TraceRecorder:
    """Takes the lines of a journal in their order, and gives the events of the window."""

    def __init__(self, namespace: str, from_ms: int, until_ms: int) -> None:
        """Prepare a window.

        Args:
            namespace: whose tasks are recorded.
            from_ms: where the window begins.
            until_ms: where it ends.
        """
        self._namespace, self._from_ms, self._until_ms = namespace, from_ms, until_ms
        self._limits, self._workers = RecordedLimits(from_ms), RecordedWorkers(from_ms)
        self._waiting: dict[str, Event] = {}
        self._running: dict[str, tuple[Event | None, Event]] = {}
        """Leased tasks: their arrival, if it is known, and their grant."""
        self._began = False
        self._first_ms: int | None = None
        self._last_ms = 0
        self._no_arrival = self._count = 0
        self._steps: list[int] = []
        self.queues: dict[tuple[str, str], None] = {}
        """Names and kinds of the queues of the window."""

    def take(self, line: JournalLine) -> Iterator[Event]:
        """The events that one line adds to the trace."""
        self._look_at_clock(line)
        if isinstance(line, SettingsChanged):
            self._limits.changed(line)
        if line.at_ms > self._until_ms:
            return
        if not self._began and line.at_ms >= self._from_ms:
            self._began = True
            yield from self._carried()
        for event in self._taken(line):
            if self._began:
                self._count += 1
                yield event

    def finish(self) -> Iterator[Event]:
        """The events of a window in which nothing happened."""
        if not self._began:
            self._began = True
            yield from self._carried()

    def _look_at_clock(self, line: JournalLine) -> None:
        if self._first_ms is None:
            self._first_ms = line.at_ms
        if line.at_ms < self._last_ms - CLOCK_STEP_MS:
            self._steps.append(line.at_ms)
            self._last_ms = line.at_ms
        self._last_ms = max(self._last_ms, line.at_ms)

    def _carried(self) -> Iterator[Event]:
        for arrival, grant in self._running.values():
            for event in (arrival, grant):
                if event is not None:
                    self._count += 1
                    yield event
        for event in self._waiting.values():
            self._count += 1
            yield event

    def _taken(self, line: JournalLine) -> Iterator[Event]:
        match line:
            case TaskReady() if line.namespace == self._namespace:
                self.queues[line.task_queue, line.kind] = None
                event = _ready(line)
                self._waiting[line.task_id] = event
                yield event
            case LeaseGranted() if line.namespace == self._namespace:
                yield from self._granted(line)
            case LeaseEnded() if line.task_id in self._running:
                del self._running[line.task_id]
                self._workers.ended(line)
                yield _fields(line, "ended", "task_id", "lease", "how")
            case TaskGone() if line.task_id in self._waiting:
                del self._waiting[line.task_id]
                yield _fields(line, "gone", "task_id", "how")
            case WorkerChanged() if line.namespace == self._namespace:
                self._workers.changed(line)

    def _granted(self, line: LeaseGranted) -> Iterator[Event]:
        self.queues[line.task_queue, line.kind] = None
        arrival = self._waiting.pop(line.task_id, None)
        event = _fields(
            line, "granted", "namespace", "task_queue", "kind", "task_id", "lease", "attempt", "worker_id", "key",
            "level", "weight",
        )  # fmt: skip
        self._limits.granted(line)
        self._workers.granted(line)
        self._running[line.task_id] = (arrival, event)
        if arrival is None and line.at_ms >= self._from_ms:
            self._no_arrival += 1
        yield event

    def tail(self, now: ServerState) -> TraceTail:
        """The last line of the trace."""
        until_ms = self._until_ms - self._from_ms
        workers = tuple(self._workers.workers(now.workers, until_ms))
        limits = [
            each for each in self._limits.settings(self._namespace, now.queues) if each.at_ms < until_ms
        ]
        return TraceTail(
            lines=self._count,
            workers=workers,
            limits=tuple(limits),
            missing=tuple(self._missing()),
            clock_steps=tuple(each for each in self._steps if self._from_ms <= each <= self._until_ms),
        )

    def _missing(self) -> Iterator[str]:
        if self._first_ms is None:
            yield "the journal is empty"
        elif self._first_ms > self._from_ms:
            late_s = (self._first_ms - self._from_ms) / 1000
            yield f"the first {late_s:,.0f} s of the window: the journal begins later"
        if self._no_arrival:
            yield f"the arrivals of {self._no_arrival:,} tasks, which waited before the journal began"
        if self._workers.unknown:
            unknown = sorted(set(self._workers.unknown))
            more = f" and {len(unknown) - UNKNOWN_SHOWN_MAX} more" if len(unknown) > UNKNOWN_SHOWN_MAX else ""
            names = ", ".join(unknown[:UNKNOWN_SHOWN_MAX])
            yield f"the slots of workers that are not registered any more: {names}{more}"


def record(
    lines: Iterable[JournalLine], namespace: str, from_ms: int, until_ms: int
) -> tuple[list[Event], TraceRecorder]:
    """The events of a window, and the recorder, which has the rest."""
    recorder = TraceRecorder(namespace, from_ms, until_ms)
    events = [event for line in lines for event in recorder.take(line)]
    return [*events, *recorder.finish()], recorder


def _ready(line: TaskReady) -> Event:
    return _fields(
        line, "ready", "namespace", "task_queue", "kind", "type", "task_id", "run_id", "key", "level", "attempt",
        "weight", "cost", "build", "due_at_ms", "after",
    )  # fmt: skip


def _fields(line: JournalLine, event: str, *names: str) -> Event:
    """An event with the fields that say something."""
    found = {name: value for name in names if (value := getattr(line, name)) not in (None, "")}
    if found.get("cost") == 0:
        del found["cost"]
    return {"seq": line.seq, "at_ms": line.at_ms, "event": event, **found}
