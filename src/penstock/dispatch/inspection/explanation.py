"""Explains the dispatch of an activity: each value with its source, and the values it overrides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.options import DispatchOptions, shown_names
from penstock.dispatch.routing.layers import OWN_QUEUE, RankedLayer
from penstock.dispatch.routing.models import Route
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import hint_towards

_ROUTES: KeyPath = ("worker_config", "activity_queues")
_HOME: KeyPath = ("worker_config", "default_task_queue")
_OLD_HOME: KeyPath = ("worker_config", "task_queue")
_INSIDE = (
    ("schedule_to_close_timeout", ""),
    ("start_to_close_timeout", "schedule_to_close_timeout"),
    ("schedule_to_start_timeout", "schedule_to_close_timeout"),
    ("heartbeat_timeout", "start_to_close_timeout"),
)
"""Each timeout and the one that it must fit into, from the outside in."""


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value that one layer gives, and where it was written down."""

    value: str
    source: str
    path: str
    origin: str


@dataclass(frozen=True, slots=True)
class ExplainedValue:
    """An effective value, and the values of lower layers."""

    name: str
    won: SourcedValue
    lost: tuple[SourcedValue, ...] = ()


@dataclass(frozen=True, slots=True)
class CappedValue:
    """A timeout that a larger budget cuts short."""

    name: str
    asked: str
    effective: str
    why: str


@dataclass(frozen=True, slots=True)
class DispatchExplanation:
    """The whole answer for one activity and one routing key."""

    activity: str
    routing_key: str | None
    options: DispatchOptions
    values: tuple[ExplainedValue, ...]
    cuts: tuple[CappedValue, ...]
    warnings: tuple[str, ...]
    served_queue: str
    """The queue where the activity waits, or the home queue when it rides the workflow's own."""

    def as_json(self) -> dict[str, Any]:
        return {
            "activity": self.activity,
            "routing_key": self.routing_key,
            "task_queue": self.options.task_queue,
            "values": {
                each.name: {**_sourced_json(each.won), "lost": [_sourced_json(lost) for lost in each.lost]}
                for each in self.values
            },
            "cuts": [
                {"name": cut.name, "asked": cut.asked, "effective": cut.effective, "why": cut.why}
                for cut in self.cuts
            ],
            "warnings": list(self.warnings),
        }


def explain(config: DispatchConfig, activity: str, routing_key: str | None = None) -> DispatchExplanation:
    """How a call of the activity with this key would be dispatched, as far as the configuration decides."""
    options = config.resolve(activity, routing_key, is_traced=False)
    stack = config.worker_config.stack(activity, routing_key, config.queue_options)
    values = [_queue(config, activity, routing_key), *_scalars(config, stack, options)]
    return DispatchExplanation(
        activity,
        routing_key,
        options,
        tuple(values),
        tuple(_cuts(config, options)),
        tuple(_warnings(config, activity, routing_key, options)),
        options.task_queue or config.worker_config.default_task_queue,
    )


def _queue(config: DispatchConfig, activity: str, routing_key: str | None) -> ExplainedValue:
    at_home = _OLD_HOME if _OLD_HOME in config.origins else _HOME
    sourced = [_at(config, config.worker_config.default_task_queue, "default_task_queue", at_home)]
    route = config.worker_config.activity_queues.get(activity)
    if not config.worker_config.activity_queues:
        return ExplainedValue(
            "task_queue", SourcedValue("None", OWN_QUEUE, "", "no route is configured"), tuple(sourced)
        )
    if route is not None:
        at = (*_ROUTES, activity)
        sourced.append(_at(config, route.default, "activity_queues.default", (*at, "default")))
        queue, place = route.queue_for(routing_key)
        if place != ("default",):
            sourced.append(_at(config, queue, f"activity_queues.{place[0]}", (*at, *place)))
    *lost, won = sourced
    return ExplainedValue("task_queue", won, tuple(lost))


def _scalars(
    config: DispatchConfig, stack: list[RankedLayer], options: DispatchOptions
) -> Iterator[ExplainedValue]:
    speakers: dict[str, list[SourcedValue]] = {}
    for ranked in stack:
        for name, value in ranked.scalars().items():
            sourced = _at(config, str(value), ranked.label, ranked.path_of(name))
            speakers.setdefault(name, []).append(sourced)
    for name in options.shown_values():
        if name in speakers:
            *lost, won = speakers[name]
            yield ExplainedValue(name, won, tuple(lost))
    names = options.retry_policy.non_retryable_error_types or ()
    source = options.provenance["retry.non_retryable"]
    yield ExplainedValue(
        "retry.non_retryable", SourcedValue(shown_names(names), source, "", _givers(config, stack))
    )


def _givers(config: DispatchConfig, stack: list[RankedLayer]) -> str:
    origins = []
    for ranked in stack:
        if ranked.names:
            extra = "" if ranked.label == "baseline" else "_extra"
            path = (*ranked.path, "retry_policy_config", f"non_retryable_error_types{extra}")
            origins.append(config.origins.get(path, "built-in"))
    return ", ".join(origins)


def _at(config: DispatchConfig, value: str, source: str, path: KeyPath) -> SourcedValue:
    return SourcedValue(value, source, shown_path(path), config.origins.get(path, "built-in"))


def _cuts(config: DispatchConfig, options: DispatchOptions) -> Iterator[CappedValue]:
    """The timeouts that the configured run and execution budgets cut short."""
    wc = config.worker_config
    bounds = [each for each in (wc.run_timeout, wc.workflow_execution_timeout) if each is not None]
    run = min(bounds) if bounds else None
    in_force: dict[str, timedelta] = {}
    for name, outer in _INSIDE:
        asked: timedelta | None = getattr(options, name)
        if asked is None:
            continue
        least, why = asked, ""
        if run is not None and run < least:
            least, why = run, "the run of the workflow"
        if outer in in_force and in_force[outer] < least:
            least, why = in_force[outer], outer
        in_force[name] = least
        if why:
            yield CappedValue(name, str(asked), str(least), why)


def _warnings(
    config: DispatchConfig, activity: str, routing_key: str | None, options: DispatchOptions
) -> Iterator[str]:
    """The warnings of the file that concern this call."""
    wc = config.worker_config
    if wc.activity_queues and activity not in wc.activity_queues:
        near = hint_towards(activity, wc.activity_queues)
        yield f"no route is for {activity!r}; it goes to {wc.default_task_queue!r}" + (
            f"; {near}" if near else ""
        )
    yield from _key_in_doubt(wc.activity_queues.get(activity), routing_key)
    queue = options.task_queue or wc.default_task_queue
    concerned = (
        f"{config.root}.{shown_path(('queue_options', queue))}",
        f"{config.root}.{shown_path((*_ROUTES, activity))}",
        f"{config.root}.worker_config.default_activity",
        f"{config.root}.worker_config.run_timeout",
    )
    for warning in config.warnings:
        is_of_another_queue = "task queue '" in warning.message and repr(queue) not in warning.message
        if warning.path.startswith(concerned) and not is_of_another_queue:
            yield str(warning)


def _key_in_doubt(route: Route | None, key: str | None) -> Iterator[str]:
    """A key that the route does not know, and that is spelt nearly like one that it does."""
    if route is None or not key or key in route.handle_options or route.queue_for(key)[1] != ("default",):
        return
    if near := hint_towards(key, {**route.by_handle, **route.handle_options}):
        yield f"the route knows no key {key!r}; {near}"


def _sourced_json(sourced: SourcedValue) -> dict[str, str]:
    return {"value": sourced.value, "source": sourced.source, "path": sourced.path, "origin": sourced.origin}
