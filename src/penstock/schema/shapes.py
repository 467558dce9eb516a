"""Shapes of tables, and the reader that holds a tree of values against one and collects all that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.schema.kinds import Kind, Text
from penstock.schema.nearest import Suggestions
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import InvalidValue, Problem, hint_towards, quoted, shown

UNSET = "unset"
"""As a value of a file: what an earlier file or the built-in defaults gave is taken back."""
_KEYS_SHOWN_MAX = 12


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    name: str
    holds: Kind | Table | TableOf | ListOf
    says: str = ""
    is_required: bool = False
    can_be_unset: bool = False
    is_unused: bool = False
    """Accepted because other programs read the same file; it has no effect here."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with known keys. `instead` explains keys that belong elsewhere; `make` makes a value of what is held."""

    keys: tuple[Key, ...]
    instead: Mapping[str, str] = field(default_factory=dict)
    also_unused: Kind | None = None
    """What any other key may hold, unused; None: other keys are refused."""
    needs_one_of: tuple[str, ...] = ()
    make: Callable[..., Any] = dict

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True)
class TableOf:
    """A table whose keys are names that the user chose."""

    holds: Kind | Table
    noun: str
    name_kind: Kind = field(default_factory=Text)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of tables."""

    holds: Table


Shape = Kind | Table | TableOf | ListOf


def _value_itself(value: object, path: KeyPath) -> object:
    return value


@dataclass(slots=True)
class ShapeReader:
    """Reads trees by their shape. All paths are below `prefix`; `problems` says what did not fit, and where."""

    prefix: KeyPath
    origin_of: Callable[[KeyPath], str]
    """Where the value of a path was given."""
    problems: list[Problem] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    suggest: Suggestions = field(default_factory=Suggestions)
    unset: object = UNSET
    """The value that stands for none."""
    table_word: str = "a table"
    kept: Callable[[object, KeyPath], object] = _value_itself
    """What the result has for a value; it may keep the path."""
    refused: dict[KeyPath, None] = field(default_factory=dict)
    """The paths of the problems."""

    def read(self, shape: Shape, value: object, path: KeyPath) -> Any:
        """What the value holds, as far as it fits. Raises `InvalidValue` for a single value that does not."""
        if isinstance(shape, Table):
            return self.table(shape, value, path)
        if isinstance(shape, TableOf):
            return self._named(shape, value, path)
        if isinstance(shape, ListOf):
            return self._list(shape, value, path)
        return self.kept(shape.read(value), path)

    def table(self, shape: Table, value: object, path: KeyPath) -> Any:
        """The values that fit, by key; an unset key is there with None."""
        found: dict[str, Any] = {}
        before = len(self.problems)
        for name, held in self._members(value, path, _listed(shape)).items():
            here = (*path, name)
            key = shape.key(name)
            if key is None:
                self._unknown(shape, name, held, here)
            elif key.is_unused:
                self.unused.append(shown_path((*self.prefix, *here)))
            elif held != self.unset:
                self._put(found, name, key.holds, held, here)
            elif key.can_be_unset:
                found[name] = self.kept(None, here)
        for name in (key.name for key in shape.keys if key.is_required and key.name not in found):
            if (*path, name) not in self.refused:
                self.refuse((*path, name), f"{name!r} is required")
            found[name] = ""
        needed = shape.needs_one_of
        if needed and len(self.problems) == before and found.keys().isdisjoint(needed):
            self.refuse(path, f"needs one of {', '.join(needed)}")
        return shape.make(**found)

    def refuse(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.refused[path] = None
        self.problems.append(self.problem(path, message, hint))

    def problem(self, path: KeyPath, message: str, hint: str = "") -> Problem:
        return Problem(shown_path((*self.prefix, *path)), message, hint, self.origin_of(path))

    def _put(self, found: dict[Any, Any], name: object, shape: Shape, held: object, path: KeyPath) -> None:
        try:
            found[name] = self.read(shape, held, path)
        except ValueError as error:
            self._explain(path, str(error))

    def _explain(self, path: KeyPath, text: str) -> None:
        message, _, hint = text.partition("; ")
        self.refuse(path, message, hint)

    def _members(self, value: object, path: KeyPath, holds: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            with_keys = f" with {holds}" if holds else ""
            self.refuse(path, f"must be {self.table_word}{with_keys}, not {shown(value)}")
            return {}
        for name in getattr(value, "repeated", ()):
            self.refuse((*path, name), "stands here more than once: keep one of them")
        return value

    def _named(self, shape: TableOf, value: object, path: KeyPath) -> Mapping[Any, Any]:
        found: dict[Any, Any] = {}
        names: dict[object, str] = {}
        for name, held in self._members(value, path, f"an entry for each {shape.noun}").items():
            here = (*path, name)
            try:
                key = shape.name_kind.read(name)
            except InvalidValue as error:
                self._explain(here, error.message)
                continue
            if key in names:
                self.refuse(here, f"is the same key as {quoted(names[key])}: keep one of them")
                continue
            names[key] = name
            if held != self.unset:
                self._put(found, key, shape.holds, held, here)
        return found

    def _list(self, shape: ListOf, value: object, path: KeyPath) -> tuple[Any, ...]:
        if not isinstance(value, list):
            self.refuse(path, f"must be a list of tables, not {shown(value)}")
            return ()
        return tuple(self.table(shape.holds, item, (*path, place)) for place, item in enumerate(value))

    def _unknown(self, shape: Table, name: str, held: object, path: KeyPath) -> None:
        if (instead := shape.instead.get(name)) is not None:
            self._explain(path, instead)
        elif shape.also_unused is not None and isinstance(held, bool):
            self.unused.append(shown_path((*self.prefix, *path)))
        else:
            known = [key.name for key in shape.keys]
            hint = hint_towards(name, known, self.suggest)
            self.refuse(path, "unknown key", hint or ((there := _listed(shape)) and f"there are {there}"))


def _listed(shape: Table) -> str:
    """The keys of a table, if they are few enough for a message."""
    return ", ".join(key.name for key in shape.keys) if len(shape.keys) <= _KEYS_SHOWN_MAX else ""
