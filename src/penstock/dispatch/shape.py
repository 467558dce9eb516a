"""The shape of a dispatch file: every table, every key, what it may hold. Reader and JSON Schema both follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.dispatch.bounds import POLLS_MAX, RATE_LEAST, RATE_MAX, SLOTS_MAX
from penstock.dispatch.kinds import (
    Duration,
    Flag,
    Ignored,
    Kind,
    Names,
    Number,
    QueueName,
    RoutingKeyText,
    Text,
    Whole,
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    name: str
    holds: Kind | Table | TableOf | ListOf
    says: str = ""
    is_required: bool = False
    can_be_unset: bool = False
    is_unused: bool = False
    """Accepted because other programs read the same file; it has no effect here."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with known keys. `instead` explains words that belong elsewhere."""

    keys: tuple[Key, ...]
    instead: Mapping[str, str] = field(default_factory=dict)
    also_unused: Kind | None = None
    """What any other key may hold, unused; None: other keys are refused."""

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True)
class TableOf:
    """A table whose keys are names that the user chose."""

    holds: Kind | Table
    noun: str
    name_kind: Kind = field(default_factory=Text)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of tables."""

    holds: Table


def _perhaps(name: str, holds: Kind | Table, says: str) -> Key:
    return Key(name, holds, says, can_be_unset=True)


def _unused(name: str) -> Key:
    return Key(name, Ignored(), is_unused=True)


_RETRY_SCALARS = (
    Key("initial_interval", Duration(), "The pause before the second attempt."),
    Key("backoff_coefficient", Number(least=1), "Each pause is so many times the one before."),
    Key("maximum_interval", Duration(or_unlimited=True), 'The longest pause, or "unlimited".'),
    Key("maximum_attempts", Whole(1, or_unlimited=True), 'How often it is tried in all, or "unlimited".'),
)
_BASELINE = Table(
    (
        *_RETRY_SCALARS,
        Key("non_retryable_error_types", Names(), "Errors of these types are never retried."),
    ),
    {
        "non_retryable_error_types_extra": (
            "not allowed on the baseline; the main list is `non_retryable_error_types`"
        )
    },
)
_OVERLAY = Table(
    (
        *_RETRY_SCALARS,
        Key(
            "non_retryable_error_types_extra", Names(), "Adds types that are never retried; none is removed."
        ),
    ),
    {
        "non_retryable_error_types": (
            "not allowed on an overlay; overlays add with `non_retryable_error_types_extra`"
        )
    },
)
_HANDLE_KEYS = (
    _perhaps("start_to_close_timeout", Duration(), "How long one attempt may take."),
    _perhaps("retry_policy_config", _OVERLAY, "What differs from the retry policy of the queue."),
)
_OF_THE_QUEUE = "belongs to the queue: set it in `queue_options`"
_HANDLE_INSTEAD = {
    "heartbeat_timeout": "not allowed here: heartbeat is a property of the queue; set it in `queue_options`",
    "schedule_to_close_timeout": f"not allowed here: it {_OF_THE_QUEUE}",
    "schedule_to_start_timeout": f"not allowed here: it {_OF_THE_QUEUE}",
    "max_task_queue_activities_per_second": f"not allowed here: the cap {_OF_THE_QUEUE}",
}
_HANDLE = Table(_HANDLE_KEYS, _HANDLE_INSTEAD)
_MATCH = Key("match", Text(), "A shell-style pattern of routing keys, as claude-*.", is_required=True)
_ACTIVITY_KEYS = (
    _perhaps("start_to_close_timeout", Duration(), "How long one attempt may take."),
    _perhaps("schedule_to_close_timeout", Duration(), "How long all attempts and waits may take."),
    _perhaps("schedule_to_start_timeout", Duration(), "How long an activity may wait in the queue."),
    _perhaps("heartbeat_timeout", Duration(), "How long an activity may be silent."),
)
_ACTIVITY = Table(
    (
        *_ACTIVITY_KEYS,
        _perhaps("retry_policy_config", _OVERLAY, "What differs from the retry policy of the queue."),
    ),
    {"max_task_queue_activities_per_second": f"not allowed here: the cap {_OF_THE_QUEUE}"},
)
_ROUTE = Table(
    (
        Key("default", QueueName(), "Where the activity goes without a better word.", is_required=True),
        Key(
            "by_handle",
            TableOf(QueueName(), "handle", RoutingKeyText()),
            "Routing keys, exactly as they are, to queues.",
        ),
        Key(
            "by_pattern",
            ListOf(Table((_MATCH, Key("queue", QueueName(), "Where matching keys go.", is_required=True)))),
            "Tried in order when no key of by_handle is the routing key.",
        ),
        _perhaps("options", _ACTIVITY, "Options of the activity, over those of its queue."),
        Key(
            "handle_options", TableOf(_HANDLE, "handle", RoutingKeyText()), "Options of single routing keys."
        ),
        Key(
            "handle_options_by_pattern",
            ListOf(Table((_MATCH, *_HANDLE_KEYS), _HANDLE_INSTEAD)),
            "Tried in order when no key of handle_options is the routing key.",
        ),
    )
)
_WORKER_CONFIG = Table(
    (
        Key("default_task_queue", QueueName(), "The home queue."),
        Key("task_queue", QueueName(), "The old name of default_task_queue."),
        Key("activity_queues", TableOf(_ROUTE, "activity"), "Where activities go. None: routing is off."),
        Key(
            "default_activity_start_to_close_timeout",
            Duration(),
            "How long one attempt of an activity may take if nothing else says so.",
        ),
        _perhaps("default_activity_heartbeat_timeout", Duration(), "How long an activity may be silent."),
        Key("retry_policy_config", _BASELINE, "How activities are retried if nothing else says so."),
        _perhaps("workflow_execution_timeout", Duration(), "Bounds a workflow with all its runs."),
        _perhaps("run_timeout", Duration(), "Bounds one run of a workflow."),
        _perhaps("task_timeout", Duration(most=timedelta(minutes=2)), "Bounds one workflow task."),
        _perhaps("start_delay", Duration(or_zero=True), "How long a workflow waits before it begins."),
        _perhaps("rpc_timeout", Duration(), "How long the request that starts a workflow may take."),
    )
)
_QUEUE = Table(
    (
        *_ACTIVITY_KEYS,
        _perhaps("retry_policy_config", _OVERLAY, "What differs from the baseline's retry policy."),
        _perhaps(
            "max_task_queue_activities_per_second",
            Number(above=0, least=RATE_LEAST, most=RATE_MAX),
            "Most activities per second that the queue hands out, to all its workers together.",
        ),
    )
)
_PROFILE = Table(
    (
        Key("inherits", Text(), "The profile that gives what this one leaves out."),
        Key(
            "tuning_mode",
            Text(words=("explicit",), reserved=("resource_based",)),
            "How slots are found; only explicit numbers for now.",
        ),
        Key(
            "max_cached_workflows",
            Whole(0, most=SLOTS_MAX),
            "Workflow states kept in memory; 0 replays on each task.",
        ),
        Key("max_concurrent_workflow_tasks", Whole(1, most=SLOTS_MAX), "Slots for workflow tasks."),
        Key(
            "max_concurrent_activities",
            Whole(0, most=SLOTS_MAX),
            "Slots for activities; 0 never polls for any.",
        ),
        Key(
            "max_concurrent_local_activities",
            Whole(0, most=SLOTS_MAX),
            "Slots for local activities; 0 refuses them.",
        ),
        Key("max_concurrent_workflow_task_polls", Whole(1, most=POLLS_MAX), "Open polls for workflow tasks."),
        Key("max_concurrent_activity_task_polls", Whole(0, most=POLLS_MAX), "Open polls for activities."),
        Key(
            "max_activities_per_second",
            Number(above=0, least=RATE_LEAST, most=RATE_MAX),
            "Most activities per second of this process.",
        ),
        Key(
            "sticky_queue_schedule_to_start_timeout",
            Duration(),
            "How long a task waits for the worker that has its workflow in memory.",
        ),
        Key("max_heartbeat_throttle_interval", Duration(), "Heartbeats are sent at least this often."),
        Key("default_heartbeat_throttle_interval", Duration(), "How often without a heartbeat timeout."),
        Key(
            "graceful_shutdown_timeout",
            Duration(or_zero=True),
            "How long running activities get after a stop request.",
        ),
    )
)
_SCOPE = Table(
    (
        Key("required_tasks_packs", Names(), "Packs whose members are registered."),
        Key("tags", Names(), "Tags whose bearers are registered."),
        Key("required_workflows", Names(), "Workflows to register; shell-style patterns are welcome."),
        Key("required_activities", Names(), "Activities to register."),
        Key("excluded_workflows", Names(), "Workflows to leave out."),
        Key("excluded_activities", Names(), "Activities to leave out."),
        Key("disable_all_workflows", Flag(), "Register no workflow at all."),
        Key("disable_all_activities", Flag(), "Register no activity at all."),
    )
)
_LOG = Table(
    (Key("is_dispatch_resolution_traced", Flag(), "Log where every value of a dispatch comes from."),),
    also_unused=Flag(),
)
ROOT = Table(
    (
        Key("worker_config", _WORKER_CONFIG, "Where activities go, and the baseline of their options."),
        Key("queue_options", TableOf(_QUEUE, "task queue", QueueName()), "Options of single task queues."),
        Key(
            "worker_runtime_profiles",
            Table(
                (
                    Key("default_profile", Text(), "The profile of a worker that names none."),
                    Key("profiles", TableOf(_PROFILE, "profile"), "How worker processes are tuned."),
                )
            ),
        ),
        Key(
            "worker_scopes",
            Table(
                (
                    Key("default_scope", Text(), "The scope of a worker that names none."),
                    Key("scopes", TableOf(_SCOPE, "scope"), "What workers register."),
                )
            ),
        ),
        Key(
            "temporal_config",
            Table(
                (
                    Key("temporal_log_config", _LOG),
                    _unused("temporal_server_configs"),
                    _unused("selected_server"),
                )
            ),
        ),
        Key(
            "strict_queues", Flag(), "Whether queues without options, and options without routes, are errors."
        ),
        Key("auto_heartbeat", Flag(), "Whether workers send heartbeats for activities that are alive."),
        Key(
            "queue_rate_burst_seconds",
            Number(above=0, most=60),
            "So many seconds' worth of a queue's cap may be handed out at once.",
        ),
        _unused("is_enabled"),
        _unused("payload_codec_config"),
        _unused("search_attributes"),
    )
)
