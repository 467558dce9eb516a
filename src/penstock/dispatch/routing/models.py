"""The tables of a dispatch file as frozen values: routes, options, worker profiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.dispatch.options import Layer, RetryPolicyConfigOverlay
from penstock.dispatch.routing.patterns import rule_of
from penstock.schema.kinds import UNLIMITED, Unlimited

BUILT_IN_RATE = 1000.0
"""The cap of the default task queue, whatever it is called, unless the file gives another or unsets it."""


@dataclass(frozen=True, slots=True)
class RetryPolicyConfig:
    """The baseline of every retry policy."""

    initial_interval: timedelta = timedelta(seconds=3)
    backoff_coefficient: float = 2.0
    maximum_interval: timedelta | Unlimited = UNLIMITED
    maximum_attempts: int | Unlimited = 3
    non_retryable_error_types: tuple[str, ...] = ()

    def as_overlay(self) -> RetryPolicyConfigOverlay:
        return RetryPolicyConfigOverlay(
            self.initial_interval,
            self.backoff_coefficient,
            self.maximum_interval,
            self.maximum_attempts,
            self.non_retryable_error_types,
        )


@dataclass(frozen=True, slots=True)
class HandleOptions:
    """The rare override for one routing key."""

    start_to_close_timeout: timedelta | None = None
    retry_policy_config: RetryPolicyConfigOverlay | None = None

    def as_layer(self) -> Layer:
        return Layer(start_to_close_timeout=self.start_to_close_timeout, retry=self.retry_policy_config)


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """How one activity is dispatched on whichever queue it goes to."""

    start_to_close_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy_config: RetryPolicyConfigOverlay | None = None

    def as_layer(self) -> Layer:
        return Layer(
            self.start_to_close_timeout,
            self.schedule_to_close_timeout,
            self.schedule_to_start_timeout,
            self.heartbeat_timeout,
            retry=self.retry_policy_config,
        )


@dataclass(frozen=True, slots=True)
class QueueOptions(RouteOptions):
    """How activities on one task queue are dispatched. The cap is the queue's, not a call's."""

    max_task_queue_activities_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class QueuePattern:
    """Keys that match a shell-style pattern go to this queue."""

    match: str
    queue: str
    rule: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", rule_of(self.match))


@dataclass(frozen=True, slots=True)
class OptionsPattern:
    """Keys that match a shell-style pattern get these options."""

    match: str
    options: HandleOptions
    rule: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", rule_of(self.match))


@dataclass(frozen=True, slots=True)
class Route:
    """Where one activity goes: by its routing key, else by default."""

    default: str
    by_handle: Mapping[str, str] = field(default_factory=dict)
    handle_options: Mapping[str, HandleOptions] = field(default_factory=dict)
    by_pattern: tuple[QueuePattern, ...] = ()
    handle_options_by_pattern: tuple[OptionsPattern, ...] = ()
    options: RouteOptions | None = None

    def queue_for(self, routing_key: str | None) -> tuple[str, tuple[str | int, ...]]:
        """The queue and its place in the route. An exact key beats patterns, and these the default."""
        if routing_key is not None:
            if (queue := self.by_handle.get(routing_key)) is not None:
                return queue, ("by_handle", routing_key)
            for place, pattern in enumerate(self.by_pattern):
                if pattern.rule.match(routing_key):
                    return pattern.queue, ("by_pattern", place, "queue")
        return self.default, ("default",)

    def options_for(self, routing_key: str | None) -> tuple[HandleOptions, tuple[str, str | int]] | None:
        """The options of a key and their place in the route, whichever queue the key leads to."""
        if routing_key is None:
            return None
        if (options := self.handle_options.get(routing_key)) is not None:
            return options, ("handle_options", routing_key)
        for place, pattern in enumerate(self.handle_options_by_pattern):
            if pattern.rule.match(routing_key):
                return pattern.options, ("handle_options_by_pattern", place)
        return None

    def places(self, routing_key: str | None) -> object:
        """The entries of the route that decide for a key, as a cache key: equal for all unlisted keys."""
        if self.by_pattern or self.handle_options_by_pattern:
            options = self.options_for(routing_key)
            return self.queue_for(routing_key)[1], options and options[1]
        return routing_key if routing_key in self.by_handle or routing_key in self.handle_options else None

    def targets(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every queue that the route names, with the place inside the route."""
        yield ("default",), self.default
        for key, queue in self.by_handle.items():
            yield ("by_handle", key), queue
        for place, pattern in enumerate(self.by_pattern):
            yield ("by_pattern", place, "queue"), pattern.queue


@dataclass(frozen=True, slots=True)
class Profile:
    """How one worker process is tuned. A zero is a zero: it never means a default or no limit."""

    name: str = "balanced"
    tuning_mode: str = "explicit"
    max_cached_workflows: int = 1000
    max_concurrent_workflow_tasks: int = 100
    max_concurrent_activities: int = 100
    max_concurrent_local_activities: int = 100
    max_concurrent_workflow_task_polls: int = 5
    max_concurrent_activity_task_polls: int = 5
    max_activities_per_second: float = 1000.0
    sticky_queue_schedule_to_start_timeout: timedelta = timedelta(seconds=10)
    max_heartbeat_throttle_interval: timedelta = timedelta(minutes=1)
    default_heartbeat_throttle_interval: timedelta = timedelta(seconds=30)
    graceful_shutdown_timeout: timedelta = timedelta(seconds=30)
    inherits: str | None = None

    @property
    def activity_task_polls(self) -> int:
        """Open polls for activities; none without slots for them."""
        return self.max_concurrent_activity_task_polls if self.max_concurrent_activities else 0

    def heartbeat_interval(self, heartbeat_timeout: timedelta | None) -> timedelta:
        """How often heartbeats are sent for an activity with this timeout, or with none."""
        wanted = self.default_heartbeat_throttle_interval
        if heartbeat_timeout is not None:
            wanted = heartbeat_timeout * 4 / 5
        return min(self.max_heartbeat_throttle_interval, wanted)
