"""Which settings hold on Temporal: enforced, approximated or refused. Nothing is accepted and ignored.

One table says it for every setting of a dispatch file and of an app. `penstock config check --engine temporal` prints
it, a worker refuses what it refuses, and the guide's table is made from it. A setting that the table does not know is
refused, so that a new one cannot slip through.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from penstock.dispatch import DispatchConfig
from penstock.dispatch.inspection.effective import BUILT_IN_SOURCE, rows
from penstock.schema.paths import shown_path
from penstock.sdk.app_config.app import AppConfig
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.tasks.options import TaskOptions


class SupportLevel(StrEnum):
    """How far a setting holds on another engine."""

    ENFORCED = "enforced"
    APPROXIMATED = "approximated"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class EngineSupport:
    """One setting, and what becomes of it."""

    path: str
    value: Any
    level: SupportLevel
    how: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class SupportRule:
    """What becomes of the settings whose path matches: `*` is one name, `**` the rest."""

    pattern: str
    level: SupportLevel
    how: str
    value: Any = None
    """The only value that it is for; None is any."""

    def matches(self, path: Sequence[str], value: Any) -> bool:
        if self.value is not None and self.value != value:
            return False
        wanted = self.pattern.split(".")
        if wanted[-1] == "**":
            return len(path) >= len(wanted) - 1 and _same(wanted[:-1], path[: len(wanted) - 1])
        return len(path) == len(wanted) and _same(wanted, path)


_ENFORCED, _ROUGHLY, _NOT = SupportLevel.ENFORCED, SupportLevel.APPROXIMATED, SupportLevel.REFUSED
_FOR_CACHE: Final = "unless max_cached_workflows is 0: one of them serves the workflows in memory"
RULES: Final = (
    SupportRule("worker_config.default_task_queue", _ENFORCED, "the queue of the start"),
    SupportRule("worker_config.activity_queues.**", _ENFORCED, "arguments of each call"),
    SupportRule("worker_config.default_activity_*", _ENFORCED, "arguments of each call"),
    SupportRule(
        "worker_config.retry_policy_config.maximum_interval", _ENFORCED, "unlimited is ten years there"
    ),
    SupportRule("worker_config.retry_policy_config.**", _ENFORCED, "the retry policy of each call"),
    SupportRule("worker_config.workflow_execution_timeout", _ENFORCED, "an argument of the start"),
    SupportRule("worker_config.run_timeout", _ENFORCED, "an argument of the start"),
    SupportRule("worker_config.start_delay", _ENFORCED, "an argument of the start"),
    SupportRule("worker_config.rpc_timeout", _ENFORCED, "by the client"),
    SupportRule(
        "worker_config.task_timeout",
        _ROUGHLY,
        "code that blocks for 2 s fails its workflow task; the server waits 10 s for a worker",
    ),
    SupportRule(
        "queue_options.*.max_task_queue_activities_per_second",
        _ENFORCED,
        "by the server, divided over the partitions of the queue; eager activities are off",
    ),
    SupportRule("queue_options.**", _ENFORCED, "arguments of each call"),
    SupportRule(
        "worker_runtime_profiles.profiles.*.max_concurrent_workflow_tasks", _ROUGHLY, f"two, {_FOR_CACHE}", 1
    ),
    SupportRule(
        "worker_runtime_profiles.profiles.*.max_concurrent_workflow_task_polls",
        _ROUGHLY,
        f"two, {_FOR_CACHE}",
        1,
    ),
    SupportRule("worker_runtime_profiles.**", _ENFORCED, "arguments of the worker; zero is zero"),
    SupportRule("worker_scopes.**", _ENFORCED, "by the worker program"),
    SupportRule("temporal_config.**", _ENFORCED, "by the worker that runs the workflow"),
    SupportRule("strict_queues", _ENFORCED, "when the file is loaded"),
    SupportRule("auto_heartbeat", _ENFORCED, "by the worker"),
    SupportRule("queue_rate_burst_seconds", _ROUGHLY, "the burst is that of Temporal's own rate limiter"),
    SupportRule("schedules.**", _NOT, "create them with Temporal's schedules"),
    SupportRule("app.queue_mode", _ENFORCED, "by the app"),
    SupportRule("app.caps_version", _ENFORCED, "no caps are sent"),
    SupportRule(
        "app.custom_queues.*.priority", _NOT, "a worker of Temporal serves one queue; queues have no order"
    ),
    SupportRule(
        "app.custom_queues.*.max_concurrency",
        _NOT,
        "Temporal has no cap on running tasks; with --allow-approximate the slots of each worker",
    ),
    SupportRule("app.cluster_wide_cap", _NOT, "Temporal has no cap on running tasks of a namespace"),
    SupportRule("app.prefetch_buffer", _NOT, "each poll returns one task"),
    SupportRule("app.claim_lease_ms", _NOT, "each poll returns one task"),
    SupportRule("app.max_claim_renew_age_ms", _NOT, "each poll returns one task"),
    SupportRule("app.recovery", _NOT, "timeouts and heartbeats detect lost workers there"),
    SupportRule("app.schedules.*", _NOT, "create them with Temporal's schedules"),
    SupportRule("app.broker", _ENFORCED, "not used by workers"),
    SupportRule("app.tasks.*.good_until", _NOT, "use a schedule_to_start timeout of the dispatch file"),
    SupportRule(
        "app.tasks.*.on_lost_lease", _NOT, "redeliver: an attempt whose worker died counts there", "redeliver"
    ),
    SupportRule("app.tasks.**", _ENFORCED, "arguments of each send"),
)
"""The first rule that matches decides."""
LOST: Final = (
    ("Caps on running tasks of a queue, a key, a group, a namespace, the cluster", "none"),
    ("Budgets with cost, cool-down, `activity.throttled`", "only the throttled task waits; cost is refused"),
    ("Pause of a queue, a key, a group", "none"),
    (
        "`why`: the rule that holds a task back, its place, its expected start",
        "pollers, backlog, last failure",
    ),
    ("`verify`, rehearsals, what-if", "none"),
    ("Priority levels 0 to 9", "Temporal's five; fairness by its own rules, for each partition"),
    ("Prefetch, batches of claims, quarantine, child processes with `--processes`", "none"),
    ("`start_delay`, `good_until`, `cost_estimate`, `build_id` of an activity", "refused at the call"),
    ("Caps on runs (`concurrency_key`), backoffs that do not grow by one factor", "refused at the start"),
    ("Schedules of tasks and of the dispatch file (`@app.task(schedule=…)`)", "refused; see below"),
    ("`report_source_lines` of a worker", "refused"),
    ("Business keys, batch operations, following a history", "search attributes, `temporal` CLI"),
)
"""What a move to Temporal loses beyond settings, for the guide."""


class EngineSettingsRefused(ValueError):
    """Settings that the engine has nothing for. `found` has them."""

    def __init__(self, found: Sequence[EngineSupport]) -> None:
        lines = "".join(f"\n  - {each.path} = {each.value!r}: {each.how}" for each in found)
        super().__init__(f"Temporal does not have what these settings ask for:{lines}")
        self.found = tuple(found)


def support_of(
    config: DispatchConfig | None,
    app: AppConfig | None = None,
    tasks: Mapping[str, TaskOptions] | None = None,
    schedules: Collection[str] = (),
) -> list[EngineSupport]:
    """Return what becomes of each setting.

    Args:
        config: the dispatch configuration, if there is one.
        app: the configuration of the app, if it has one.
        tasks: the options of the app's tasks, by task.
        schedules: the tasks of the app that have a schedule.
    """
    found = [_judged(each.path, each.value, each.source) for each in rows(config)] if config else []
    of_app = [*_app_settings(app), *_task_settings(tasks)]
    of_app += [(shown_path(("app", "schedules", each)), "a schedule") for each in schedules]
    return found + [_judged(path, value, "the app") for path, value in of_app]


def check_support(
    config: DispatchConfig | None,
    app: AppConfig | None = None,
    tasks: Mapping[str, TaskOptions] | None = None,
    schedules: Collection[str] = (),
    *,
    allow_approximate: bool = False,
) -> list[EngineSupport]:
    """Raise `EngineSettingsRefused`, or return what is only approximated and was given by a person.

    Args:
        config: the dispatch configuration, if there is one.
        app: the configuration of the app, if it has one.
        tasks: the options of the app's tasks, by task.
        schedules: the tasks of the app that have a schedule.
        allow_approximate: start in spite of refused settings, which then have no effect.
    """
    found = support_of(config, app, tasks, schedules)
    refused = [each for each in found if each.level is SupportLevel.REFUSED]
    if refused and not allow_approximate:
        raise EngineSettingsRefused(refused)
    return [
        each for each in found if each.level is not SupportLevel.ENFORCED and each.source != BUILT_IN_SOURCE
    ]


def _judged(path: str, value: Any, source: str) -> EngineSupport:
    parts = _parts(path)
    for rule in RULES:
        if rule.matches(parts, value):
            return EngineSupport(path, value, rule.level, rule.how, source)
    return EngineSupport(path, value, _NOT, "Temporal has nothing for it", source)


def _app_settings(app: AppConfig | None) -> Iterator[tuple[str, Any]]:
    """Yield the settings of an app. Those that have their default and mean nothing are left out."""
    if app is None:
        return
    for name in ("cluster_wide_cap", "claim_lease_ms", "max_claim_renew_age_ms", "recovery"):
        if getattr(app, name) is not None:
            yield f"app.{name}", getattr(app, name)
    for name in ("prefetch_buffer", "caps_version"):
        if getattr(app, name):
            yield f"app.{name}", getattr(app, name)
    if app.broker is not None:
        yield "app.broker", type(app.broker).__name__
    yield "app.queue_mode", str(app.queue_mode)
    queues = app.custom_queues or ()
    for queue in queues:
        if len(queues) > 1:
            yield f"app.custom_queues.{queue.name}.priority", queue.priority
        if queue.max_concurrency is not None:
            yield f"app.custom_queues.{queue.name}.max_concurrency", queue.max_concurrency


def _task_settings(tasks: Mapping[str, TaskOptions] | None) -> Iterator[tuple[str, Any]]:
    """Yield the options that tasks set."""
    for task, options in (tasks or {}).items():
        for each in fields(options):
            value = getattr(options, each.name)
            if isinstance(value, RetryPolicy):
                value = f"{value.maximum_attempts or 'unlimited'} attempts"
            if value is not None:
                yield shown_path(("app", "tasks", task, each.name)), value


def _parts(path: str) -> list[str]:
    """Split a path at its dots. Names with dots are quoted."""
    parts, word, quoted = [], "", False
    for letter in path:
        if letter == '"':
            quoted = not quoted
        elif letter == "." and not quoted:
            parts.append(word)
            word = ""
        else:
            word += letter
    return [*parts, word]


def _same(wanted: Sequence[str], given: Sequence[str]) -> bool:
    return all(
        one == "*" or one == other or (one.endswith("*") and other.startswith(one[:-1]))
        for one, other in zip(wanted, given, strict=True)
    )
