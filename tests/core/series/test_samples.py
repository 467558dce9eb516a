"""Samples of queues: differences of meters, rings and coarser steps."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.series.samples import (
    COARSE,
    FINE,
    MeterReading,
    QueueSample,
    grown,
    merged,
    meters_from,
    minute_of,
    resolution_for,
)
from penstock.core.timestamps import MINUTE_MS


def sample(at_ms: int, added: int = 0, dispatched: int = 0, **fields: int) -> QueueSample:
    levels: dict[str, Any] = {
        "ready": 0,
        "running": 0,
        "delayed": 0,
        "dispatchable": 0,
        "oldest_wait_ms": 0,
    } | fields
    return QueueSample(at_ms, **levels, meters=(MeterReading(minute_of(at_ms), added, dispatched),))


COUNTS = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 2))
"""Arrivals and dispatches, and by how many minutes the transaction that counted them began before it was committed."""


@given(
    script=st.lists(st.tuples(st.lists(COUNTS, max_size=3), st.integers(1, 12)), min_size=1, max_size=40),
    begin_ms=st.integers(0, MINUTE_MS),
)
def test_samples_add_up_to_what_the_meters_counted(
    script: list[tuple[list[tuple[int, int, int]], int]], begin_ms: int
) -> None:
    """Whatever was counted just before a minute ended, and however late a sample is, within two minutes."""
    meters: dict[int, MeterReading] = {}
    taken: list[QueueSample] = []
    now_ms = 10 * MINUTE_MS + begin_ms
    for counted, steps in script:
        for added, dispatched, before in counted:
            minute = minute_of(now_ms) - before
            known = meters.get(minute, MeterReading(minute))
            meters[minute] = MeterReading(minute, known.added + added, known.dispatched + dispatched)
        now_ms += steps * FINE.step_ms
        at_ms = FINE.begin_ms(now_ms)
        seen = tuple(meters[minute] for minute in sorted(meters) if minute >= meters_from(at_ms))
        taken.append(grown(replace(sample(at_ms), meters=seen), taken[-1] if taken else None))
        assert sum(each.added for each in taken) == sum(each.added for each in meters.values())
        assert sum(each.dispatched for each in taken) == sum(each.dispatched for each in meters.values())
    wide: dict[int, QueueSample] = {}
    for each in taken:
        slot = COARSE.slot(each.at_ms)
        wide[slot] = merged(wide.get(slot), each, COARSE)
    assert sum(each.added for each in wide.values()) == sum(each.added for each in meters.values())


def test_arrivals_after_a_sample_of_the_minute_before_are_counted_with_the_next_one() -> None:
    before = sample(50_000, added=5)
    meters = (MeterReading(0, added=7), MeterReading(1, added=2))
    assert grown(replace(sample(60_000), meters=meters), before).added == 4


def test_a_reading_that_another_server_took_earlier_and_saved_later_counts_nothing_twice() -> None:
    first = grown(sample(0, added=5), None)
    late = grown(sample(10_000, added=3), first)
    last = grown(sample(20_000, added=6), late)
    assert (first.added, late.added, last.added) == (5, 0, 1)


def test_a_ring_overwrites_what_is_as_old_as_itself() -> None:
    assert FINE.slot(0) == FINE.slot(FINE.length_ms)
    assert len({FINE.slot(at_ms) for at_ms in range(0, FINE.length_ms, FINE.step_ms)}) == FINE.slots
    stale = sample(0, ready=99)
    later = sample(COARSE.length_ms, ready=1)
    assert merged(stale, later, COARSE) == later


def test_levels_of_a_coarser_step_are_their_maximum() -> None:
    found = merged(sample(0, ready=5, running=1), sample(10_000, ready=2, running=3), COARSE)
    assert (found.at_ms, found.ready, found.running) == (0, 5, 3)


def test_the_last_hour_is_fine_and_what_is_older_coarse() -> None:
    now = 10 * FINE.length_ms
    assert resolution_for(now - FINE.length_ms, now) is FINE
    assert resolution_for(now - FINE.length_ms - 1, now) is COARSE
