"""Timelines of long runs are kept: of closed runs for good, of open ones for a time that grows with their length."""

from __future__ import annotations

from penstock.engine.runtime.timeline_cache import EVENTS_A_MS, EVENTS_KEPT_MAX, LONG, TimelineCache

NOW_MS = 1_795_000_000_000
EVENTS = 50_000


def _kept(events: int = EVENTS, closed_at_ms: int | None = None) -> TimelineCache[str]:
    cache = TimelineCache[str]()
    cache.keep("run", events, closed_at_ms, NOW_MS, "drawn")
    return cache


def test_a_short_run_is_drawn_anew_each_time() -> None:
    assert _kept(LONG - 1).find("run", None, NOW_MS) is None
    assert _kept(LONG).find("run", None, NOW_MS) == "drawn"


def test_a_closed_run_is_drawn_once() -> None:
    assert _kept(closed_at_ms=5).find("run", 5, NOW_MS + 10**9) == "drawn"


def test_an_open_run_is_drawn_again_after_a_time_that_grows_with_its_length() -> None:
    cache, lasts_ms = _kept(), round(EVENTS / EVENTS_A_MS)
    assert cache.find("run", None, NOW_MS + lasts_ms - 1) == "drawn"
    assert cache.find("run", None, NOW_MS + lasts_ms) is None
    assert cache.find("run", None, NOW_MS - 1) is None, "a clock that went back"


def test_a_run_that_has_closed_since_is_drawn_again() -> None:
    assert _kept().find("run", NOW_MS, NOW_MS) is None


def test_what_was_not_asked_for_the_longest_makes_room() -> None:
    cache = TimelineCache[str]()
    for name in ("old", "asked", "new"):
        cache.keep(name, EVENTS_KEPT_MAX // 2, None, NOW_MS, name)
        cache.find("asked", None, NOW_MS)
    assert [name for name in ("old", "asked", "new") if cache.find(name, None, NOW_MS)] == ["asked", "new"]


def test_a_run_that_is_longer_than_all_that_is_kept_is_kept_alone() -> None:
    cache = _kept()
    cache.keep("huge", 2 * EVENTS_KEPT_MAX, None, NOW_MS, "huge")
    assert (cache.find("huge", None, NOW_MS), cache.find("run", None, NOW_MS)) == ("huge", None)
