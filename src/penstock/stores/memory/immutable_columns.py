"""Checks that a save changes only the columns that the SQL stores write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct


def immutable_columns(kind: type[Struct], changing: tuple[str, ...]) -> Callable[[Any], tuple[object, ...]]:
    """A function that returns the columns of a row that `save` does not write: a change of one would be lost in SQL."""
    names = [name for name in kind.__struct_fields__ if name not in changing]
    return lambda row: tuple(getattr(row, name) for name in names)
