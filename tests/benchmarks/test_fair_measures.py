"""What is read from an order of dispatches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fair_measures import first_places, middle_and_worst, share_error, unserved_percent


def test_an_order_that_alternates_two_equal_keys_is_off_by_half_a_task():
    assert share_error(["a", "b"] * 10, {"a": 1, "b": 1}) == pytest.approx(0.5)


def test_a_key_that_goes_twice_in_its_turn_is_ahead_by_as_much():
    assert share_error(["a", "a", "b", "b"], {"a": 1, "b": 1}) == pytest.approx(1.0)


def test_a_key_that_is_never_served_is_behind_by_its_whole_share():
    assert share_error(["a"] * 10, {"a": 1, "b": 4}) == pytest.approx(8.0)


def test_the_error_is_the_worst_of_any_prefix_and_not_that_of_the_end():
    assert share_error(["a"] * 5 + ["b"] * 5, {"a": 1, "b": 1}) == pytest.approx(2.5)


@given(order=st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
def test_the_error_is_what_looking_at_every_key_in_every_prefix_finds(order: list[str]):
    weights = {"a": 5.0, "b": 3.0, "c": 2.0}
    everywhere = max(
        abs(order[:length].count(key) - weight / 10 * length)
        for length in range(len(order) + 1)
        for key, weight in weights.items()
    )
    assert share_error(order, weights) == pytest.approx(everywhere)


def test_keys_without_a_dispatch_are_counted_in_percent():
    assert unserved_percent(["a", "a", "b"], ["a", "b", "c", "d"]) == 50


def test_a_first_place_is_the_number_of_dispatches_before_it():
    assert first_places(["a", "b", "a", "c"], ["a", "c", "d"]) == {"a": 0, "c": 3}


def test_places_are_told_by_their_middle_and_their_worst():
    assert middle_and_worst([9, 1, 4]) == {"median": 4, "worst": 9}
