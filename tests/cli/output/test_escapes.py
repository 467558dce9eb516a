"""Escapes and phrases."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.output.escapes import shown, shown_json
from penstock.cli.output.payload_text import opened
from penstock.cli.output.times import relative
from penstock.wire.payloads import encode

NOW = datetime(2026, 4, 22, 12, 0, tzinfo=UTC)


@given(st.text())
def test_shown_text_is_one_line_without_anything_a_terminal_obeys(text: str) -> None:
    unsafe = [char for char in shown(text) if not char.isprintable() and char not in "\u200c\u200d"]
    assert all(char.isspace() or not ("\x00" <= char <= "\x9f") for char in unsafe)
    assert not any(char in shown(text) for char in "\n\r\t\x1b\x7f\x9b\u2028\u202e\u2066")


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_harmless_text_is_shown_as_it_is(text: str) -> None:
    assert shown(text) == text


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_escaped_json_means_the_same(value: object) -> None:
    escaped = shown_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(escaped) == value
    assert not any("\x7f" <= char <= "\x9f" or char == "\u202e" for char in escaped)


@pytest.mark.parametrize(
    ("past", "phrase"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=1), "1 second ago"),
        (timedelta(seconds=59), "59 seconds ago"),
        (timedelta(minutes=3, seconds=59), "3 minutes ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(days=800), "2 years ago"),
        (timedelta(minutes=-2), "in 2 minutes"),
    ],
)
def test_an_instant_is_phrased_by_its_largest_unit(past: timedelta, phrase: str) -> None:
    assert relative((NOW - past).isoformat(), NOW) == phrase


@pytest.mark.parametrize("zone", ["Z", "+00:00", "", ".123456Z"])
def test_every_spelling_of_utc_is_understood(zone: str) -> None:
    assert relative(f"2026-04-22T11:59:00{zone}", NOW + timedelta(milliseconds=200)) == "1 minute ago"


@pytest.mark.parametrize("odd", ["yesterday", 7, ["x"]])
def test_what_is_not_an_instant_is_shown_as_it_came(odd: object) -> None:
    assert relative(odd, NOW) == str(odd)


def test_payloads_are_opened_in_either_form() -> None:
    payload = encode({"a": [1, None]})
    assert opened(payload.envelope()) == {"a": [1, None]}
    assert opened(payload.blob) == {"a": [1, None]}
    assert opened(encode(b"\x00\xff").blob) == {"base64": "AP8="}


@pytest.mark.parametrize(
    "odd", [{"codec": "avro", "blob": "!"}, "wwHioz3/VYAiNw==", {"codec": "json"}, None, 3]
)
def test_what_cannot_be_opened_is_left_as_it_is(odd: object) -> None:
    assert opened(odd) == odd
