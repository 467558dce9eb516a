"""Effective values as plain data: for the fingerprint, and for display with their sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.routing.scopes import BUILT_IN
from penstock.schema.paths import KeyPath, shown_path

BUILT_IN_SOURCE = "built-in"
_ABOUT = {"fingerprint", "warnings", "unused", "root", "files", "origins", "_remembered", "rule"}
_OF_SCOPES = {"name", "is_preset", "is_by_tag", "known_scopes"}


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """An effective value and its source."""

    path: str
    value: Any
    source: str


def as_tree(config: DispatchConfig) -> dict[str, Any]:
    """The configuration as JSON knows values; durations as text."""
    tree: dict[str, Any] = _plain(config)
    for name, profile in tree["worker_runtime_profiles"]["profiles"].items():
        assert profile.pop("name") == name
    for scope in tree["worker_scopes"]["scopes"].values():
        for hidden in _OF_SCOPES:
            scope.pop(hidden)
    if not tree["schedules"]:
        del tree["schedules"]  # the fingerprint of a file without any is as before there were schedules
    return tree


def fingerprint(config: DispatchConfig) -> str:
    """The SHA-256 of all effective values, independent of how they are written."""
    text = json.dumps(as_tree(config), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def rows(config: DispatchConfig) -> list[EffectiveValue]:
    """Every value that is set, with its source: file and line, variable, flag, or built in."""
    tree = as_tree(config)
    scopes = tree["worker_scopes"]["scopes"]
    for name in [name for name in scopes if config.worker_scopes.scopes[name] is BUILT_IN.get(name)]:
        del scopes[name]
    return [
        EffectiveValue(shown_path(path), value, _source(config, path))
        for path, value in _leaves(tree, ())
        if value is not None
    ]


def _source(config: DispatchConfig, path: KeyPath) -> str:
    for depth in range(len(path), 1, -1):
        if (origin := config.origins.get(path[:depth])) is not None and (
            depth == len(path) or not isinstance(path[depth], str)
        ):
            return origin
    if path[-1] == "default_task_queue" and (old := config.origins.get((*path[:-1], "task_queue"))):
        return old
    if path[:2] == ("worker_runtime_profiles", "profiles") and len(path) > 3:
        inherits = config.worker_runtime_profiles.profiles[str(path[2])].inherits
        if inherits and (origin := config.origins.get((*path[:2], inherits, *path[3:]))):
            return f"profile {inherits}, {origin}"
    return config.origins.get(path) or BUILT_IN_SOURCE


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    elif value != []:
        yield path, value


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    if is_dataclass(value):
        return {
            each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _ABOUT
        }
    return value
