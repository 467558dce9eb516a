"""What is excused after a standstill, and for how long."""

from __future__ import annotations

from penstock.engine.standstill import GRACE_S, STANDSTILL_S, Standstill


class Watch:
    """A monotonic clock that is told how it goes."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_excused_while_the_store_is_looked_at_regularly() -> None:
    watch = Watch()
    standstill = Standstill(watch)
    for _ in range(100):
        standstill.looked()
        watch.now += STANDSTILL_S
        assert standstill.excused_ms == 0


def test_nothing_is_excused_before_the_first_look() -> None:
    watch = Watch()
    standstill = Standstill(watch)
    watch.now += 3600
    assert standstill.excused_ms == 0


def test_a_standstill_is_excused_in_full_before_and_after_it_was_noticed_until_the_grace_ends() -> None:
    watch = Watch()
    standstill = Standstill(watch)
    standstill.looked()
    watch.now += 60
    assert standstill.excused_ms == 60_000, "a report may come before the sweeper's next look"
    standstill.looked()
    assert standstill.excused_ms == 60_000
    watch.now += GRACE_S - 1
    standstill.looked()
    assert standstill.excused_ms == 60_000
    watch.now += 1
    standstill.looked()
    assert standstill.excused_ms == 0


def test_a_server_is_fresh_for_a_while_after_its_first_look_and_never_again() -> None:
    watch = Watch()
    standstill = Standstill(watch)
    fresh = [standstill.fresh_ms]
    for seconds in (0, 2, GRACE_S, 60):
        watch.now += seconds
        standstill.looked()
        fresh.append(standstill.fresh_ms)
    assert fresh == [None, 0, 2_000, None, None]
