"""The query box of the runs says what may come next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.visibility.parser import parse
from penstock.server.dashboard.pages.runs.completion import completions, quoted

ATTRIBUTES = {"customer": "keyword", "amount": "double", "gift": "bool"}
VALUES = {"WorkflowType": ["orders", "it's"]}


def words(text: str) -> list[str]:
    return [each.word for each in completions(text, ATTRIBUTES, VALUES)]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", "Status"),
        ("St", "StartTime"),
        ("cust", "customer"),
        ("Status ", "="),
        ("Status = ", "'open'"),
        ("Status = 'fai", "'failed'"),
        ("Status = 'failed' ", "AND"),
        ("Status = 'failed' AND ", "WorkflowType"),
        ("WorkflowType = ", "'orders'"),
        ("WorkflowType = 'it", "'it''s'"),
        ("StartTime ", ">"),
        ("StartTime > ", "'24h ago'"),
        ("amount ", "BETWEEN"),
        ("gift = ", "true"),
        ("NOT (Sta", "Status"),
    ],
)
def test_a_place_in_a_query_is_completed_with_what_fits_there(typed: str, expected: str) -> None:
    assert expected in words(typed)


def test_a_suggestion_is_the_text_as_it_would_become() -> None:
    (only,) = completions("Status = 'open' AND custo", ATTRIBUTES, {})
    assert only.text == "Status = 'open' AND customer "


def test_a_query_made_of_suggestions_can_be_parsed() -> None:
    text = ""
    for wanted in ("Status", "=", "'open'", "AND", "StartTime", "<", "'1h ago'"):
        text = next(each.text for each in completions(text, ATTRIBUTES, VALUES) if each.word == wanted)
    parse(text)  # raises where it cannot


def test_plain_text_gets_no_suggestions() -> None:
    assert words("order 4711") == []


@given(st.text(max_size=200))
def test_whatever_is_typed_the_box_answers(text: str) -> None:
    assert len(completions(text, ATTRIBUTES, VALUES)) <= 8


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), max_size=50))
def test_a_value_is_quoted_so_that_it_stays_one_value(text: str) -> None:
    parse(f"WorkflowId = {quoted(text)} AND Status = 'open'")  # raises where it cannot
