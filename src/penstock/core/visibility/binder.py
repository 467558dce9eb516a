"""Binds a parsed query to a filter, given the search attributes of a namespace and the time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.core.timestamps import instant
from penstock.core.visibility.attributes import Types
from penstock.core.visibility.entries import MEMO, NAME_MAX
from penstock.core.visibility.fields import SYSTEM, QueryField
from penstock.core.visibility.filters import (
    All,
    ColumnTest,
    EntryTest,
    Filter,
    Not,
    Relation,
    Some,
)
from penstock.core.visibility.query_errors import QueryProblem, field_meant
from penstock.core.visibility.sort_keys import (
    TEXT_KEPT,
    ValueKind,
    boolean_key,
    instant_key,
    number_key,
    text_key,
)
from penstock.core.visibility.syntax import And, Comparison, LiteralAt, Negated, Operator, Or, Query
from penstock.schema.nearest import by_nearness

_RELATIONS = {
    Operator.EQUAL: Relation.IS,
    Operator.UNEQUAL: Relation.IS,
    Operator.BELOW: Relation.BELOW,
    Operator.AT_MOST: Relation.AT_MOST,
    Operator.ABOVE: Relation.ABOVE,
    Operator.AT_LEAST: Relation.AT_LEAST,
    Operator.IN: Relation.IS,
    Operator.NOT_IN: Relation.IS,
    Operator.BETWEEN: Relation.BETWEEN,
    Operator.NOT_BETWEEN: Relation.BETWEEN,
    Operator.STARTS_WITH: Relation.STARTS_WITH,
    Operator.NOT_STARTS_WITH: Relation.STARTS_WITH,
}
_NEGATIVE = (Operator.UNEQUAL, Operator.NOT_IN, Operator.NOT_BETWEEN, Operator.NOT_STARTS_WITH)
_EQUALITY = (Operator.EQUAL, Operator.UNEQUAL, Operator.IN, Operator.NOT_IN)
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(-?)((?:\d{1,9}[smhdw] *)+?)(?: *(ago))?", re.ASCII)
_KIND_OF_TYPE = {
    "keyword": ValueKind.TEXT,
    "text": ValueKind.TEXT,
    "keyword_list": ValueKind.TEXT,
    "int": ValueKind.NUMBER,
    "double": ValueKind.NUMBER,
    "bool": ValueKind.TRUTH,
    "datetime": ValueKind.INSTANT,
}
_NAMED_MAX = 10
"""Most registered attributes that an error lists."""
_EXPECTED = {
    ValueKind.TEXT: "a text in quotes",
    ValueKind.NUMBER: "a number",
    ValueKind.TRUTH: "true or false",
    ValueKind.INSTANT: "a time in quotes, such as '2026-01-31T12:00:00Z', '24h ago' or '-15m'",
}


def bind(query: Query, types: Types, now_ms: int, fields: Mapping[str, QueryField] = SYSTEM) -> Filter:
    """The filter of a query. Raises `QueryProblem`.

    An unregistered search attribute must be written in backquotes: otherwise a misspelt name would silently match no
    run or, under NOT, all of them.
    """
    match query:
        case And(parts):
            return All(tuple(bind(part, types, now_ms, fields) for part in parts))
        case Or(parts):
            return Some(tuple(bind(part, types, now_ms, fields) for part in parts))
        case Negated(part):
            return Not(bind(part, types, now_ms, fields))
        case Comparison():
            return _Binder(query, types, now_ms, fields).filter()


class _Binder:
    """Binds one test."""

    def __init__(self, test: Comparison, types: Types, now_ms: int, fields: Mapping[str, QueryField]) -> None:
        self._fields = fields
        self._test = test
        self._types = types
        self._now_ms = now_ms

    def filter(self) -> Filter:
        test = self._test
        field = None if test.quoted else self._fields.get(test.name)
        if field is None:
            return self._entry(self._attribute(), self._types.get(test.name))
        if field.words is not None:
            return self._worded(field.words)
        if field.entry is not None:
            return self._entry(field.entry, field.type)
        return self._column(field)

    def _attribute(self) -> str:
        """The name of an attribute; raises if it is likely a misspelt field or registered attribute."""
        test = self._test
        name = test.name
        if name.startswith(MEMO) or test.quoted or name in self._types:
            if len(name.removeprefix(MEMO)) > NAME_MAX:
                raise QueryProblem("The name is too long.", test.position, f"at most {NAME_MAX} characters")
            return name
        meant = field_meant(name, self._fields) or field_meant(name, self._types)
        if meant is None and "." not in name and name.lower() != "memo":
            raise QueryProblem(
                f"No search attribute {name[:60]!r} is registered in this namespace.",
                test.position,
                f"{self._registered()}; or `{name[:60]}` in backquotes, if runs carry it without registration",
            )
        raise QueryProblem(
            f"There is no field {name[:60]!r}.",
            test.position,
            f"{meant}; or `{name[:60]}` in backquotes for a search attribute of that name"
            if meant
            else "memo.key, the name of a search attribute, or one of " + ", ".join(self._fields),
        )

    def _registered(self) -> str:
        names = by_nearness(self._test.name, self._types)
        if not names:
            return "the name of a field (none is registered yet: `penstock search-attribute create`)"
        return ", ".join(names[:_NAMED_MAX]) + (" …" if len(names) > _NAMED_MAX else "")

    def _worded(self, words: Mapping[str, Filter]) -> Filter:
        test = self._test
        if not test.values:
            return All(()) if test.operator is Operator.IS_NOT_NULL else Some(())
        if test.operator not in _EQUALITY:
            raise QueryProblem(
                f"{test.name} has no order.", test.position, f"{test.name} = 'word' or {test.name} IN (…)"
            )
        either = Some(tuple(self._word(literal, words) for literal in test.values))
        return Not(either) if test.operator in _NEGATIVE else either

    def _word(self, literal: LiteralAt, words: Mapping[str, Filter]) -> Filter:
        found = words.get(str(literal.value).lower().replace(" ", "_"))
        if found is None:
            raise QueryProblem(
                f"{self._test.name} is never {literal.value!r:.60}.",
                literal.position,
                "one of " + ", ".join(words),
            )
        return found

    def _column(self, field: QueryField) -> Filter:
        column, test = field.column, self._test
        assert column is not None
        there = ColumnTest(column, Relation.PRESENT)
        if not test.values:
            return there if test.operator is Operator.IS_NOT_NULL else Not(there)
        kind = ValueKind.INSTANT if column.is_instant else ValueKind.TEXT
        self._check_operator(kind)
        values = tuple(self._instant(each) if column.is_instant else self._text(each) for each in test.values)
        held = ColumnTest(column, _RELATIONS[test.operator], values)
        return self._signed(held, None if field.always else there)

    def _entry(self, name: str, type_: str | None) -> Filter:
        test = self._test
        there = EntryTest(name, Relation.PRESENT)
        if not test.values:
            return there if test.operator is Operator.IS_NOT_NULL else Not(there)
        marks = tuple(self._mark(literal, self._kind(literal, type_)) for literal in test.values)
        kinds = {ValueKind(mark[0]) for mark in marks}
        for kind in kinds:
            self._check_operator(kind)
        if len(kinds) > 1 and _RELATIONS[test.operator] is Relation.BETWEEN:
            raise QueryProblem("BETWEEN takes two values of one kind.", test.values[1].position)
        return self._signed(EntryTest(name, _RELATIONS[test.operator], marks), there)

    def _signed(self, held: Filter, there: Filter | None) -> Filter:
        """A missing value is neither equal nor unequal to anything."""
        if self._test.operator not in _NEGATIVE:
            return held
        return Not(held) if there is None else All((there, Not(held)))

    def _check_operator(self, kind: ValueKind) -> None:
        test = self._test
        if kind is ValueKind.TRUTH and test.operator not in _EQUALITY:
            raise QueryProblem(f"{test.operator} does not go with true and false.", test.position, "= or !=")
        if kind is not ValueKind.TEXT and _RELATIONS[test.operator] is Relation.STARTS_WITH:
            raise QueryProblem(f"STARTS_WITH goes with texts only, not with {test.name}.", test.position)

    def _kind(self, literal: LiteralAt, type_: str | None) -> ValueKind:
        """The kind a value is compared as: the registered type of the attribute, else the kind of the literal."""
        if type_ is not None:
            return _KIND_OF_TYPE[type_]
        value = literal.value
        if isinstance(value, bool):
            return ValueKind.TRUTH
        if isinstance(value, int | float):
            return ValueKind.NUMBER
        if _RELATIONS[self._test.operator] is Relation.STARTS_WITH:
            return ValueKind.TEXT
        ordered = self._test.operator not in _EQUALITY
        is_time = instant(value) is not None or (ordered and _ago_ms(value) is not None)
        return ValueKind.INSTANT if is_time else ValueKind.TEXT

    def _mark(self, literal: LiteralAt, kind: ValueKind) -> str:
        value = literal.value
        if kind is ValueKind.TEXT:
            return text_key(self._text(literal))
        if kind is ValueKind.INSTANT:
            return instant_key(self._instant(literal))
        if kind is ValueKind.TRUTH and isinstance(value, bool):
            return boolean_key(value)
        if kind is ValueKind.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
            return number_key(value)
        raise self._mismatch(literal, kind)

    def _text(self, literal: LiteralAt) -> str:
        if not isinstance(literal.value, str):
            raise self._mismatch(literal, ValueKind.TEXT)
        if _RELATIONS[self._test.operator] is Relation.STARTS_WITH and len(literal.value) > TEXT_KEPT:
            raise QueryProblem(
                "The beginning is too long.", literal.position, f"at most {TEXT_KEPT} characters"
            )
        return literal.value

    def _instant(self, literal: LiteralAt) -> int:
        value = literal.value
        if isinstance(value, str):
            at_ms = instant(value)
            ago_ms = _ago_ms(value)
            if at_ms is not None:
                return at_ms
            if ago_ms is not None:
                return self._now_ms - ago_ms
        raise self._mismatch(literal, ValueKind.INSTANT)

    def _mismatch(self, literal: LiteralAt, kind: ValueKind) -> QueryProblem:
        return QueryProblem(
            f"{self._test.name[:60]} is not compared with {literal.value!r:.60}.",
            literal.position,
            _EXPECTED[kind],
        )


def _ago_ms(text: str) -> int | None:
    """The milliseconds of `24h ago`, `-15m` or `now`; None for other text."""
    if text == "now":
        return 0
    found = _AGO.fullmatch(text) if len(text) <= 64 else None
    if found is None or bool(found[1]) is bool(found[3]):
        return None
    parts: Iterable[tuple[str, str]] = re.findall(r"(\d+)([smhdw])", found[2])
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
