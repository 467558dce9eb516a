"""Turns what a reader found into the frozen values, with the built-in defaults where nothing was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.dispatch.frozen import Frozen
from penstock.dispatch.models import (
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
from penstock.dispatch.options import RetryPolicyConfigOverlay
from penstock.dispatch.reading import Reader
from penstock.dispatch.scopes import BUILT_IN, Scope
from penstock.dispatch.worker_config import WorkerConfig

_CAP = "max_task_queue_activities_per_second"


def worker_config(found: Mapping[str, Any], home: str, reader: Reader) -> WorkerConfig:
    """The submitter's side; `home` is the default queue when the file names none."""
    given = dict(found)
    old = given.pop("task_queue", None)
    if old is not None and "default_task_queue" in given:
        reader.refuse(
            ("worker_config", "task_queue"), "stands beside `default_task_queue`, its new name", "keep one"
        )
    queue = given.pop("default_task_queue", old or home)
    routes = Frozen({name: _route(route) for name, route in given.pop("activity_queues", {}).items()})
    baseline = RetryPolicyConfig(**given.pop("retry_policy_config", {}))
    return WorkerConfig(
        default_task_queue=queue, activity_queues=routes, retry_policy_config=baseline, **given
    )


def queue_options(found: Mapping[str, Any], home: str) -> dict[str, QueueOptions]:
    """The options of each queue; the home queue has a cap unless the file unsets it."""
    given = {home: {}, **found}
    given[home] = {_CAP: BUILT_IN_RATE, **given[home]}
    return Frozen(
        {
            name: QueueOptions(**{**said, "retry_policy_config": _overlay(said)})
            for name, said in given.items()
        }
    )


def profiles(found: Mapping[str, Any], reader: Reader) -> dict[str, Profile]:
    """Every profile, filled up from the one it inherits and from the built-in one."""
    built_in = Profile()
    given: dict[str, dict[str, Any]] = {built_in.name: {}, **found}
    whole: dict[str, Profile] = {}
    for name, said in given.items():
        inherited = given.get(said.get("inherits", ""), {})
        if (parent := said.get("inherits")) is not None and not _can_inherit(name, parent, given, reader):
            inherited = {}
        whole[name] = replace(built_in, **{**inherited, **said, "name": name})
    return Frozen(whole)


def _can_inherit(name: str, parent: str, given: Mapping[str, Any], reader: Reader) -> bool:
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
    return Frozen({**BUILT_IN, **{name: Scope(name, **said) for name, said in found.items()}})


def _route(said: Mapping[str, Any]) -> Route:
    return Route(
        default=said.get("default", ""),
        by_handle=Frozen(said.get("by_handle", {})),
        handle_options=Frozen({key: _handle(each) for key, each in said.get("handle_options", {}).items()}),
        by_pattern=tuple(
            QueuePattern(each.get("match", ""), each.get("queue", "")) for each in said.get("by_pattern", ())
        ),
        handle_options_by_pattern=tuple(
            OptionsPattern(each.get("match", ""), _handle(each))
            for each in said.get("handle_options_by_pattern", ())
        ),
        options=_options(said.get("options")),
    )


def _options(said: Mapping[str, Any] | None) -> RouteOptions | None:
    return None if said is None else RouteOptions(**{**said, "retry_policy_config": _overlay(said)})


def _handle(said: Mapping[str, Any]) -> HandleOptions:
    return HandleOptions(said.get("start_to_close_timeout"), _overlay(said))


def _overlay(said: Mapping[str, Any]) -> RetryPolicyConfigOverlay | None:
    block = said.get("retry_policy_config")
    return None if block is None else RetryPolicyConfigOverlay(**block)
