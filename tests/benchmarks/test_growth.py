"""How fast something grows, read off samples of a soak."""

from __future__ import annotations

import pytest

from benchmarks.growth import slope_per_hour


def test_what_grows_evenly_grows_by_as_much_an_hour():
    assert slope_per_hour([(0, 10.0), (1800, 11.0), (3600, 12.0)]) == pytest.approx(2.0)


def test_what_only_swings_does_not_grow():
    assert slope_per_hour([(0, 10.0), (10, 11.0), (20, 10.0)]) == pytest.approx(0.0)


@pytest.mark.parametrize("points", [[], [(0, 5.0)], [(3, 5.0), (3, 6.0)]])
def test_one_moment_says_nothing_of_growth(points):
    assert slope_per_hour(points) == 0
