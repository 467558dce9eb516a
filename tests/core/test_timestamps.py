"""Instants as text, and the first of some deadlines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.timestamps import earliest, iso, iso_or_none


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_790_000_000_000, "2026-09-21T14:13:20.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_told_to_the_millisecond_with_its_zone(at_ms: int, text: str):
    assert iso(at_ms) == text


@given(at_ms=st.integers(0, 253_402_300_799_999))
def test_no_instant_changes_on_its_way_through_text(at_ms: int):
    read = datetime.fromisoformat(iso(at_ms))
    assert (read - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == at_ms


def test_an_instant_that_is_not_set_has_no_text():
    assert iso_or_none(None) is None
    assert iso_or_none(0) == iso(0)


@given(instants=st.lists(st.one_of(st.none(), st.integers())))
def test_the_first_deadline_is_the_least_that_is_set(instants: list[int | None]):
    given_ones = [each for each in instants if each is not None]
    assert earliest(*instants) == (min(given_ones) if given_ones else None)
