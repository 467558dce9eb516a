"""The options of one call of an activity: what the configuration, the definition and the call say of it together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from penstock.dispatch import DispatchConfig, DispatchOptions, Layer, RetryOverlay, tracing
from penstock.sdk.activities.defaults import NONE, Defaults
from penstock.sdk.retry import RetryPolicy

CLOCKS = (
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "start_to_close_timeout",
    "heartbeat_timeout",
)


class DispatchSource(Protocol):
    """Something that knows the configuration which is in force now: a file that is looked after."""

    @property
    def current(self) -> DispatchConfig: ...


Dispatch = DispatchConfig | DispatchSource
InForce = Callable[[], DispatchConfig | None]
"""Asked with every call: a configuration that was replaced is the one for whatever is scheduled from now on."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is asked for; `told` is recorded with it, `trace` is to be called once it is sent."""

    task_queue: str | None
    clocks: Mapping[str, timedelta | None]
    retry_policy: RetryPolicy | None
    told: Mapping[str, Any] | None = None
    trace: Callable[[], None] | None = None


def in_force(given: Dispatch | None, *, what: str = "dispatch") -> InForce:
    """How to ask for the configuration that is in force. Raises `TypeError` for anything else."""
    if given is None:
        return no_configuration
    if isinstance(given, DispatchConfig):
        return lambda: given
    if isinstance(getattr(given, "current", None), DispatchConfig):
        return lambda: given.current
    raise TypeError(f"{what} is a DispatchConfig, such as load_dispatch(path); not {type(given).__name__}")


def no_configuration() -> None:
    """Nothing is configured: the code alone says how its activities are dispatched."""


def resolved(
    activity: str,
    routing_key: str | None,
    said: Mapping[str, Any],
    defaults: Defaults = NONE,
    config: DispatchConfig | None = None,
) -> Resolved:
    """The options of a call: baseline, decorator, queue, handle, call site; the last word on each wins."""
    if config is None:
        return _by_code_alone(said, defaults)
    found = config.resolve(
        activity, routing_key, decorator=_layer(defaults), call_site=_said(said), is_traced=False
    )
    return Resolved(
        task_queue=found.task_queue,
        clocks={name: getattr(found, name) for name in CLOCKS},
        retry_policy=found.retry_policy,
        told={"fingerprint": config.fingerprint, "sources": dict(found.provenance)},
        trace=_tracing(activity, routing_key, found, config) if config.is_traced else None,
    )


def _by_code_alone(said: Mapping[str, Any], defaults: Defaults) -> Resolved:
    asked, known = said.get("retry_policy"), defaults.retry_policy
    if asked is not None and known is not None and known.non_retryable_error_types:
        names = (*known.non_retryable_error_types, *(asked.non_retryable_error_types or ()))
        asked = replace(asked, non_retryable_error_types=tuple(dict.fromkeys(names)))
    clocks = {name: said.get(name) for name in CLOCKS}
    clocks = {name: getattr(defaults, name) if value is None else value for name, value in clocks.items()}
    return Resolved(said.get("task_queue"), clocks, asked or known)


def _tracing(
    activity: str, routing_key: str | None, found: DispatchOptions, config: DispatchConfig
) -> Callable[[], None]:
    return lambda: tracing.emit(activity, routing_key, found, config.fingerprint)


def _layer(defaults: Defaults) -> Layer | None:
    if defaults is NONE:
        return None
    clocks = {name: getattr(defaults, name) for name in CLOCKS}
    return Layer(**clocks, retry=_overlay(defaults.retry_policy))


def _said(said: Mapping[str, Any]) -> Layer | None:
    given = {name: said[name] for name in (*CLOCKS, "task_queue") if said.get(name) is not None}
    retry = _overlay(said.get("retry_policy"))
    return None if not given and retry is None else Layer(**given, retry=retry)


def _overlay(policy: RetryPolicy | None) -> RetryOverlay | None:
    """A policy of code says everything that a policy can say."""
    if policy is None:
        return None
    return RetryOverlay(
        initial_interval=policy.initial_interval,
        backoff_coefficient=policy.backoff_coefficient,
        maximum_interval=policy.maximum_interval or policy.initial_interval * 100,
        maximum_attempts=policy.maximum_attempts or "unlimited",
        non_retryable_error_types_extra=tuple(policy.non_retryable_error_types or ()),
    )
