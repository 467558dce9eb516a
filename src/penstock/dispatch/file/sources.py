"""Where a configuration is written down: files, environment variables, flags. Each becomes a tree with origins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path as FilePath
from typing import Any

import tomli

from penstock.dispatch.file.shape import ROOT
from penstock.schema.kinds import Kind
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import InvalidValue, Problem, hint_towards
from penstock.schema.shapes import UNSET, ListOf, Shape, Table, TableOf
from penstock.schema.toml_file import read_text, read_toml_file
from penstock.schema.toml_lines import steps_of

ROOTS: tuple[tuple[str, ...], ...] = (("penstock",), ("temporal",), ("tool", "penstock"))
PREFIX = "PENSTOCK__"
HOMES = ("default", "temporal_task_queue")
"""The default queue if none is configured."""
_ROOT_HEADER = re.compile(
    r"^[ \t]*\[\[?[ \t]*(?:penstock|temporal|tool[ \t]*\.[ \t]*penstock)[ \t]*[.\]]", re.M
)
_BYTES_MAX = 4_194_304


class UnreadableFile(ValueError):
    """A source that cannot be read at all."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(slots=True)
class ConfigSource:
    """A tree of TOML values below the root table, and where each was given."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    root: tuple[str, ...] | None = None
    has_table: bool = False
    roots: tuple[str, ...] = ()
    """Tables that may have been meant, if the requested one is missing."""

    def origin_of(self, path: KeyPath) -> str:
        """The source of the value, of the nearest enclosing table, or of something in it; empty if there is none."""
        for depth in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:depth])) is not None:
                return origin
        inside = (origin for where, origin in self.origins.items() if where[: len(path)] == path)
        return next(inside, "")


def read_file(path: str | os.PathLike[str], root: str | None) -> ConfigSource:
    """Read the part of a file below its root table, or below the requested one."""
    name = os.fspath(path)
    if _is_pipe(name):
        hint = "a configuration is read more than once: write it to a file"
        raise UnreadableFile(Problem("", "cannot be read: it is a pipe", hint, name))
    try:
        file = read_toml_file(FilePath(name), _BYTES_MAX)
    except InvalidValue as error:
        message, _, hint = error.message.partition("; ")
        where = name if error.line is None else f"{name}:{error.line}"
        raise UnreadableFile(Problem("", message, hint, where)) from None
    document = file.document
    steps = tuple(root.split(".")) if root is not None else _root_of(document, name)
    if steps is None:
        return ConfigSource()
    tree = _below(document, steps)
    if tree is None:
        there = [".".join(each) for each in ROOTS if _below(document, each) is not None]
        return ConfigSource(root=steps, roots=tuple(there))
    if not isinstance(tree, dict):
        raise UnreadableFile(Problem(".".join(steps), "is not a table", origin=name))
    depth = len(steps)
    origins = {
        where[depth:]: f"{name}:{line}" for where, line in file.lines.items() if where[:depth] == steps
    }
    origins.pop((), None)
    return ConfigSource(tree, origins, steps, has_table=True)


def _is_pipe(name: str) -> bool:
    try:
        return FilePath(name).is_fifo()
    except OSError:
        return False  # opening it reports the cause


def has_root(path: str | os.PathLike[str]) -> bool:
    """Whether a file has one of the root tables of a dispatch configuration, even if it is invalid."""
    if _is_pipe(os.fspath(path)):
        return False
    try:
        text, _ = read_text(FilePath(path), _BYTES_MAX)
    except InvalidValue:
        return False
    try:
        document = tomli.loads(text)
    except (ValueError, RecursionError):
        return _ROOT_HEADER.search(text) is not None
    return any(_below(document, steps) is not None for steps in ROOTS)


def from_environment(
    environ: Mapping[str, str], so_far: Mapping[str, Any]
) -> tuple[ConfigSource, list[Problem]]:
    """Read variables such as `PENSTOCK__QUEUE_OPTIONS__GPU__START_TO_CLOSE_TIMEOUT`.

    Letters of either case do, and `_` for every character that a shell does not like: a name must be one that
    the files, or variables about `worker_config`, know. Other names stand in the value of a whole table:
    `PENSTOCK__QUEUE_OPTIONS={"gpu 1" = {heartbeat_timeout = "30s"}}`.
    """
    source, problems = ConfigSource(), []
    known = ConfigSource(_copied(dict(so_far)))
    for name in sorted((name for name in environ if name.startswith(PREFIX)), key=_routes_first):
        origin = f"environment {name}"
        parts = [part for part in name.removeprefix(PREFIX).split("__") if part]
        place = _match(parts, known.tree)
        found = place if isinstance(place, Problem) else _given(place, environ[name])
        if isinstance(found, Problem):
            problems.append(Problem(found.path, found.message, found.hint, origin))
            continue
        path, value = found
        overlay = ConfigSource()
        put(overlay, path, value, origin)
        merge_over(known, overlay)
        merge_over(source, overlay)
    return source, problems


def _routes_first(name: str) -> tuple[bool, str]:
    """Routes name queues, which options may then be for."""
    return not name.removeprefix(PREFIX).upper().startswith("WORKER_CONFIG"), name


def from_overrides(
    overrides: Iterable[str], root: tuple[str, ...] | None
) -> tuple[ConfigSource, list[Problem]]:
    """Read `path=value` overrides; the path is the one in the file, below the root table."""
    source, problems = ConfigSource(), []
    for override in overrides:
        path = _path_of(override, root)
        if path is None:
            problems.append(Problem("", f"{override!r} is not of the form path.to.key=value", origin="--set"))
        else:
            text = override[override.index("=", _key_ends(override)) + 1 :]
            put(source, path, value_of(text.strip(), _kind_at(path)), f"--set {shown_path(path)}")
    return source, problems


def put(source: ConfigSource, path: KeyPath, value: object, origin: str) -> None:
    """Set one value in a source."""
    tree = source.tree
    for step in path[:-1]:
        inner = tree.setdefault(str(step), {})
        if not isinstance(inner, dict):
            inner = tree[str(step)] = {}
        tree = inner
    tree[str(path[-1])] = value
    for where in _paths_in(value, path):
        source.origins[where] = origin


def _paths_in(value: object, path: KeyPath) -> Iterator[KeyPath]:
    """The place of a value, and those of all that it holds."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths_in(inner, (*path, name))


