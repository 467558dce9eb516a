"""How long, as people write it."""

from __future__ import annotations

from datetime import time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dispatch import parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0:10:00", 600),
        ("100:00:00", 360_000),
        ("0:00:00.5", 0.5),
        (" 0:10:00 ", 600),
        ("1 day, 0:10:00", 87_000),
        ("2 days, 0:00:01", 172_801),
        ("1d 0:10:00", 87_000),
        ("PT10M", 600),
        ("pt10m", 600),
        ("P1DT2H", 93_600),
        ("P1W", 604_800),
        ("PT0.5S", 0.5),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("500ms", 0.5),
        ("1d", 86_400),
        ("2w", 1_209_600),
        (600, 600),
        (1.5, 1.5),
        ("0:00:00.1234567", 0.123456),
    ],
)
def test_a_duration_is_read_in_every_form(written: object, seconds: float) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("10:00", "ambiguous, write H:MM:SS"),
        ("0:10", "ambiguous, write H:MM:SS"),
        ("1:00", "ambiguous, write H:MM:SS"),
        ("P1M", "calendar"),
        ("P1Y", "calendar"),
        ("600", "without quotes it means seconds"),
        ("", "not a duration"),
        ("P", "not a duration"),
        ("PT", "not a duration"),
        ("P1DT", "not a duration"),
        ("0:90:00", "not a duration"),
        ("0:10:00Z", "not a duration"),
        ("soon", "not a duration"),
        ("1h30", "not a duration"),
        ("٣s", "not a duration"),
        (True, "boolean"),
        (time(0, 10), "quote it"),
        ([], "not a duration"),
        (float("nan"), "not a duration"),
        (10**20, "longer than any duration"),
        ("99999999999999w", "longer than any duration"),
    ],
)
def test_what_could_mean_something_else_is_refused(written: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_duration(written)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000)))
def test_what_is_shown_can_be_read_again(duration: timedelta) -> None:
    assert parse_duration(str(duration)) == duration
