"""The nominal moments of a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.schedules.cron import Calendar, Cron, InvalidExpression, Range
from penstock.core.schedules.overlap import (
    BUFFER_MAX,
    Buffer,
    Overlap,
    Skip,
    SkipReason,
    StartNow,
    decide_fire,
)
from penstock.core.schedules.spec import (
    LOOKS_MAX,
    Interval,
    ScheduleSpec,
    TooManyLooks,
    _Merge,
    all_moments,
    fires_at_ms,
    moments,
    next_moment,
)
from penstock.core.schedules.spec_text import read_spec
from penstock.core.timestamps import instant, iso

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000


def at(text: str) -> int:
    found = instant(text)
    assert found is not None
    return found


def first(spec: ScheduleSpec, after: str, count: int = 3) -> list[str]:
    return [iso(each)[:19] for each in islice(moments(spec, UTC, at(after)), count)]


def test_moments_of_several_expressions_are_merged_in_order_and_none_comes_twice():
    spec = ScheduleSpec(
        crons=(Cron.parse("0 * * * *"), Cron.parse("30 12 * * *")),
        intervals=(Interval(6 * HOUR_MS),),
    )
    assert first(spec, "2026-11-18T11:10:00Z", 4) == [
        *("2026-11-18T12:00:00", "2026-11-18T12:30:00", "2026-11-18T13:00:00", "2026-11-18T14:00:00")
    ]


def test_an_interval_is_aligned_to_the_epoch_and_moved_by_its_offset():
    spec = ScheduleSpec(intervals=(Interval(24 * HOUR_MS, offset_ms=90 * 60_000),))
    assert first(spec, "2026-11-18T01:30:00Z", 2) == ["2026-11-19T01:30:00", "2026-11-20T01:30:00"]


def test_no_moment_lies_before_the_start_or_after_the_end():
    spec = ScheduleSpec(
        crons=(Cron.parse("@daily"),),
        start_at_ms=at("2026-12-24T00:00:00Z"),
        end_at_ms=at("2026-12-25T00:00:00Z"),
    )
    assert first(spec, "2026-11-18T00:00:00Z") == ["2026-12-24T00:00:00", "2026-12-25T00:00:00"]


def test_all_fields_of_a_calendar_must_match():
    friday_13th = Calendar(hour=(Range(9, 9),), day_of_month=(Range(13, 13),), day_of_week=(Range(5, 5),))
    found = first(ScheduleSpec(calendars=(friday_13th,)), "2026-01-01T00:00:00Z")
    assert found == ["2026-02-13T09:00:00", "2026-03-13T09:00:00", "2026-11-13T09:00:00"]


def test_a_calendar_has_seconds_and_years():
    twice = Calendar(
        second=(Range(0, 30, 30),),
        hour=(Range(9, 9),),
        month=(Range(1, 1),),
        day_of_month=(Range(1, 1),),
        year=(Range(2030, 2031),),
    )
    assert first(ScheduleSpec(calendars=(twice,)), "2026-01-01T00:00:00Z", 9) == [
        *("2030-01-01T09:00:00", "2030-01-01T09:00:30", "2031-01-01T09:00:00", "2031-01-01T09:00:30")
    ]


def test_moments_that_match_a_skipped_calendar_are_left_out():
    anytime = (Range(0, 59),)
    weekend = Calendar(
        second=anytime, minute=anytime, hour=(Range(0, 23),), day_of_week=(Range(6, 6), Range(0, 0))
    )
    spec = ScheduleSpec(crons=(Cron.parse("0 9 * * *"),), skip=(weekend,))
    assert first(spec, "2026-11-19T12:00:00Z") == [
        "2026-11-20T09:00:00",
        "2026-11-23T09:00:00",
        "2026-11-24T09:00:00",
    ]


def test_a_schedule_whose_moments_are_all_skipped_has_none():
    day = Calendar(minute=(Range(0, 59),), hour=(Range(0, 23),))
    assert next_moment(ScheduleSpec(crons=(Cron.parse("0 9 * * *"),), skip=(day,)), UTC, NOW_MS) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("* * * * * *", "six|6 fields, not five"),
        ("* * * *", "4 fields"),
        ("@fortnightly", "unknown macro"),
        ("61 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 31 2 *", "bad day of month"),
        ("0 0 30 2 MON#6", "bad day of week"),
        ("", "0 fields"),
        ("0 0 * * MON" + " " * 3 + "x" * 300, "longer than 256"),
    ],
)
def test_a_bad_expression_is_refused_with_what_is_wrong(text: str, problem: str):
    with pytest.raises(InvalidExpression, match=problem):
        Cron.parse(text)


def test_macros_and_names_are_cron():
    assert Cron.parse(" @Daily ").text == "0 0 * * *"
    spec = ScheduleSpec(crons=(Cron.parse("0 6 * jan mon"),))
    assert first(spec, "2026-11-18T00:00:00Z", 1) == ["2027-01-04T06:00:00"]


@pytest.mark.parametrize(
    "calendar",
    [
        Calendar(hour=(Range(5, 4),)),
        Calendar(hour=(Range(0, 24),)),
        Calendar(minute=(Range(0, 59, 0),)),
        Calendar(day_of_month=(Range(30, 30),), month=(Range(2, 2),)),
        Calendar(year=(Range(1999, 2001),)),
    ],
)
def test_a_calendar_that_cannot_match_is_refused(calendar: Calendar):
    with pytest.raises(InvalidExpression):
        calendar.check()


schedules = st.builds(
    ScheduleSpec,
    crons=st.lists(
        st.sampled_from(["*/5 * * * *", "0 9 * * 1-5", "@hourly", "30 2 * * *"]).map(Cron.parse), max_size=2
    ).map(tuple),
    intervals=st.lists(
        st.builds(Interval, st.integers(1_000, 10**9), st.integers(0, 10**6)), min_size=1, max_size=2
    ).map(tuple),
    jitter_ms=st.integers(0, HOUR_MS),
)


@given(spec=schedules, after_ms=st.integers(0, 4 * 10**12), name=st.text(max_size=5))
def test_jitter_keeps_the_order_of_fires_and_never_comes_early(spec: ScheduleSpec, after_ms: int, name: str):
    nominal = list(islice(moments(spec, UTC, after_ms), 4))
    due = [fires_at_ms(spec, UTC, name, each) for each in nominal]
    assert nominal == sorted(set(nominal))
    assert nominal[0] > after_ms
    assert due == sorted(due)
    for moment, fire, following in zip(nominal, due, [*nominal[1:], None], strict=True):
        assert moment <= fire
        assert following is None or fire < following
    assert due == [fires_at_ms(spec, UTC, name, each) for each in nominal], "every server computes the same"


@given(policy=st.sampled_from(Overlap), open_runs=st.integers(0, 3), buffered=st.integers(0, BUFFER_MAX + 1))
def test_a_fire_starts_beside_open_runs_only_where_the_policy_says_so(
    policy: Overlap, open_runs: int, buffered: int
):
    decision = decide_fire(policy, open_runs=open_runs, buffered=buffered)
    if not open_runs and not buffered:
        assert decision == StartNow()
    elif policy not in (Overlap.ALLOW_ALL, Overlap.TERMINATE_OTHER):
        assert decision != StartNow()
    if isinstance(decision, Buffer):
        assert buffered < BUFFER_MAX
    if isinstance(decision, Skip) and policy is Overlap.SKIP:
        assert decision.reason is SkipReason.OVERLAP


def test_the_expression_in_words():
    assert Cron.parse("30 2 * * MON").in_words() == "At 02:30 on Monday"


def test_the_next_moment_follows_the_last_nominal_one_and_not_the_clock():
    spec = ScheduleSpec(crons=(Cron.parse("0 * * * *"),))
    late = at("2026-11-18T05:59:59Z")
    assert list(moments(spec, UTC, at("2026-11-18T02:00:00Z"), late)) == [
        at(f"2026-11-18T0{hour}:00:00Z") for hour in (3, 4, 5)
    ]
    assert datetime.fromtimestamp(late / 1000, UTC).hour == 5


def test_a_calendar_whose_next_match_is_far_away_is_found_at_once() -> None:
    """It took minutes, because every second up to the match was looked at."""
    spec = read_spec({"calendars": [{"year": [2099], "month": [2], "day_of_month": [28], "hour": [7]}]})
    assert next_moment(spec, UTC, 0) == 4_075_945_200_000
    assert next_moment(spec, UTC, 4_075_945_200_000) is None


@given(
    hours=st.sets(st.integers(0, 23), min_size=1),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=5),
    days=st.sets(st.integers(0, 6), min_size=1),
    start=st.datetimes(datetime(2024, 2, 27), datetime(2024, 3, 2)),  # noqa: DTZ001 (wall-clock times)
)
def test_the_times_of_a_calendar_are_those_that_match(
    hours: set[int], minutes: set[int], days: set[int], start: datetime
) -> None:
    start = start.replace(second=30, microsecond=0)
    calendar = Calendar(
        hour=tuple(Range(each, each) for each in sorted(hours)),
        minute=tuple(Range(each, each) for each in sorted(minutes)),
        day_of_week=tuple(Range(each, each) for each in sorted(days)),
    )
    first = start + timedelta(seconds=30)
    scanned = [first + timedelta(minutes=number) for number in range(8 * 24 * 60)]
    expected = [each for each in scanned if calendar.matches(each)]
    assert list(islice(calendar.after(start), min(20, len(expected)))) == expected[:20]


def test_a_list_of_moments_ends_where_skip_leaves_few_and_one_that_needs_all_is_refused() -> None:
    minutely = {"second": [{"start": 0, "end": 58}], "minute": [{"start": 0, "end": 59}]}
    spec = read_spec(
        {"intervals": [{"every": "PT1S"}], "skip": [minutely | {"hour": [{"start": 0, "end": 23}]}]}
    )
    shown = list(moments(spec, UTC, 0))
    assert 0 < len(shown) < LOOKS_MAX
    assert {at_ms % 60_000 for at_ms in shown} == {59_000}
    with pytest.raises(TooManyLooks):
        list(all_moments(spec, UTC, 0))


def test_rare_expressions_that_skip_excludes_do_not_occupy_a_server_for_minutes() -> None:
    """One preview of 64 leap days, all of them skipped, kept all requests waiting for two minutes."""
    leap_days = [f"{minute} {hour} 29 2 *" for minute in range(32) for hour in (0, 12)]
    anytime = {"hour": [{"start": 0, "end": 23}], "minute": [{"start": 0, "end": 59}]}
    spec = read_spec({"cron_expressions": leap_days, "skip": [{"month": [2]} | anytime]})
    merge = _Merge(spec, UTC)
    assert merge.after(NOW_MS) is None
    assert merge.looks < 2 * LOOKS_MAX


def test_an_expression_that_is_given_twice_is_evaluated_once() -> None:
    once, twice = (_Merge(ScheduleSpec(crons=(Cron.parse("0 0 29 2 *"),) * times), UTC) for times in (1, 64))
    assert once.after(NOW_MS) == twice.after(NOW_MS)
    assert once.looks == twice.looks
