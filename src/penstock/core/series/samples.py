"""Samples of a queue, and how they are kept in rings of fixed size.

Theory of operation
-------------------
Every ten seconds one server takes a sample of each queue with work. Which one does not matter: everything is read from
rows that all servers share. Arrivals and dispatches are differences of the queue's meters, which claims and starts
update in their own transactions; so servers add up, and a restart loses nothing but the samples of the time in which no
server ran. A meter counts one calendar minute. A sample remembers what it read of each of the last minutes, and the
next one counts what those have grown by since: what arrived just before the minute ended, the first arrivals of a queue
included, and what was committed only in the next minute, is counted by the sample that reads it first, and once.

A resolution is a ring: the sample of an instant has the slot `instant / step mod slots`, and overwrites the one of an
hour (or a day) ago. Rows of a queue that became idle stay and are ignored by their age. Samples of a coarser resolution
are merged from the finer ones as they are taken: arrivals and dispatches are added, levels keep their maximum.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.series.waits import KeyWaits, added
from penstock.core.timestamps import MINUTE_MS


class SeriesResolution(Struct, frozen=True):
    """The step of a ring in seconds, and how many samples it holds."""

    step_s: int
    slots: int

    @property
    def step_ms(self) -> int:
        return self.step_s * 1000

    @property
    def length_ms(self) -> int:
        return self.step_ms * self.slots

    def begin_ms(self, at_ms: int) -> int:
        """The beginning of the step that an instant lies in."""
        return at_ms - at_ms % self.step_ms

    def slot(self, at_ms: int) -> int:
        return at_ms // self.step_ms % self.slots


FINE = SeriesResolution(10, 360)
COARSE = SeriesResolution(300, 288)
RESOLUTIONS = (FINE, COARSE)


def resolution_for(from_ms: int, now_ms: int) -> SeriesResolution:
    """The finest resolution that reaches back to an instant."""
    return FINE if now_ms - from_ms <= FINE.length_ms else COARSE


class SeriesMetric(StrEnum):
    """What a series shows. The values are API."""

    ADDED = "added_per_second"
    DISPATCHED = "dispatched_per_second"
    READY = "ready"
    DISPATCHABLE = "dispatchable"
    RUNNING = "running"
    DELAYED = "delayed"
    OLDEST = "oldest_wait_seconds"
    GATES = "gate_use"
    SHARES = "shares"
    WAITS = "waits"


METER_MINUTES = 5
"""Calendar minutes whose meters a sample reads."""


WAIT_KEYS_MAX = 8
"""Keys of a queue whose waits a sample keeps."""


class MeterReading(Struct, frozen=True):
    """Arrivals and dispatches of a queue in one calendar minute so far."""

    minute: int
    added: int = 0
    dispatched: int = 0


class GateUse(Struct, frozen=True, array_like=True):
    """How much of a limit was used."""

    kind: str
    scope: str
    used: int | None
    most: int | None
    is_closed: bool


class KeyShare(Struct, frozen=True, array_like=True):
    """The share of its level that a key asked for by weight, and got of the dispatches of the last minute."""

    key: str
    level: int
    waiting: int
    asked: float
    got: float | None


class QueueSample(Struct, frozen=True, omit_defaults=True):
    """A queue during one step."""

    at_ms: int
    """The beginning of the step."""
    ready: int
    running: int
    delayed: int
    dispatchable: int
    """The ready tasks; 0 while a limit of the queue or of its scopes is closed. Limits of keys do not count here."""
    oldest_wait_ms: int
    meters: tuple[MeterReading, ...] = ()
    """The latest minutes in which something was counted."""
    added: int = 0
    dispatched: int = 0
    gates: tuple[GateUse, ...] = ()
    keys: tuple[KeyShare, ...] = ()
    """Those with the most tasks."""
    waits: tuple[KeyWaits, ...] = ()
    """How long the tasks that started had waited, of the keys with the most; kept in the coarse ring only."""


def grown(sample: QueueSample, previous: QueueSample | None) -> QueueSample:
    """The sample with what arrived and was dispatched since the previous one.

    A meter that reads less than before counts as unchanged: another server read it earlier and was slower to save.

    Args:
        sample: the new sample, with the readings from `meters_from` on.
        previous: the latest sample of the queue, if it has one.
    """
    counted = {} if previous is None else {each.minute: each for each in previous.meters}
    meters: list[MeterReading] = []
    added = dispatched = 0
    for each in sample.meters:
        before = counted.get(each.minute, MeterReading(each.minute))
        reading = MeterReading(
            each.minute, max(each.added, before.added), max(each.dispatched, before.dispatched)
        )
        added += reading.added - before.added
        dispatched += reading.dispatched - before.dispatched
        meters.append(reading)
    return replace(sample, meters=tuple(meters), added=added, dispatched=dispatched)


def merged(coarse: QueueSample | None, fine: QueueSample, resolution: SeriesResolution) -> QueueSample:
    """The sample of a coarser step with one of a finer step added; None or one of an earlier step: it begins."""
    begin_ms = resolution.begin_ms(fine.at_ms)
    if coarse is None or coarse.at_ms != begin_ms:
        return replace(fine, at_ms=begin_ms)
    return replace(
        fine,
        at_ms=begin_ms,
        added=coarse.added + fine.added,
        dispatched=coarse.dispatched + fine.dispatched,
        ready=max(coarse.ready, fine.ready),
        running=max(coarse.running, fine.running),
        delayed=max(coarse.delayed, fine.delayed),
        dispatchable=max(coarse.dispatchable, fine.dispatchable),
        oldest_wait_ms=max(coarse.oldest_wait_ms, fine.oldest_wait_ms),
        waits=added(coarse.waits, fine.waits)[:WAIT_KEYS_MAX],
    )


def meters_from(at_ms: int) -> int:
    """The first minute whose meter the sample of a step reads; never earlier than that of the step before."""
    return minute_of(at_ms) - METER_MINUTES + 1


def minute_of(at_ms: int) -> int:
    return at_ms // MINUTE_MS
