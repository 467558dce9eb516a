"""The whole of a dispatch configuration as one frozen object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.dispatch.options import DispatchOptions, Layer
from penstock.dispatch.problems import (
    WorkerProfileUnknownError,
    WorkerScopeUnknownError,
    WorkerTaskQueueUnknownError,
    unknown,
)
from penstock.dispatch.routing.models import Profile, QueueOptions
from penstock.dispatch.routing.scopes import BUILT_IN, Scope, by_tag
from penstock.dispatch.routing.trace_log import emit
from penstock.dispatch.routing.worker_config import WorkerConfig
from penstock.dispatch.schedules import DeclaredSchedule
from penstock.schema.nearest import Suggestions
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import Problem, hint_towards

_REMEMBERED_MAX = 8192


@dataclass(frozen=True, slots=True)
class WorkerRuntimeProfiles:
    """The profiles that a worker may take, and the one it takes unasked."""

    default_profile: str = "balanced"
    profiles: Mapping[str, Profile] = field(default_factory=lambda: {"balanced": Profile()})


@dataclass(frozen=True, slots=True)
class WorkerScopes:
    """The scopes that a worker may register, and the one it registers unasked."""

    default_scope: str = "full"
    scopes: Mapping[str, Scope] = field(default_factory=lambda: dict(BUILT_IN))


@dataclass(frozen=True, slots=True)
class TemporalLogConfig:
    """Logging options."""

    is_dispatch_resolution_traced: bool = False


@dataclass(frozen=True, slots=True)
class TemporalConfig:
    """The table that holds the log's switches."""

    temporal_log_config: TemporalLogConfig = field(default_factory=TemporalLogConfig)


@dataclass(frozen=True, slots=True)
class DispatchConfig:
    """Where activities go, how they are dispatched, how workers behave."""

    worker_config: WorkerConfig = field(default_factory=WorkerConfig)
    queue_options: Mapping[str, QueueOptions] = field(default_factory=dict)
    worker_runtime_profiles: WorkerRuntimeProfiles = field(default_factory=WorkerRuntimeProfiles)
    worker_scopes: WorkerScopes = field(default_factory=WorkerScopes)
    temporal_config: TemporalConfig = field(default_factory=TemporalConfig)
    schedules: Mapping[str, DeclaredSchedule] = field(default_factory=dict)
    strict_queues: bool = False
    auto_heartbeat: bool = True
    queue_rate_burst_seconds: float = 1.0
    fingerprint: str = field(default="", compare=False)
    """Changes whenever a value in force changes."""
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    unused: tuple[str, ...] = field(default=(), compare=False)
    """Keys that are for other programs."""
    root: str = field(default="penstock", compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)
    origins: Mapping[KeyPath, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each value was given: file and line, environment variable, flag."""
    _remembered: dict[object, DispatchOptions] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def is_traced(self) -> bool:
        return self.temporal_config.temporal_log_config.is_dispatch_resolution_traced

    def resolve(
        self,
        activity_name: str,
        routing_key: str | None = None,
        *,
        decorator: Layer | None = None,
        call_site: Layer | None = None,
        is_traced: bool | None = None,
    ) -> DispatchOptions:
        """The options of one activity call.

        `is_traced` overrides the switch of the file: a replay passes False.
        """
        options = self.options_of(activity_name, routing_key, decorator, call_site)
        was_traced = self.is_traced if is_traced is None else is_traced
        if was_traced:
            emit(activity_name, routing_key, options, self.fingerprint)
        return replace(options, routing_key=routing_key, was_traced=was_traced)

    def options_of(
        self,
        activity_name: str,
        routing_key: str | None = None,
        decorator: Layer | None = None,
        call_site: Layer | None = None,
    ) -> DispatchOptions:
        """Like `resolve` without a trace; cached by the parts of the file that decide."""
        asked = (activity_name, self.worker_config.places(activity_name, routing_key), decorator, call_site)
        options = self._remembered.get(asked)
        if options is None:
            options = self.worker_config.resolve_layers(
                activity_name, routing_key, self.queue_options, decorator, call_site
            )
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[asked] = options
        return options

    def known_queues(self) -> list[str]:
        """Every task queue that the configuration names."""
        routed = {
            queue for route in self.worker_config.activity_queues.values() for _, queue in route.targets()
        }
        return sorted({self.worker_config.default_task_queue, *routed, *self.queue_options})

    def check_task_queue(self, name: str) -> None:
        """Pass if the configuration names the queue."""
        known = self.known_queues()
        if name not in known:
            raise WorkerTaskQueueUnknownError([unknown("task queue", name, known, "queues")])

    def profile(self, name: str | None = None) -> Profile:
        """The profile of this name, or the default one."""
        known = self.worker_runtime_profiles.profiles
        wanted = self.worker_runtime_profiles.default_profile if name is None else name
        if wanted not in known:
            raise WorkerProfileUnknownError([unknown("profile", wanted, known, "profiles")])
        return known[wanted]

    def scope(self, name: str | None = None) -> Scope:
        """The scope of this name, or the default one.

        An undeclared `runner-<x>` selects by the tag `<x>`; unknown tags are found when it selects.
        """
        known = self.worker_scopes.scopes
        wanted = self.worker_scopes.default_scope if name is None else name
        found = known.get(wanted) or by_tag(wanted, known)
        if found is None:
            raise WorkerScopeUnknownError([unknown("scope", wanted, known, "scopes")])
        return found

    def unknown_activities(self, defined: Iterable[str]) -> list[Problem]:
        """A warning for each routed activity that the program does not define."""
        names = set(defined)
        suggest = Suggestions()
        return [
            Problem(
                f"{self.root}.{shown_path(('worker_config', 'activity_queues', activity))}",
                f"the program defines no activity {activity!r}",
                hint_towards(activity, names, suggest),
                self.origins.get(("worker_config", "activity_queues", activity), ""),
            )
            for activity in self.worker_config.activity_queues
            if activity not in names
        ]

    def queue_cap(self, task_queue: str) -> float | None:
        """The most activities per second of a queue, if the configuration caps it."""
        options = self.queue_options.get(task_queue)
        return options.max_task_queue_activities_per_second if options else None

    def all_non_retryable_error_types(self) -> frozenset[str]:
        """Every name that any layer of the file does not retry."""
        return self.worker_config.all_non_retryable_error_types(self.queue_options)