def merge_over(below: ConfigSource, above: ConfigSource) -> None:
    """Put one source on another: tables join, everything else is replaced."""
    _join(below.tree, above.tree, (), below.origins)
    below.origins.update(above.origins)
    below.root = below.root or above.root
    below.has_table = below.has_table or above.has_table
    below.roots += above.roots


def _join(
    below: dict[str, Any], above: Mapping[str, Any], path: KeyPath, origins: dict[KeyPath, str]
) -> None:
    for name, value in above.items():
        here = (*path, name)
        old = below.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            _join(old, value, here, origins)
            continue
        if isinstance(old, dict | list):
            for where in [where for where in origins if where[: len(here)] == here]:
                del origins[where]
        below[name] = _copied(value)


def _copied(value: Any) -> Any:
    return {name: _copied(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _root_of(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    present = [steps for steps in ROOTS if isinstance(_below(document, steps), dict)]
    if len(present) > 1:
        tables = " and ".join(f"[{'.'.join(steps)}]" for steps in present)
        raise UnreadableFile(Problem("", f"has {tables}", "say which is meant with --root", origin=name))
    if present:
        return present[0]
    return next((steps for steps in ROOTS if _below(document, steps) is not None), None)


def _below(document: object, steps: KeyPath) -> object:
    for step in steps:
        if not isinstance(document, dict):
            return None
        document = document.get(step)
    return document


def value_of(text: str, kind: Kind | None) -> object:
    """Parse a text as TOML; for text values, use it verbatim unless it is quoted."""
    is_text = kind is not None and kind.is_textual
    if text == UNSET or (is_text and text[:1] not in ("'", '"')):
        return text
    try:
        document = tomli.loads(f"v = {text}")
    except (ValueError, RecursionError):
        return text
    value = document["v"]
    if len(document) > 1 or isinstance(value, date | time) or (is_text and not isinstance(value, str)):
        return text
    return value


def _kind_at(path: KeyPath) -> Kind | None:
    shape: Shape = ROOT
    for step in path:
        inner = _inside(shape, str(step))
        if inner is None:
            return None
        shape = inner
    return shape if isinstance(shape, Kind) else None


def _inside(shape: Shape, name: str) -> Shape | None:
    """The shape of what a table holds under the name."""
    if isinstance(shape, Table):
        key = shape.key(name)
        return key.holds if key else None
    return shape.holds if isinstance(shape, TableOf) else None


@dataclass(frozen=True, slots=True)
class _Place:
    """The path that a variable names, and the shape at that path."""

    path: KeyPath
    holds: Shape


def _match(parts: list[str], root: Mapping[str, Any]) -> _Place | Problem:
    """The place that the parts of a variable's name lead to."""
    path: KeyPath = ()
    shape: Shape = ROOT
    for place, part in enumerate(parts):
        if isinstance(shape, Table):
            known: list[str] = [key.name for key in shape.keys if not key.is_unused]
        elif isinstance(shape, TableOf):
            known = sorted(_names_for(shape, path, root))
        else:
            return Problem(shown_path(path), f"holds one value: {'__'.join(parts[place:])!r} is too much")
        same = [name for name in known if _plain(name) == _plain(part)]
        if len(same) != 1:
            what = "fits more than one name" if same else "is unknown"
            hint = hint_towards(part.lower(), known) or "name it in a file, or use --set"
            return Problem(shown_path(path), f"{part!r} {what}", hint)
        path = (*path, same[0])
        inner = _inside(shape, same[0])
        assert inner is not None
        shape = inner
    return _Place(path, shape) if parts else Problem("", "is a table, not a value")


def _given(place: _Place, text: str) -> tuple[KeyPath, object] | Problem:
    """The value of a variable for its place; a whole table, or list of tables, is written as TOML has it."""
    if not isinstance(place.holds, Table | TableOf | ListOf):
        return place.path, value_of(text.strip(), place.holds)
    value = value_of(text.strip(), None)
    is_list = isinstance(place.holds, ListOf)
    if value == UNSET or isinstance(value, list if is_list else dict):
        return place.path, value
    message = "is a list of tables, not a value" if is_list else "is a table, not a value"
    whole = "[{…}]" if is_list else '{"name" = …}'
    return Problem(shown_path(place.path), message, f"name a key of it, or write it whole as TOML: {whole}")


def _names_for(shape: TableOf, path: KeyPath, root: Mapping[str, Any]) -> set[str]:
    """The names that are known for a table of named things."""
    here = _below(root, path)
    names = set(here) if isinstance(here, dict) else set()
    if shape.noun == "task queue":
        names |= _queues_in(root)
    elif shape.noun == "profile":
        names.add("balanced")
    elif shape.noun == "handle":
        for beside in ("by_handle", "handle_options"):
            table = _below(root, (*path[:-1], beside))
            names |= set(table) if isinstance(table, dict) else set()
    return names


def _queues_in(root: Mapping[str, Any]) -> set[str]:
    """The queues that files name, or that have a name without it."""
    config = root.get("worker_config")
    config = config if isinstance(config, dict) else {}
    homes = [config.get("default_task_queue"), config.get("task_queue")]
    queues: list[object] = homes if any(homes) else list(HOMES)
    routes = config.get("activity_queues")
    for route in routes.values() if isinstance(routes, dict) else ():
        if isinstance(route, dict):
            handles = route.get("by_handle")
            queues += [route.get("default"), *(handles.values() if isinstance(handles, dict) else ())]
            patterns = route.get("by_pattern")
            each = [one for one in patterns if isinstance(one, dict)] if isinstance(patterns, list) else []
            queues += [one.get("queue") for one in each]
    return {queue for queue in queues if isinstance(queue, str)}


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.casefold())


def _key_ends(override: str) -> int:
    """Where the quotes of the path end, so that the right `=` is found."""
    quote = ""
    for place, letter in enumerate(override):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "=":
            return place
    return len(override)


def _path_of(override: str, root: tuple[str, ...] | None) -> KeyPath | None:
    key = override[: _key_ends(override)].strip()
    if key == override.strip() or not key or "\n" in key:
        return None
    try:
        steps = steps_of(key)
    except (ValueError, RecursionError):
        return None
    for known in (root, *ROOTS):
        if known and steps[: len(known)] == known:
            return steps[len(known) :] or None
    return steps
