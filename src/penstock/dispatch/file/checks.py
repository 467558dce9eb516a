"""Checks of a configuration as a whole, after every single value was found valid."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, product
from typing import Any

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.routing.models import Profile, Route
from penstock.dispatch.routing.patterns import keys_of_both
from penstock.dispatch.routing.scopes import by_tag
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import hint_towards
from penstock.schema.shapes import ShapeReader

ERROR_TYPES_MAX = 1_000
"""So many types of errors fit into one policy; no server takes more."""
PAIRS_MAX = 1_000
"""How many patterns, and pairs of patterns, are checked for keys that match both."""
_EffectiveValues = dict[str, tuple[Any, KeyPath]]
_ROUTES: KeyPath = ("worker_config", "activity_queues")
_PROFILES: KeyPath = ("worker_runtime_profiles", "profiles")


def errors(config: DispatchConfig, reader: ShapeReader) -> None:
    """Refuse what cannot work, as far as every value by itself was right."""
    has_bad_retries = any("retry_policy_config" in problem.path for problem in reader.problems)
    _defaults(config, reader)
    for name, profile in config.worker_runtime_profiles.profiles.items():
        if profile.max_concurrent_activities > 0 and profile.max_concurrent_activity_task_polls == 0:
            reader.refuse(
                (*_PROFILES, name, "max_concurrent_activity_task_polls"),
                f"0 polls cannot feed {profile.max_concurrent_activities} activity slots",
                "give 1 or more, or no slots",
            )
    if not has_bad_retries:
        _pauses(config, reader)
        if len(config.all_non_retryable_error_types()) > ERROR_TYPES_MAX:
            _error_types(config, reader)


def _error_types(config: DispatchConfig, reader: ShapeReader) -> None:
    """Refuse merged retry policies with more error types than a server accepts; only the first is reported."""
    for activity, key in _calls(config):
        found = config.resolve(activity, key, is_traced=False).retry_policy.non_retryable_error_types or ()
        if len(found) > ERROR_TYPES_MAX:
            reader.refuse(
                ("worker_config", "retry_policy_config", "non_retryable_error_types"),
                f"with what other layers add, {len(found)} types of errors are never retried,"
                f" and {ERROR_TYPES_MAX} are the most",
            )
            return


def _defaults(config: DispatchConfig, reader: ShapeReader) -> None:
    profiles, scopes = config.worker_runtime_profiles, config.worker_scopes
    for path, wanted, known in (
        (("worker_runtime_profiles", "default_profile"), profiles.default_profile, profiles.profiles),
        (("worker_scopes", "default_scope"), scopes.default_scope, scopes.scopes),
    ):
        if wanted not in known and not (known is scopes.scopes and by_tag(wanted, scopes.scopes)):
            names = sorted(known)
            reader.refuse(path, f"{wanted!r} is unknown; known: {names!r}", hint_towards(wanted, names))


def _pauses(config: DispatchConfig, reader: ShapeReader) -> None:
    """Refuse every merged policy whose longest pause is shorter than its first."""
    refused: set[tuple[KeyPath, KeyPath]] = set()
    for activity, key in _calls(config):
        effective = _effective_values(config, activity, key)
        first, longest = effective["retry.initial_interval"], effective["retry.maximum_interval"]
        attempts = effective["retry.maximum_attempts"][0]
        if not isinstance(longest[0], timedelta) or attempts == 1 or longest[0] >= first[0]:
            continue
        if (first[1], longest[1]) not in refused:
            refused.add((first[1], longest[1]))
            reader.refuse(
                longest[1],
                f"{longest[0]} is below the initial_interval of {first[0]},"
                f" which {shown_path(first[1])} gives",
                f"seen for {activity or 'activities without a route'}"
                + ("" if key is None else f" with routing key {key!r}"),
            )


def _effective_values(config: DispatchConfig, activity: str, key: str | None) -> _EffectiveValues:
    """The effective scalars of a call, each with its path in the file."""
    effective: _EffectiveValues = {}
    for ranked in config.worker_config.stack(activity, key, config.queue_options):
        for name, value in ranked.scalars().items():
            effective[name] = (value, ranked.path_of(name))
    return effective


def _calls(config: DispatchConfig) -> Iterator[tuple[str, str | None]]:
    """One call for each queue, activity and handle options that the file brings together."""
    yield "", None
    left = iter(range(PAIRS_MAX))
    seen: set[object] = set()
    for activity, route in config.worker_config.activity_queues.items():
        keys = {**route.by_handle, **route.handle_options}
        for key in (None, *keys, *_matching(route, left)):
            handle = route.options_for(key)
            met = route.queue_for(key)[0], route.options, handle and handle[0]
            if met not in seen:
                seen.add(met)
                yield activity, key


def _matching(route: Route, left: Iterator[int]) -> Iterator[str]:
    """Keys that fit the patterns of a route: each by itself, and those for queues with those for options."""
    queues = [pattern.match for pattern in route.by_pattern]
    options = [pattern.match for pattern in route.handle_options_by_pattern]
    yield from (*queues, *options)
    pairs = chain(((each, each) for each in (*queues, *options)), product(queues, options))
    for (one, other), _ in zip(pairs, left, strict=False):
        yield from keys_of_both(one, other)


def undeclared(config: DispatchConfig, reader: ShapeReader) -> Iterator[tuple[KeyPath, str, str]]:
    """Queues that are routed to without options, and options that no route leads to."""
    home = config.worker_config.default_task_queue
    declared = {home, *config.queue_options}
    routed = {home}
    suggest = reader.suggest
    for activity, route in config.worker_config.activity_queues.items():
        for place, queue in route.targets():
            routed.add(queue)
            if queue and queue not in declared:
                message = f"task queue {queue!r} has no queue_options; activities there use the baseline"
                yield (*_ROUTES, activity, *place), message, hint_towards(queue, declared, suggest)
    for queue in config.queue_options:
        if queue not in routed:
            yield (
                ("queue_options", queue),
                f"nothing routes to task queue {queue!r}; these options never apply",
                hint_towards(queue, routed - {home}, suggest),
            )


def old_names(config: DispatchConfig) -> Iterator[tuple[KeyPath, str, str]]:
    """Keys under their earlier names."""
    old = ("worker_config", "task_queue")
    if old in config.origins:
        yield old, "is the old name of `default_task_queue`", "rename the key"


def oddities(config: DispatchConfig) -> Iterator[tuple[KeyPath, str, str]]:
    """What loads but is probably not meant."""
    yield from _of_budgets(config)
    for name, profile in config.worker_runtime_profiles.profiles.items():
        yield from _of_profile(name, profile)


def _of_profile(name: str, profile: Profile) -> Iterator[tuple[KeyPath, str, str]]:
    default, most = profile.default_heartbeat_throttle_interval, profile.max_heartbeat_throttle_interval
    if default > most:
        yield (
            (*_PROFILES, name, "default_heartbeat_throttle_interval"),
            f"{default} is above max_heartbeat_throttle_interval; {most} is in force",
            "",
        )
    polls = profile.max_concurrent_activity_task_polls
    if profile.max_concurrent_activities == 0 and polls > 0:
        yield (
            (*_PROFILES, name, "max_concurrent_activity_task_polls"),
            f"{polls} polls are ignored: the profile has no activity slots",
            "",
        )


def _of_budgets(config: DispatchConfig) -> Iterator[tuple[KeyPath, str, str]]:
    """Timeouts that do not fit into one another. Attempts are added up only where the workflow's is given."""
    wc = config.worker_config
    whole = wc.workflow_execution_timeout
    is_given = ("worker_config", "workflow_execution_timeout") in config.origins
    if whole is not None and wc.run_timeout is not None and wc.run_timeout > whole:
        yield ("worker_config", "run_timeout"), f"{wc.run_timeout} is above workflow_execution_timeout", ""
    reported: set[tuple[KeyPath, str]] = set()
    for activity, key in _calls(config):
        effective = _effective_values(config, activity, key)
        found = [*_of_timeouts(effective)]
        if whole is not None:
            found += _of_whole(effective, whole, is_given)
        for path, message in found:
            if (path, message) not in reported:
                reported.add((path, message))
                yield path, message, ""


