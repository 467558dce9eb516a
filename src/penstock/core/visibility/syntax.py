"""The syntax tree of a query: comparisons joined by AND, OR and NOT."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Literal: TypeAlias = str | int | float | bool
WORDS = (
    *("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "STARTS_WITH", "TRUE", "FALSE"),
    *("ORDER", "GROUP", "LIMIT", "LIKE"),
)
"""Keywords; a field of such a name must be in backquotes."""
_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)


class Operator(StrEnum):
    EQUAL = "="
    UNEQUAL = "!="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    BETWEEN = "BETWEEN"
    NOT_BETWEEN = "NOT BETWEEN"
    STARTS_WITH = "STARTS_WITH"
    NOT_STARTS_WITH = "NOT STARTS_WITH"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


@dataclass(frozen=True, slots=True)
class LiteralAt:
    """A literal and its position."""

    value: Literal
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a field with values."""

    name: str
    operator: Operator
    values: tuple[LiteralAt, ...] = ()
    quoted: bool = False
    """Whether the name is in backquotes, and so certainly a search attribute."""
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Negated:
    part: Query


Query: TypeAlias = Comparison | And | Or | Negated


def written(query: Query) -> str:
    """The query as text, which parses to the same query."""
    match query:
        case Comparison():
            return " ".join(_test(query))
        case And(parts):
            return " AND ".join(f"({written(part)})" for part in parts)
        case Or(parts):
            return " OR ".join(f"({written(part)})" for part in parts)
        case Negated(part):
            return f"NOT ({written(part)})"


def _test(test: Comparison) -> Iterator[str]:
    yield f"`{test.name}`" if test.quoted else _name(test.name)
    yield test.operator.value
    values = [_literal(each.value) for each in test.values]
    match test.operator:
        case Operator.IN | Operator.NOT_IN:
            yield f"({', '.join(values)})"
        case _:
            yield " AND ".join(values)


def _name(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.upper() not in WORDS:
        return name
    owner, dot, key = name.partition(".")
    return f"{owner}.`{key}`" if dot else f"`{name}`"


def _literal(value: Literal) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
