"""Builds the frozen configuration from validated tables, filling in built-in defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.dispatch.file.reader import ShapeReader
from penstock.dispatch.frozen import FrozenDict
from penstock.dispatch.options import RetryPolicyConfigOverlay
from penstock.dispatch.routing.models import (
    BUILT_IN_RATE,
    HandleOptions,
    OptionsPattern,
    Profile,
    QueueOptions,
    QueuePattern,
    RetryPolicyConfig,
    Route,
    RouteOptions,
)
from penstock.dispatch.routing.scopes import BUILT_IN, Scope
from penstock.dispatch.routing.worker_config import WorkerConfig

_CAP = "max_task_queue_activities_per_second"


def worker_config(found: Mapping[str, Any], home: str, reader: ShapeReader) -> WorkerConfig:
    """The submitter's side; `home` is the default queue when the file names none."""
    given = dict(found)
    old = given.pop("task_queue", None)
    if old is not None and "default_task_queue" in given:
        reader.refuse(
            ("worker_config", "task_queue"), "stands beside `default_task_queue`, its new name", "keep one"
        )
    queue = given.pop("default_task_queue", old or home)
    routes = FrozenDict({name: _route(route) for name, route in given.pop("activity_queues", {}).items()})
    baseline = RetryPolicyConfig(**given.pop("retry_policy_config", {}))
    return WorkerConfig(
        default_task_queue=queue, activity_queues=routes, retry_policy_config=baseline, **given
    )


def queue_options(found: Mapping[str, Any], home: str) -> dict[str, QueueOptions]:
    """The options of each queue; the home queue has a cap unless the file unsets it."""
    given = {home: {}, **found}
    given[home] = {_CAP: BUILT_IN_RATE, **given[home]}
    return FrozenDict(
        {
            name: QueueOptions(**{**fields, "retry_policy_config": _overlay(fields)})
            for name, fields in given.items()
        }
    )


def profiles(found: Mapping[str, Any], reader: ShapeReader) -> dict[str, Profile]:
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


def scopes(found: Mapping[str, Any]) -> dict[str, Scope]:
    """The built-in scopes, and those of the file in front of them."""
    return FrozenDict({**BUILT_IN, **{name: Scope(name, **fields) for name, fields in found.items()}})


def _route(fields: Mapping[str, Any]) -> Route:
    return Route(
        default=fields.get("default", ""),
        by_handle=FrozenDict(fields.get("by_handle", {})),
        handle_options=FrozenDict(
            {key: _handle(each) for key, each in fields.get("handle_options", {}).items()}
        ),
        by_pattern=tuple(
            QueuePattern(each.get("match", ""), each.get("queue", ""))
            for each in fields.get("by_pattern", ())
        ),
        handle_options_by_pattern=tuple(
            OptionsPattern(each.get("match", ""), _handle(each))
            for each in fields.get("handle_options_by_pattern", ())
        ),
        options=_options(fields.get("options")),
    )


def _options(fields: Mapping[str, Any] | None) -> RouteOptions | None:
    return None if fields is None else RouteOptions(**{**fields, "retry_policy_config": _overlay(fields)})


def _handle(fields: Mapping[str, Any]) -> HandleOptions:
    return HandleOptions(fields.get("start_to_close_timeout"), _overlay(fields))


def _overlay(fields: Mapping[str, Any]) -> RetryPolicyConfigOverlay | None:
    block = fields.get("retry_policy_config")
    return None if block is None else RetryPolicyConfigOverlay(**block)
