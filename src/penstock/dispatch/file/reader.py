"""Holds a tree of TOML values against the shape, and collects all that does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.dispatch.file.kinds import FieldKind
from penstock.dispatch.file.shape import Key, ListShape, TableOfShape, TableShape
from penstock.dispatch.problems import Problem, hint_towards
from penstock.schema.nearest import Suggestions
from penstock.schema.paths import KeyPath, shown_path

UNSET = "unset"
"""As a value: what an earlier file or the built-in defaults gave is taken back."""


@dataclass(slots=True)
class ShapeReader:
    """Walks the tree. `prefix` is the root table's name; `origins` knows the file and line of a path."""

    prefix: KeyPath
    origins: Mapping[KeyPath, str]
    problems: list[Problem] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    suggest: Suggestions = field(default_factory=Suggestions)

    def table(self, shape: TableShape, value: object, path: KeyPath) -> dict[str, Any]:
        """The values that fit, by key; an unset key is there with None."""
        if not isinstance(value, dict):
            self.refuse(path, "is not a table")
            return {}
        found: dict[str, Any] = {}
        for name, held in value.items():
            key = shape.key(name)
            if key is None:
                self._unknown(shape, name, held, (*path, name))
            elif key.is_unused:
                self.unused.append(shown_path((*self.prefix, *path, name)))
            else:
                self._key(key, held, (*path, name), found)
        for key in shape.keys:
            if key.is_required and (key.name not in value or value[key.name] == UNSET):
                self.refuse((*path, key.name), f"{key.name!r} is required")
        return found

    def refuse(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.problems.append(self.problem(path, message, hint))

    def problem(self, path: KeyPath, message: str, hint: str = "") -> Problem:
        return Problem(shown_path((*self.prefix, *path)), message, hint, self.origin(path))

    def origin(self, path: KeyPath) -> str:
        """The source of the value, of the nearest enclosing table, or of something in it; empty if there is none."""
        for depth in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:depth])) is not None:
                return origin
        inside = (origin for where, origin in self.origins.items() if where[: len(path)] == path)
        return next(inside, "")

    def _key(self, key: Key, held: object, path: KeyPath, found: dict[str, Any]) -> None:
        if held == UNSET:
            self._unset(key, found)
        elif isinstance(key.holds, TableShape):
            found[key.name] = self.table(key.holds, held, path)
        elif isinstance(key.holds, TableOfShape):
            found[key.name] = self._named(key.holds, held, path)
        elif isinstance(key.holds, ListShape):
            found[key.name] = self._list(key.holds, held, path)
        else:
            self._value(key.holds, held, path, found, key.name)

    def _unset(self, key: Key, found: dict[str, Any]) -> None:
        """Remove the value of earlier sources, which leaves none or the built-in default."""
        if key.can_be_unset:
            found[key.name] = None

    def _named(self, shape: TableOfShape, value: object, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse(path, "is not a table")
            return {}
        found: dict[str, Any] = {}
        for name, held in value.items():
            if held == UNSET:
                continue
            try:
                shape.name_kind.read(name)
            except ValueError as error:
                self.refuse((*path, name), f"the name of the {shape.noun}: {error}")
                continue
            if isinstance(shape.holds, TableShape):
                found[name] = self.table(shape.holds, held, (*path, name))
            else:
                self._value(shape.holds, held, (*path, name), found, name)
        return found

    def _list(self, shape: ListShape, value: object, path: KeyPath) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            self.refuse(path, "is not a list of tables")
            return []
        return [self.table(shape.holds, item, (*path, place)) for place, item in enumerate(value)]

    def _value(self, kind: FieldKind, held: object, path: KeyPath, found: dict[str, Any], name: str) -> None:
        try:
            found[name] = kind.read(held)
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            self.refuse(path, message, hint)

    def _unknown(self, shape: TableShape, name: str, held: object, path: KeyPath) -> None:
        if (instead := shape.instead.get(name)) is not None:
            message, _, hint = instead.partition("; ")
            self.refuse(path, message, hint)
        elif shape.also_unused is not None and isinstance(held, bool):
            self.unused.append(shown_path((*self.prefix, *path)))
        else:
            self.refuse(
                path, "unknown key", hint_towards(name, [key.name for key in shape.keys], self.suggest)
            )
