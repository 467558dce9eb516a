"""Marks stand in the order of what they are of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.timestamps import instant, iso
from penstock.core.visibility.sort_keys import TEXT_KEPT, boolean_key, instant_key, number_key, text_key

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=300)


def written_order(one: float, other: float) -> int:
    """By the numbers as they are written, which is what JSON carries."""
    from decimal import Decimal

    left, right = Decimal(repr(one)), Decimal(repr(other))
    return (left > right) - (left < right)


@given(numbers, numbers)
def test_numbers_stand_in_their_order(one: float, other: float) -> None:
    left, right = number_key(one), number_key(other)
    assert (left > right) - (left < right) == written_order(one, other)


def test_one_number_has_one_key() -> None:
    assert number_key(1) == number_key(1.0)
    assert number_key(0) == number_key(-0.0)
    assert number_key(100) == number_key(1e2)
    assert len(number_key(-1.7976931348623157e308)) < 40


@given(texts, texts)
def test_texts_are_told_apart_and_stand_in_their_order(one: str, other: str) -> None:
    one, other = (each.replace("\x00", "") for each in (one, other))
    assert (text_key(one) == text_key(other)) is (one == other)
    if one[:TEXT_KEPT] != other[:TEXT_KEPT]:
        assert (text_key(one) < text_key(other)) is (one < other)


@given(st.text(max_size=5000))
def test_a_text_has_a_key_that_every_index_can_hold(text: str) -> None:
    mark = text_key(text)
    assert len(mark.encode()) <= 4 * TEXT_KEPT + 40
    assert "\x00" not in mark


def test_what_no_database_can_hold_is_replaced() -> None:
    assert text_key("a\x00\ud800") == text_key("a\ufffd\ufffd")


def test_kinds_are_never_mixed_up() -> None:
    kinds = {mark[0] for mark in (boolean_key(True), number_key(1), text_key("1"), instant_key(1))}
    assert len(kinds) == 4


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_an_instant_that_is_written_down_is_read_again(at_ms: int) -> None:
    assert instant(iso(at_ms)) == at_ms


def test_texts_that_name_no_instant_are_none() -> None:
    for text in (
        "",
        "2026",
        "2026-1-1",
        "2026-13-01",
        "2026-02-30",
        "20260101",
        "2026-01-01T",
        "2026-W01-1",
        "now",
    ):
        assert instant(text) is None
    assert instant("2026-01-01") == instant("2026-01-01T00:00Z") == instant("2026-01-01 01:00+01:00")
