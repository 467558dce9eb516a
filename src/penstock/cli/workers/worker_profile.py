"""A worker's queue, profile and scope from a dispatch configuration, checked before user code is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.dispatch.files import DispatchMisconfigured, Sources
from penstock.cli.output.exits import Exit, warn

if TYPE_CHECKING:
    from penstock.dispatch import DispatchConfig, DispatchConfigError, Profile, Scope, Selection
    from penstock.sdk.app import Penstock

Found = TypeVar("Found")
_OF_WORKER = (
    "max_cached_workflows",
    "max_concurrent_workflow_tasks",
    "max_concurrent_local_activities",
    "max_concurrent_workflow_task_polls",
    "sticky_queue_schedule_to_start_timeout",
    "max_heartbeat_throttle_interval",
    "default_heartbeat_throttle_interval",
)
"""Options that worker and profile have under the same name."""


class WorkerConfigErrors(click.ClickException):
    """All problems of a worker's queue, profile and scope (exit code 2)."""

    exit_code = int(Exit.USAGE)

    def __init__(self, errors: Sequence[DispatchConfigError]) -> None:
        super().__init__("\n".join(error.message for error in errors))
        self.errors = errors

    def show(self, file: IO[Any] | None = None) -> None:
        for error in self.errors:
            DispatchMisconfigured(error).show(file)


@dataclass(frozen=True, slots=True)
class WorkerFlags:
    """The worker's flags; None selects the default of the configuration."""

    task_queue: str | None = None
    profile: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """A worker as configured, before its program is imported."""

    config: DispatchConfig
    sources: Sources
    words: WorkerFlags
    task_queue: str
    profile: Profile
    scope: Scope

    @property
    def queue_cap(self) -> float | None:
        return self.config.queue_cap(self.task_queue)

    def routes(self) -> list[str]:
        """The routes that lead to this queue."""
        found: list[str] = []
        for activity, route in self.config.worker_config.activity_queues.items():
            for how, queue in route.targets():
                if queue == self.task_queue:
                    found.append(".".join([activity, *map(str, how)]))
        return found

    def profile_values(self) -> dict[str, Any]:
        left_out = ("name", "inherits")
        return {
            each.name: getattr(self.profile, each.name)
            for each in fields(self.profile)
            if each.name not in left_out
        }

    def facts(self) -> dict[str, Any]:
        """The facts of the worker, as data."""
        return {
            "task_queue": self.task_queue,
            "profile": self.profile.name,
            "scope": self.scope.name,
            "fingerprint": self.config.fingerprint,
            "queue_cap_per_second": self.queue_cap,
            "profile_values": {name: _json_value(value) for name, value in self.profile_values().items()},
            "routes": self.routes(),
        }

    def worker_options(self, chosen: SelectedCode) -> dict[str, Any]:
        """The options of `Worker` that the profile sets; zeros are kept."""
        profile = self.profile
        options: dict[str, Any] = {name: getattr(profile, name) for name in _OF_WORKER}
        options["graceful_shutdown_timeout"] = profile.graceful_shutdown_timeout
        options["max_concurrent_activities"] = profile.max_concurrent_activities
        options["max_concurrent_activity_task_polls"] = profile.activity_task_polls
        if not chosen.workflows:
            options["max_concurrent_local_activities"] = 0
        if chosen.activities and profile.max_concurrent_activities:
            options["max_activities_per_second"] = profile.max_activities_per_second
        return options


@dataclass(frozen=True, slots=True)
class SelectedCode:
    """The part of the program that the scope leaves."""

    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    selection: Selection
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


def load_worker_profile(
    sources: Sources, task_queue: str | None, profile: str | None, scope: str | None
) -> WorkerProfile:
    """Check all three, and report all findings together."""
    return worker_profile_from(sources.load(), sources, WorkerFlags(task_queue, profile, scope))


