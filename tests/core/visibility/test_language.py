"""The query language: what can be said, and what is told when it is said wrongly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.visibility.binder import bind
from penstock.core.visibility.filters import RunView, matches
from penstock.core.visibility.parser import DEPTH_MAX, TESTS_MAX, VALUES_MAX, has_operator, parse
from penstock.core.visibility.query_errors import QueryProblem
from penstock.core.visibility.syntax import And, Comparison, LiteralAt, Negated, Operator, Or, Query, written
from penstock.core.visibility.tokens import QUERY_MAX
from tests.support.builders import NOW_MS, a_run
from tests.support.queries import REGISTERED, draw_query, draw_run


def said(name: str, operator: Operator, *values: str | float | bool, quoted: bool = False) -> Comparison:
    return Comparison(name, operator, tuple(map(LiteralAt, values)), quoted)


def problem(text: str) -> QueryProblem:
    with pytest.raises(QueryProblem) as caught:
        bind(parse(text), REGISTERED, NOW_MS)
    return caught.value


CUSTOMER = said("Customer", Operator.EQUAL, "acme")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Customer = 'acme'", CUSTOMER),
        ('Customer="acme"', CUSTOMER),
        (" Customer\n==\t'acme' ", CUSTOMER),
        ("(((Customer = 'acme')))", CUSTOMER),
        ("`Customer` = 'acme'", said("Customer", Operator.EQUAL, "acme", quoted=True)),
        ("Customer <> 'it''s'", said("Customer", Operator.UNEQUAL, "it's")),
        ('Customer != "say ""x"""', said("Customer", Operator.UNEQUAL, 'say "x"')),
        ("Customer = 'a\\'", said("Customer", Operator.EQUAL, "a\\")),
        ("Amount >= -1.5e3", said("Amount", Operator.AT_LEAST, -1500.0)),
        ("Amount < +7", said("Amount", Operator.BELOW, 7)),
        ("Urgent = TRUE", said("Urgent", Operator.EQUAL, True)),
        ("Amount between 1 and 2", said("Amount", Operator.BETWEEN, 1, 2)),
        ("Amount NOT BETWEEN 1 AND 2", said("Amount", Operator.NOT_BETWEEN, 1, 2)),
        ("Customer IN ('a', 'b')", said("Customer", Operator.IN, "a", "b")),
        ("Customer NOT IN ('a')", said("Customer", Operator.NOT_IN, "a")),
        ("Customer STARTS_WITH 'a'", said("Customer", Operator.STARTS_WITH, "a")),
        ("Customer IS NULL", said("Customer", Operator.IS_NULL)),
        ("Customer is not null", said("Customer", Operator.IS_NOT_NULL)),
        ("memo.note = 1", said("memo.note", Operator.EQUAL, 1)),
        ("memo.`odd key` = 1", said("memo.odd key", Operator.EQUAL, 1)),
        ("`order` = 1", said("order", Operator.EQUAL, 1, quoted=True)),
        (
            "a=1 AND b=2 OR NOT c=3 AND d=4",
            Or(
                (
                    And((said("a", Operator.EQUAL, 1), said("b", Operator.EQUAL, 2))),
                    And((Negated(said("c", Operator.EQUAL, 3)), said("d", Operator.EQUAL, 4))),
                )
            ),
        ),
        (
            "NOT (a=1 OR b=2)",
            Negated(Or((said("a", Operator.EQUAL, 1), said("b", Operator.EQUAL, 2)))),
        ),
    ],
)
def test_a_query_says_what_it_reads_like(text: str, query: Query) -> None:
    assert parse(text) == query


@given(st.randoms(use_true_random=False))
def test_a_query_that_is_written_down_reads_the_same(dice) -> None:
    query = draw_query(dice)
    assert parse(written(query)) == query


def outcome(text: str) -> Query | QueryProblem:
    try:
        return parse(text)
    except QueryProblem as found:
        return found


@given(st.text(max_size=200))
def test_any_text_is_a_query_or_has_a_problem_with_a_place(text: str) -> None:
    found = outcome(text)
    if isinstance(found, QueryProblem):
        assert 1 <= found.position <= len(text) + 1
        assert str(found)


