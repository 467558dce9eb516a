"""Columns of tables and lines of facts, declared as text.

A declaration is a comma-separated list of `label=field:format`. Without a field, the field is the label with
underscores; a dotted field is looked up in nested objects. Without a format, the value is shown as it is.

    task=task_id:name, kind=task_type, task queue, held by=live.owner, expires=expires_at:when

Values that need code are passed as keyword arguments, by their label with underscores: a function of the row that
returns a value, which is formatted, or a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

Row = Mapping[str, Any]
CellOf = Callable[[Any], object]


class TableColumn(NamedTuple):
    """A column: its label, the keyword for its cell, the field that it shows, and the format."""

    label: str
    key: str
    field: str
    format: str


@cache
def columns(declaration: str) -> tuple[TableColumn, ...]:
    """Read a declaration."""
    return tuple(_column(each) for each in " ".join(declaration.split()).split(", "))


def lookup(row: object, field: str) -> Any:
    """The value of a field; None if it, or an object on the way to it, is missing."""
    value: Any = row
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _column(text: str) -> TableColumn:
    named, _, how = text.partition(":")
    label, _, field = named.partition("=")
    key = label.replace(" ", "_")
    return TableColumn(label, key, field or key, how)