def worker_profile_from(config: DispatchConfig, sources: Sources, words: WorkerFlags) -> WorkerProfile:
    """Like `load_worker_profile`, for a loaded configuration. Raises `WorkerConfigErrors`."""
    errors: list[DispatchConfigError] = []
    named = words.task_queue
    queue = config.worker_config.default_task_queue if named is None else named
    _tried(lambda: config.check_task_queue(queue), errors)
    profile = _tried(lambda: config.profile(words.profile), errors)
    scope = _tried(lambda: config.scope(words.scope), errors)
    if profile is None or scope is None or errors:
        raise WorkerConfigErrors([*errors, *doubts_about(config, scope)])
    return WorkerProfile(config, sources, words, queue, profile, scope)


def doubts_about(config: DispatchConfig, scope: Scope | None) -> list[DispatchConfigError]:
    """A scope that may be a tag but resembles a declared scope; reported along with other problems."""
    from penstock.dispatch.problems import WorkerScopeUnknownError, unknown
    from penstock.schema.nearest import nearest

    known = config.worker_scopes.scopes
    if scope is None or not scope.is_by_tag or not nearest(scope.name, known):
        return []
    return [WorkerScopeUnknownError([unknown("scope", scope.name, known, "scopes")])]


def choose(what: WorkerProfile, app: Penstock) -> SelectedCode:
    """Select the code to register. Raises `WorkerConfigErrors` if that is nothing or names unknown code."""
    from penstock.dispatch import DispatchConfigError, plan

    workflows, activities = _workflows(app), _activities(app)
    try:
        selection = what.scope.select(
            [member for member, _ in workflows.values()], [member for member, _ in activities.values()]
        )
        planned = plan(what.profile, selection)
    except DispatchConfigError as error:
        raise WorkerConfigErrors([error]) from error
    runs_local = what.profile.max_concurrent_local_activities > 0 and bool(selection.workflows)
    registered = planned.polls_activities or runs_local
    return SelectedCode(
        [workflows[name][1] for name in selection.workflows],
        [activities[name][1] for name in selection.activities] if registered else [],
        selection,
        planned.notes,
        [*planned.warnings, *_unknown_activities(what.config, activities)],
    )


def warn_of(chosen: SelectedCode) -> None:
    for each in chosen.warnings:
        warn(each)


def _unknown_activities(config: DispatchConfig, known: Mapping[str, Any]) -> list[str]:
    """Activities that the configuration routes, and the app does not have."""
    from penstock.schema.problems import hint_towards

    found: list[str] = []
    for name in config.worker_config.activity_queues:
        if name not in known:
            hint = hint_towards(name, known)
            text = f"activity_queues.{name}: the app has no such activity"
            found.append(f"{text}; {hint}" if hint else text)
    return found


def _workflows(app: Penstock) -> dict[str, tuple[Any, type]]:
    from penstock.dispatch import Member
    from penstock.sdk.workflows.definitions import WorkflowDefinition

    found: dict[str, tuple[Any, type]] = {}
    for cls in app.workflows:
        definition = WorkflowDefinition.of(cls)
        name = definition.name or "(dynamic)"
        found[name] = (Member(name, definition.pack), cls)
    return found


def _activities(app: Penstock) -> dict[str, tuple[Any, Callable[..., Any]]]:
    from penstock.dispatch import Member
    from penstock.sdk.activities.definition import ActivityDefinition

    found: dict[str, tuple[Any, Callable[..., Any]]] = {}
    everything: list[Callable[..., Any]] = [*app.tasks.values(), *app.activities]
    for fn in everything:
        definition = ActivityDefinition.must_be(fn)
        name = definition.name or "(dynamic)"
        found[name] = (Member(name, definition.pack, definition.tags), fn)
    return found


def _tried(step: Callable[[], Found], errors: list[DispatchConfigError]) -> Found | None:
    from penstock.dispatch import DispatchConfigError

    try:
        return step()
    except DispatchConfigError as error:
        errors.append(error)
        return None


def _json_value(value: Any) -> Any:
    return str(value) if isinstance(value, timedelta) else value