WORDS = (
    "a",
    "=",
    "'x'",
    "1",
    "(",
    ")",
    "AND",
    "OR",
    "NOT",
    "IN",
    ",",
    "IS",
    "NULL",
    "<",
    "BETWEEN",
    "memo.`k`",
)


@given(st.lists(st.sampled_from(WORDS)))
def test_any_words_are_a_query_or_have_a_problem(words: list[str]) -> None:
    found = outcome(" ".join(words))
    if not isinstance(found, QueryProblem):
        assert parse(written(found)) == found


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 1, "the name of a field"),
        ("Customer", 9, "an operator: = != < <= > >= IN BETWEEN STARTS_WITH IS NULL"),
        ("Customer =", 11, "a value: a text in quotes, a number, true or false"),
        ("Customer = acme", 12, "a value: a text in quotes, a number, true or false"),
        ("Customer = NULL", 12, "IS NULL or IS NOT NULL instead of the operator"),
        ("Customer = 'acme", 12, "' at the end of the text"),
        ("Customer = 'a' Amount = 1", 16, "AND, OR or the end"),
        ("(Customer = 'a'", 16, ")"),
        ("Customer IN 'a'", 13, "("),
        ("Customer IN ()", 14, "a value: a text in quotes, a number, true or false"),
        ("Customer LIKE 'a%'", 10, "STARTS_WITH 'beginning'"),
        ("Customer = 'a' ORDER BY StartTime", 16, "the end"),
        ("StartTime > 24h", 13, "a number, or a text in quotes such as '24h ago'"),
        ("StartTime > 5", 13, "a time in quotes, such as '2026-01-31T12:00:00Z', '24h ago' or '-15m'"),
        ("StartTime > 'soon'", 13, "a time in quotes, such as '2026-01-31T12:00:00Z', '24h ago' or '-15m'"),
        ("StartTime > '24h'", 13, "a time in quotes, such as '2026-01-31T12:00:00Z', '24h ago' or '-15m'"),
        ("StartTime STARTS_WITH '2026'", 1, None),
        ("WorkflowId = 7", 14, "a text in quotes"),
        ("Amount = 'much'", 10, "a number"),
        ("Amount = true", 10, "a number"),
        ("Due > 7", 7, "a time in quotes, such as '2026-01-31T12:00:00Z', '24h ago' or '-15m'"),
        ("Urgent = 1", 10, "true or false"),
        ("Urgent > true", 1, "= or !="),
        ("`Free` BETWEEN 1 AND 'a'", 22, None),
        ("Customer = 'a'; DROP TABLE runs", 15, None),
        ("Customer = 'a' -- and more", 16, None),
        ("Customer = 1e999", 12, "a number below 1e308"),
        ("Customer = 'a\x00b'", 14, None),
        ("other.note = 1", 1, None),
        ("memo = 1", 1, None),
        ("Status > 'running'", 1, "Status = 'word' or Status IN (…)"),
    ],
)
def test_a_wrong_query_is_told_where_and_what_would_be_right(
    text: str, position: int, expected: str | None
) -> None:
    found = problem(text)
    assert found.position == position
    if expected is not None:
        assert found.expected == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("workflowtype = 'a'", "WorkflowType"),
        ("Statuss = 'running'", "Status"),
        ("WorkfowId = 'a'", "WorkflowId"),
        ("Custmer = 'a'", "Customer"),
    ],
)
def test_a_misspelt_field_is_told_the_nearest_one(text: str, meant: str) -> None:
    expected = problem(text).expected or ""
    assert expected.startswith(f"{meant};")
    assert "backquotes" in expected


@pytest.mark.parametrize("name", ["Amount2", "StartDate", "Tag", "X", "CustomerRegion"])
def test_a_name_of_its_own_is_no_misspelling(name: str) -> None:
    bind(parse(f"{name} = 'x'"), REGISTERED | {name: "keyword"}, NOW_MS)
    assert "No search attribute" in str(problem(f"{name} = 'x'"))


