"""Parses the text of a query."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.core.visibility.query_errors import QueryProblem
from penstock.core.visibility.syntax import And, Comparison, LiteralAt, Negated, Operator, Or, Query
from penstock.core.visibility.tokens import QueryToken, TokenKind, tokens

DEPTH_MAX = 20
TESTS_MAX = 64
VALUES_MAX = 100
"""Most values in one IN."""
_SIGNS = {each.value: each for each in list(Operator)[:6]}
_NEGATED = {
    Operator.IN: Operator.NOT_IN,
    Operator.BETWEEN: Operator.NOT_BETWEEN,
    Operator.STARTS_WITH: Operator.NOT_STARTS_WITH,
}
_OPERATORS = "an operator: = != < <= > >= IN BETWEEN STARTS_WITH IS NULL"
_OPERATOR_INSIDE = re.compile(
    r"[=<>]|\b(?:in\s*\(|starts_with\b|is\s+(?:not\s+)?null\b|between\b.+\band\b|order\s+by\b)",
    re.IGNORECASE | re.DOTALL,
)


def parse(text: str) -> Query:
    """Parse a query. Raises `QueryProblem`."""
    return _Parser(text).query()


def has_operator(text: str) -> bool:
    """Whether a text must be a query, not part of an id."""
    return _OPERATOR_INSIDE.search(text) is not None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._place = 0
        self._depth = 0
        self._tests = 0

    def query(self) -> Query:
        found = self._or()
        token = self._next()
        if token.sort is not TokenKind.END:
            raise _unexpected_end(token)
        return found

    def _or(self) -> Query:
        parts = self._joined("OR", self._and)
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Query:
        parts = self._joined("AND", self._part)
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _joined(self, word: str, part: Callable[[], Query]) -> list[Query]:
        parts = [part()]
        while self._accept(word):
            parts.append(part())
        return parts

    def _part(self) -> Query:
        token = self._tokens[self._place]
        if not self._accept("NOT", "("):
            return self._test()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise QueryProblem(
                "The query is nested too deeply.", token.position, f"at most {DEPTH_MAX} levels"
            )
        inner: Query
        if token.text == "NOT":
            inner = Negated(self._part())
        else:
            inner = self._or()
            self._demand(")")
        self._depth -= 1
        return inner

    def _test(self) -> Comparison:
        token = self._next()
        if token.sort not in (TokenKind.NAME, TokenKind.QUOTED_NAME):
            raise QueryProblem(f"Found {token}.", token.position, "the name of a field")
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise QueryProblem("The query has too many tests.", token.position, f"at most {TESTS_MAX}")
        operator, values = self._held_against()
        return Comparison(token.text, operator, values, token.sort is TokenKind.QUOTED_NAME, token.position)

    def _held_against(self) -> tuple[Operator, tuple[LiteralAt, ...]]:
        token = self._next()
        if token.sort is TokenKind.SIGN and token.text in _SIGNS:
            return _SIGNS[token.text], (self._value(),)
        if token.sort is TokenKind.WORD and token.text == "IS":
            negated = self._accept("NOT")
            self._demand("NULL")
            return (Operator.IS_NOT_NULL if negated else Operator.IS_NULL), ()
        negated = token.sort is TokenKind.WORD and token.text == "NOT"
        token = self._next() if negated else token
        operator, values = self._worded(token)
        return (_NEGATED[operator] if negated else operator), values

    def _worded(self, token: QueryToken) -> tuple[Operator, tuple[LiteralAt, ...]]:
        match token.sort, token.text:
            case TokenKind.WORD, "IN":
                return Operator.IN, self._list()
            case TokenKind.WORD, "BETWEEN":
                low = self._value()
                self._demand("AND")
                return Operator.BETWEEN, (low, self._value())
            case TokenKind.WORD, "STARTS_WITH":
                return Operator.STARTS_WITH, (self._value(),)
            case TokenKind.WORD, "LIKE":
                raise QueryProblem("There is no LIKE.", token.position, "STARTS_WITH 'beginning'")
        raise QueryProblem(f"Found {token}.", token.position, _OPERATORS)

    def _list(self) -> tuple[LiteralAt, ...]:
        position = self._demand("(").position
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._demand(")")
        if len(values) > VALUES_MAX:
            raise QueryProblem("The list is too long.", position, f"at most {VALUES_MAX} values")
        return tuple(values)

    def _value(self) -> LiteralAt:
        token = self._next()
        if token.sort is TokenKind.VALUE:
            return LiteralAt(token.value, token.position)
        hint = "a value: a text in quotes, a number, true or false"
        if token.text == "NULL":
            hint = "IS NULL or IS NOT NULL instead of the operator"
        raise QueryProblem(f"Found {token}.", token.position, hint)

    def _next(self) -> QueryToken:
        token = self._tokens[self._place]
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    def _accept(self, *texts: str) -> bool:
        token = self._tokens[self._place]
        found = token.sort in (TokenKind.WORD, TokenKind.SIGN) and token.text in texts
        self._place += found
        return found

    def _demand(self, text: str) -> QueryToken:
        token = self._tokens[self._place]
        if not self._accept(text):
            raise QueryProblem(f"Found {token}.", token.position, text)
        return token


def _unexpected_end(token: QueryToken) -> QueryProblem:
    if token.sort is TokenKind.WORD and token.text in ("ORDER", "GROUP", "LIMIT"):
        return QueryProblem(
            f"There is no {token.text} in a query: runs come newest first, in pages.",
            token.position,
            "the end",
        )
    return QueryProblem(f"Found {token}.", token.position, "AND, OR or the end")
