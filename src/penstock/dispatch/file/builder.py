"""Builds the frozen configuration from validated tables, filling in built-in defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.dispatch.config import (
    DispatchConfig,
    TemporalConfig,
    TemporalLogConfig,
    WorkerRuntimeProfiles,
    WorkerScopes,
)
from penstock.dispatch.frozen import FrozenDict
from penstock.dispatch.routing.models import BUILT_IN_RATE, Profile, QueueOptions
from penstock.dispatch.routing.scopes import BUILT_IN, Scope
from penstock.dispatch.routing.worker_config import WorkerConfig
from penstock.schema.shapes import ShapeReader

_CAP = "max_task_queue_activities_per_second"


def build(found: dict[str, Any], home: str, reader: ShapeReader) -> DispatchConfig:
    """The configuration that the tables of a file give; `home` is the default queue when it names none."""
    worker_config = _worker_config(found.pop("worker_config", {}), home, reader)
    profiles = found.pop("worker_runtime_profiles", {})
    scopes = found.pop("worker_scopes", {})
    log = found.pop("temporal_config", {}).get("temporal_log_config", {})
    return DispatchConfig(
        worker_config=worker_config,
        queue_options=_queue_options(found.pop("queue_options", {}), worker_config.default_task_queue),
        worker_runtime_profiles=WorkerRuntimeProfiles(
            profiles.get("default_profile", "balanced"), _profiles(profiles.get("profiles", {}), reader)
        ),
        worker_scopes=WorkerScopes(scopes.get("default_scope", "full"), _scopes(scopes.get("scopes", {}))),
        temporal_config=TemporalConfig(TemporalLogConfig(**log)),
        schedules=FrozenDict(found.pop("schedules", {})),
        **found,
    )


def _worker_config(given: dict[str, Any], home: str, reader: ShapeReader) -> WorkerConfig:
    old = given.pop("task_queue", None)
    if old is not None and "default_task_queue" in given:
        reader.refuse(
            ("worker_config", "task_queue"), "stands beside `default_task_queue`, its new name", "keep one"
        )
    queue = given.pop("default_task_queue", old or home)
    routes = FrozenDict(given.pop("activity_queues", {}))
    return WorkerConfig(default_task_queue=queue, activity_queues=routes, **given)


def _queue_options(found: Mapping[str, Any], home: str) -> dict[str, QueueOptions]:
    """The options of each queue; the home queue has a cap unless the file unsets it."""
    given = {home: {}, **found}
    given[home] = {_CAP: BUILT_IN_RATE, **given[home]}
    return FrozenDict({name: QueueOptions(**fields) for name, fields in given.items()})


def _profiles(found: Mapping[str, Any], reader: ShapeReader) -> dict[str, Profile]:
    """Every profile, filled up from the one it inherits and from the built-in one."""
    built_in = Profile()
    given: dict[str, dict[str, Any]] = {built_in.name: {}, **found}
    whole: dict[str, Profile] = {}
    for name, fields in given.items():
        inherited = given.get(fields.get("inherits", ""), {})
        if (parent := fields.get("inherits")) is not None and not _can_inherit(name, parent, given, reader):
            inherited = {}
        whole[name] = replace(built_in, **{**inherited, **fields, "name": name})
    return FrozenDict(whole)


def _can_inherit(name: str, parent: str, given: Mapping[str, Any], reader: ShapeReader) -> bool:
    path = ("worker_runtime_profiles", "profiles", name, "inherits")
    if parent not in given:
        reader.refuse(path, f"{parent!r} is no profile; known: {sorted(given)!r}")
    elif parent == name or "inherits" in given[parent]:
        reader.refuse(path, f"{parent!r} inherits itself", "profiles inherit over one level only")
    else:
        return True
    return False


def _scopes(found: Mapping[str, Any]) -> dict[str, Scope]:
    """The built-in scopes, and those of the file in front of them."""
    return FrozenDict({**BUILT_IN, **{name: Scope(name, **fields) for name, fields in found.items()}})