def _of_timeouts(effective: _EffectiveValues) -> Iterator[tuple[KeyPath, str]]:
    attempt, path = effective["start_to_close_timeout"]
    beat, beat_path = effective.get("heartbeat_timeout", (None, ()))
    if beat is not None and beat > attempt:
        yield beat_path, f"{beat} is above the start_to_close_timeout of {attempt}, and is cut to it"
    in_all, _ = effective.get("schedule_to_close_timeout", (None, ()))
    if in_all is not None and attempt > in_all:
        yield path, f"{attempt} is above the schedule_to_close_timeout of {in_all}, and is cut to it"


def _of_whole(effective: _EffectiveValues, whole: timedelta, is_given: bool) -> Iterator[tuple[KeyPath, str]]:
    attempt, path = effective["start_to_close_timeout"]
    in_all, in_all_path = effective.get("schedule_to_close_timeout", (None, ()))
    attempts, _ = effective["retry.maximum_attempts"]
    if attempt > whole:
        yield path, f"{attempt} is above the workflow_execution_timeout of {whole}, and is cut to it"
    elif in_all is not None and in_all > whole:
        yield in_all_path, f"{in_all} is above the workflow_execution_timeout of {whole}, and is cut to it"
    elif is_given and isinstance(attempts, int) and attempts > whole // attempt:
        yield (
            path,
            f"{attempts} attempts of {attempt} do not fit into the workflow_execution_timeout of {whole}",
        )
