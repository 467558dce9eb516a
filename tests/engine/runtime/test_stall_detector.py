"""The lease grace after a stall."""

from __future__ import annotations

from penstock.engine.runtime.stall_detector import GRACE_S, STALL_S, StallDetector


class ManualClock:
    """A monotonic clock that is advanced by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_there_is_no_grace_while_the_store_is_read_regularly() -> None:
    clock = ManualClock()
    stall_detector = StallDetector(clock)
    for _ in range(100):
        stall_detector.record_read()
        clock.now += STALL_S
        assert stall_detector.lease_grace_ms == 0


def test_there_is_no_grace_before_the_first_read() -> None:
    clock = ManualClock()
    stall_detector = StallDetector(clock)
    clock.now += 3600
    assert stall_detector.lease_grace_ms == 0


def test_a_stall_is_granted_grace_in_full_before_and_after_it_was_noticed_until_the_grace_ends() -> None:
    clock = ManualClock()
    stall_detector = StallDetector(clock)
    stall_detector.record_read()
    clock.now += 60
    assert stall_detector.lease_grace_ms == 60_000, "a report may come before the sweeper's next look"
    stall_detector.record_read()
    assert stall_detector.lease_grace_ms == 60_000
    clock.now += GRACE_S - 1
    stall_detector.record_read()
    assert stall_detector.lease_grace_ms == 60_000
    clock.now += 1
    stall_detector.record_read()
    assert stall_detector.lease_grace_ms == 0


def test_a_server_is_fresh_for_a_while_after_its_first_read_and_never_again() -> None:
    clock = ManualClock()
    stall_detector = StallDetector(clock)
    fresh = [stall_detector.uptime_ms]
    for seconds in (0, 2, GRACE_S, 60):
        clock.now += seconds
        stall_detector.record_read()
        fresh.append(stall_detector.uptime_ms)
    assert fresh == [None, 0, 2_000, None, None]
