"""Forecasts of starts are judged by what happened."""

from __future__ import annotations

import pytest

from penstock.core.why.forecast_score import (
    ForecastCoverage,
    ForecastOutcome,
    StartForecast,
    coverage,
    outcome,
)

FORECAST = StartForecast("t", 0, 10_000, 20_000)


@pytest.mark.parametrize(
    ("started_at_ms", "now_ms", "expected"),
    [
        (8_999, 8_999, ForecastOutcome.EARLY),
        (9_000, 9_000, ForecastOutcome.HELD),
        (21_000, 90_000, ForecastOutcome.HELD),
        (21_001, 90_000, ForecastOutcome.LATE),
        (None, 21_000, None),
        (None, 21_001, ForecastOutcome.LATE),
    ],
)
def test_a_start_in_its_range_holds_and_one_that_is_not_there_when_it_is_over_is_late(
    started_at_ms: int | None, now_ms: int, expected: ForecastOutcome | None
) -> None:
    assert outcome(FORECAST, started_at_ms, now_ms) is expected


def test_coverage_is_the_share_that_held_and_nothing_before_the_first() -> None:
    assert coverage([]).share is None
    found = coverage([ForecastOutcome.HELD, ForecastOutcome.HELD, ForecastOutcome.HELD, ForecastOutcome.LATE])
    assert (found, found.share) == (ForecastCoverage(3, 0, 1), 0.75)
