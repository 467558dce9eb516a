"""Resolves the options of an activity call from the dispatch configuration, the definition and the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from penstock.dispatch import DispatchConfig, DispatchOptions, Layer, RetryPolicyConfigOverlay
from penstock.dispatch.options import Resolution, resolution_of
from penstock.dispatch.routing import trace_log
from penstock.dispatch.routing.layers import CALL_SITE
from penstock.sdk.activities.defaults import NONE, ActivityDefaults
from penstock.sdk.activities.routing import KEY_MAX, is_plain
from penstock.sdk.retry import RetryPolicy

CLOCKS = (
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "start_to_close_timeout",
    "heartbeat_timeout",
)
_NAMES = "retry.non_retryable"


class DispatchSource(Protocol):
    """Provides the current configuration, such as a watched file."""

    @property
    def current(self) -> DispatchConfig: ...


Dispatch = DispatchConfig | DispatchSource
ConfigGetter = Callable[[], DispatchConfig | None]
"""Called for every start, so that a replaced configuration applies to whatever is scheduled afterwards."""


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """The resolved options. `provenance` is recorded with the activity; `trace` is called once it is sent."""

    task_queue: str | None
    clocks: Mapping[str, timedelta | None]
    retry_policy: RetryPolicy | None
    provenance: Mapping[str, Any] | None = None
    trace: Callable[[], None] | None = None
    routing_key: str | None = None


def config_getter(given: Dispatch | None, *, what: str = "dispatch") -> ConfigGetter:
    """Return a function that returns the current configuration. Raises `TypeError`."""
    if given is None:
        return no_configuration
    if isinstance(given, DispatchConfig):
        return lambda: given
    if isinstance(getattr(given, "current", None), DispatchConfig):
        return lambda: given.current
    raise TypeError(f"{what} is a DispatchConfig, such as load_dispatch(path); not {type(given).__name__}")


def no_configuration() -> None:
    """No configuration: the code alone determines how its activities are dispatched."""


def resolve_options(
    activity: str,
    routing_key: str | None,
    options: Mapping[str, Any],
    defaults: ActivityDefaults = NONE,
    config: DispatchConfig | None = None,
) -> ResolvedOptions:
    """Resolve the options of a call. Layers in order: baseline, decorator, queue, handle, call; the last one wins."""
    carried = resolution_of(options.get("retry_policy"))
    if carried is not None and routing_key is None and "routing_key" not in options:
        routing_key = _key_of(carried)
    is_traced = carried is not None and carried.take_trace()
    if config is None:
        return _by_code_alone(routing_key, options, defaults, carried)
    found = config.options_of(activity, routing_key, _layer(defaults), _call_layer(options))
    fingerprint: str | None = config.fingerprint
    traces = config.is_traced and not is_traced
    if carried is not None:
        found = replace(found, provenance=_as_carried(found, carried.options))
        if carried.options != config.options_of(activity, routing_key):
            fingerprint = None
    return ResolvedOptions(
        task_queue=found.task_queue,
        clocks={name: getattr(found, name) for name in CLOCKS},
        retry_policy=found.retry_policy,
        provenance=_provenance(found.provenance, fingerprint),
        trace=_tracing(activity, routing_key, found, fingerprint) if traces else None,
        routing_key=routing_key,
    )


def _key_of(carried: Resolution) -> str | None:
    """Return the key with which the code resolved the options, if it can be recorded."""
    key = carried.options.routing_key
    return str(key) if isinstance(key, str) and len(key) <= KEY_MAX and is_plain(key) else None


def _provenance(sources: Mapping[str, str], fingerprint: str | None) -> dict[str, Any]:
    options = {"sources": dict(sources)}
    return options if fingerprint is None else {"fingerprint": fingerprint, **options}


def _as_carried(found: DispatchOptions, carried: DispatchOptions) -> dict[str, str]:
    """Return the sources of options that came from an earlier resolution: its layers, not the call.

    Options that the code changed since are attributed to the call.
    """
    sources = dict(found.provenance)
    for name, source in sources.items():
        is_kept = name.startswith("retry.") or getattr(found, name) == getattr(carried, name)
        if source == CALL_SITE and is_kept:
            sources[name] = carried.provenance[name]
    givers = [giver for giver in sources[_NAMES].split(" + ") if giver not in (CALL_SITE, "none")]
    givers += [giver for giver in carried.provenance[_NAMES].split(" + ") if giver not in (*givers, "none")]
    sources[_NAMES] = " + ".join(givers) or "none"
    return sources


def _by_code_alone(
    routing_key: str | None,
    options: Mapping[str, Any],
    defaults: ActivityDefaults,
    carried: Resolution | None,
) -> ResolvedOptions:
    policy, known = options.get("retry_policy"), defaults.retry_policy
    if policy is not None and known is not None and known.non_retryable_error_types:
        names = (*known.non_retryable_error_types, *(policy.non_retryable_error_types or ()))
        policy = replace(policy, non_retryable_error_types=tuple(dict.fromkeys(names)))
    clocks = {name: options.get(name) for name in CLOCKS}
    clocks = {name: getattr(defaults, name) if value is None else value for name, value in clocks.items()}
    return ResolvedOptions(
        options.get("task_queue"),
        clocks,
        policy or known,
        None if carried is None else _provenance(_unchanged_sources(options, carried.options), None),
        routing_key=routing_key,
    )


def _unchanged_sources(options: Mapping[str, Any], carried: DispatchOptions) -> dict[str, str]:
    """Return the sources of options that came from an earlier resolution and are unchanged."""
    return {
        name: source
        for name, source in carried.provenance.items()
        if name.startswith("retry.") or options.get(name) == getattr(carried, name)
    }


def _tracing(
    activity: str, routing_key: str | None, found: DispatchOptions, fingerprint: str | None
) -> Callable[[], None]:
    return lambda: trace_log.emit(activity, routing_key, found, fingerprint)


def _layer(defaults: ActivityDefaults) -> Layer | None:
    if defaults is NONE:
        return None
    clocks = {name: getattr(defaults, name) for name in CLOCKS}
    return Layer(**clocks, retry=_overlay(defaults.retry_policy))


def _call_layer(options: Mapping[str, Any]) -> Layer | None:
    given = {name: options[name] for name in (*CLOCKS, "task_queue") if options.get(name) is not None}
    retry = _overlay(options.get("retry_policy"))
    return None if not given and retry is None else Layer(**given, retry=retry)


def _overlay(policy: RetryPolicy | None) -> RetryPolicyConfigOverlay | None:
    """Return a retry policy of the code as a layer, with every field set."""
    if policy is None:
        return None
    return RetryPolicyConfigOverlay(
        initial_interval=policy.initial_interval,
        backoff_coefficient=policy.backoff_coefficient,
        maximum_interval=policy.maximum_interval or policy.initial_interval * 100,
        maximum_attempts=policy.maximum_attempts or "unlimited",
        non_retryable_error_types_extra=tuple(policy.non_retryable_error_types or ()),
    )
