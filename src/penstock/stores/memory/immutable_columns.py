"""Which columns of a row stay as they were first written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct


def immutable_columns(kind: type[Struct], changing: tuple[str, ...]) -> Callable[[Any], tuple[object, ...]]:
    """The columns that `save` does not write in the databases; a changed one would be lost there."""
    names = [name for name in kind.__struct_fields__ if name not in changing]
    return lambda row: tuple(getattr(row, name) for name in names)
