"""Which columns of a row stay as they were first written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any


def what_stays(kind: type, changing: tuple[str, ...]) -> Callable[[Any], tuple[object, ...]]:
    """The columns that `save` does not write in the databases; a changed one would be lost there."""
    names = [each.name for each in fields(kind) if each.name not in changing]
    return lambda row: tuple(getattr(row, name) for name in names)