def test_a_status_that_there_is_not_is_told_which_there_are() -> None:
    assert "timed_out" in (problem("Status = 'done'").expected or "")


def test_order_by_is_refused_with_the_order_that_there_is() -> None:
    assert "newest first" in problem("a = 1 ORDER BY a").message


def test_the_size_of_a_query_is_bounded() -> None:
    assert "too long" in problem("a = '" + "x" * QUERY_MAX + "'").message
    assert "too many" in problem(" AND ".join(["a = 1"] * (TESTS_MAX + 1))).message
    assert "too deeply" in problem("(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1)).message
    assert "too deeply" in problem("NOT " * (DEPTH_MAX + 1) + "a = 1").message
    assert "too long" in problem(f"a IN ({', '.join(['1'] * (VALUES_MAX + 1))})").message
    parse(" AND ".join(["(a = 1)"] * TESTS_MAX))


@pytest.mark.parametrize(
    "text", ["order-1", "and", "acme or zenith", "in the end", "null", "between us", "a.b:c"]
)
def test_plain_text_is_not_taken_for_a_query(text: str) -> None:
    assert not has_operator(text)


@pytest.mark.parametrize(
    "text", ["a=b", "a > b", "a in ('b'", "a is null", "a STARTS_WITH b", "x order by y"]
)
def test_what_has_an_operator_is(text: str) -> None:
    assert has_operator(text)


# ── What queries mean ───────────────────────────────────────────────────────────────────────────────────

RUN = a_run(
    workflow_type="Order",
    business_key=None,
    started_at_ms=NOW_MS - 3_600_000,
    search_attributes='{"Tags": ["new", "late"], "Amount": 9.5, "Free": "2026-03-01T10:00:00+02:00", "Empty": []}',
    memo='{"note": 7, "deep": {"a": 1}, "nothing": null}',
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("StartTime > '2h ago' AND StartTime < '-30m'", True),
        ("StartTime >= '1h ago' AND StartTime <= '60m ago'", True),
        ("StartTime = '1h0m0s ago'", True),
        ("StartTime > 'now'", False),
        ("BusinessKey = 'x' OR BusinessKey != 'x' OR BusinessKey < 'x'", False),
        ("NOT BusinessKey = 'x'", True),
        ("BusinessKey IS NULL AND CloseTime IS NULL AND BuildId IS NULL", True),
        ("Tags = 'new' AND Tags = 'late'", True),
        ("Tags != 'new'", False),
        ("Tags NOT IN ('old', 'other')", True),
        ("Tags STARTS_WITH 'la'", True),
        ("Amount > 9 AND Amount < 10", True),
        ("Amount BETWEEN 9.5 AND 9.5", True),
        ("`Free` = '2026-03-01T08:00:00Z'", True),
        ("`Free` > '2026-03-01' AND `Free` < '2026-03-02'", True),
        ("`Free` STARTS_WITH '2026-03-01T10'", True),
        ("`Free` > '1h ago'", False),
        ("memo.note = 7 AND memo.note < 7.5", True),
        ("memo.note = '7'", False),
        ("memo.deep IS NOT NULL", True),
        ("memo.nothing IS NULL AND `Empty` IS NULL", True),
        (
            "ExecutionStatus = 'Running' AND Status = 'open' AND Status = 'pending' AND StatusBucket = 'running'",
            True,
        ),
        ("Status IN ('completed', 'failed')", False),
        ("Status IS NOT NULL", True),
        ("`Status` IS NULL", True),
    ],
)
def test_a_query_holds_or_does_not(text: str, holds: bool) -> None:
    assert matches(bind(parse(text), REGISTERED, NOW_MS), RunView(RUN)) is holds


@given(st.randoms(use_true_random=False))
def test_not_is_the_other_half(dice) -> None:
    query, seen = draw_query(dice), RunView(draw_run(dice, "r1"))
    plain, negated = bind(query, REGISTERED, NOW_MS), bind(Negated(query), REGISTERED, NOW_MS)
    assert matches(plain, seen) is not matches(negated, seen)
