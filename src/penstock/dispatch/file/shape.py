"""The shape of a dispatch file: tables, keys and kinds of values, for both the reader and the JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.dispatch.bounds import POLLS_MAX, RATE_LEAST, RATE_MAX, SLOTS_MAX
from penstock.dispatch.file.kinds import (
    DurationField,
    FieldKind,
    FlagField,
    IgnoredField,
    NameListField,
    NumberField,
    QueueNameField,
    RoutingKeyField,
    TextField,
    WholeField,
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    name: str
    holds: FieldKind | TableShape | TableOfShape | ListShape
    says: str = ""
    is_required: bool = False
    can_be_unset: bool = False
    is_unused: bool = False
    """Accepted because other programs read the same file; it has no effect here."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table with known keys. `instead` explains keys that belong elsewhere."""

    keys: tuple[Key, ...]
    instead: Mapping[str, str] = field(default_factory=dict)
    also_unused: FieldKind | None = None
    """What any other key may hold, unused; None: other keys are refused."""

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True)
class TableOfShape:
    """A table whose keys are names that the user chose."""

    holds: FieldKind | TableShape
    noun: str
    name_kind: FieldKind = field(default_factory=TextField)


@dataclass(frozen=True, slots=True)
class ListShape:
    """A list of tables."""

    holds: TableShape


def _perhaps(name: str, holds: FieldKind | TableShape, says: str) -> Key:
    return Key(name, holds, says, can_be_unset=True)


def _unused(name: str) -> Key:
    return Key(name, IgnoredField(), is_unused=True)


_RETRY_SCALARS = (
    Key("initial_interval", DurationField(), "The pause before the second attempt."),
    Key("backoff_coefficient", NumberField(least=1), "Each pause is so many times the one before."),
    Key("maximum_interval", DurationField(or_unlimited=True), 'The longest pause, or "unlimited".'),
    Key(
        "maximum_attempts", WholeField(1, or_unlimited=True), 'How often it is tried in all, or "unlimited".'
    ),
)
_BASELINE = TableShape(
    (
        *_RETRY_SCALARS,
        Key("non_retryable_error_types", NameListField(), "Errors of these types are never retried."),
    ),
    {
        "non_retryable_error_types_extra": (
            "not allowed on the baseline; the main list is `non_retryable_error_types`"
        )
    },
)
_OVERLAY = TableShape(
    (
        *_RETRY_SCALARS,
        Key(
            "non_retryable_error_types_extra",
            NameListField(),
            "Adds types that are never retried; none is removed.",
        ),
    ),
    {
        "non_retryable_error_types": (
            "not allowed on an overlay; overlays add with `non_retryable_error_types_extra`"
        )
    },
)
_HANDLE_KEYS = (
    _perhaps("start_to_close_timeout", DurationField(), "How long one attempt may take."),
    _perhaps("retry_policy_config", _OVERLAY, "What differs from the retry policy of the queue."),
)
_OF_THE_QUEUE = "belongs to the queue: set it in `queue_options`"
_HANDLE_INSTEAD = {
    "heartbeat_timeout": "not allowed here: heartbeat is a property of the queue; set it in `queue_options`",
    "schedule_to_close_timeout": f"not allowed here: it {_OF_THE_QUEUE}",
    "schedule_to_start_timeout": f"not allowed here: it {_OF_THE_QUEUE}",
    "max_task_queue_activities_per_second": f"not allowed here: the cap {_OF_THE_QUEUE}",
}
_HANDLE = TableShape(_HANDLE_KEYS, _HANDLE_INSTEAD)
_MATCH = Key("match", TextField(), "A shell-style pattern of routing keys, as claude-*.", is_required=True)
_ACTIVITY_KEYS = (
    _perhaps("start_to_close_timeout", DurationField(), "How long one attempt may take."),
    _perhaps("schedule_to_close_timeout", DurationField(), "How long all attempts and waits may take."),
    _perhaps("schedule_to_start_timeout", DurationField(), "How long an activity may wait in the queue."),
    _perhaps("heartbeat_timeout", DurationField(), "How long an activity may be silent."),
)
_ACTIVITY = TableShape(
    (
        *_ACTIVITY_KEYS,
        _perhaps("retry_policy_config", _OVERLAY, "What differs from the retry policy of the queue."),
    ),
    {"max_task_queue_activities_per_second": f"not allowed here: the cap {_OF_THE_QUEUE}"},
)
_ROUTE = TableShape(
    (
        Key("default", QueueNameField(), "Where the activity goes without a better word.", is_required=True),
        Key(
            "by_handle",
            TableOfShape(QueueNameField(), "handle", RoutingKeyField()),
            "Routing keys, exactly as they are, to queues.",
        ),
        Key(
            "by_pattern",
            ListShape(
                TableShape(
                    (_MATCH, Key("queue", QueueNameField(), "Where matching keys go.", is_required=True))
                )
            ),
            "Tried in order when no key of by_handle is the routing key.",
        ),
        _perhaps("options", _ACTIVITY, "Options of the activity, over those of its queue."),
        Key(
            "handle_options",
            TableOfShape(_HANDLE, "handle", RoutingKeyField()),
            "Options of single routing keys.",
        ),
        Key(
            "handle_options_by_pattern",
            ListShape(TableShape((_MATCH, *_HANDLE_KEYS), _HANDLE_INSTEAD)),
            "Tried in order when no key of handle_options is the routing key.",
        ),
    )
)
_WORKER_CONFIG = TableShape(
    (
        Key("default_task_queue", QueueNameField(), "The home queue."),
        Key("task_queue", QueueNameField(), "The old name of default_task_queue."),
        Key(
            "activity_queues", TableOfShape(_ROUTE, "activity"), "Where activities go. None: routing is off."
        ),
        Key(
            "default_activity_start_to_close_timeout",
            DurationField(),
            "How long one attempt of an activity may take if nothing else says so.",
        ),
        _perhaps(
            "default_activity_heartbeat_timeout", DurationField(), "How long an activity may be silent."
        ),
        Key("retry_policy_config", _BASELINE, "How activities are retried if nothing else says so."),
        _perhaps("workflow_execution_timeout", DurationField(), "Bounds a workflow with all its runs."),
        _perhaps("run_timeout", DurationField(), "Bounds one run of a workflow."),
        _perhaps("task_timeout", DurationField(most=timedelta(minutes=2)), "Bounds one workflow task."),
        _perhaps("start_delay", DurationField(or_zero=True), "How long a workflow waits before it begins."),
        _perhaps("rpc_timeout", DurationField(), "How long the request that starts a workflow may take."),
    )
)
_QUEUE = TableShape(
    (
        *_ACTIVITY_KEYS,
        _perhaps("retry_policy_config", _OVERLAY, "What differs from the baseline's retry policy."),
        _perhaps(
            "max_task_queue_activities_per_second",
            NumberField(above=0, least=RATE_LEAST, most=RATE_MAX),
            "Most activities per second that the queue hands out, to all its workers together.",
        ),
    )
)
_PROFILE = TableShape(
    (
        Key("inherits", TextField(), "The profile that gives what this one leaves out."),
        Key(
            "tuning_mode",
            TextField(words=("explicit",), reserved=("resource_based",)),
            "How slots are found; only explicit numbers for now.",
        ),
        Key(
            "max_cached_workflows",
            WholeField(0, most=SLOTS_MAX),
            "Workflow states kept in memory; 0 replays on each task.",
        ),
        Key("max_concurrent_workflow_tasks", WholeField(1, most=SLOTS_MAX), "Slots for workflow tasks."),
        Key(
            "max_concurrent_activities",
            WholeField(0, most=SLOTS_MAX),
            "Slots for activities; 0 never polls for any.",
        ),
        Key(
            "max_concurrent_local_activities",
            WholeField(0, most=SLOTS_MAX),
            "Slots for local activities; 0 refuses them.",
        ),
        Key(
            "max_concurrent_workflow_task_polls",
            WholeField(1, most=POLLS_MAX),
            "Open polls for workflow tasks.",
        ),
        Key(
            "max_concurrent_activity_task_polls", WholeField(0, most=POLLS_MAX), "Open polls for activities."
        ),
        Key(
            "max_activities_per_second",
            NumberField(above=0, least=RATE_LEAST, most=RATE_MAX),
            "Most activities per second of this process.",
        ),
        Key(
            "sticky_queue_schedule_to_start_timeout",
            DurationField(),
            "How long a task waits for the worker that has its workflow in memory.",
        ),
        Key("max_heartbeat_throttle_interval", DurationField(), "Heartbeats are sent at least this often."),
        Key("default_heartbeat_throttle_interval", DurationField(), "How often without a heartbeat timeout."),
        Key(
            "graceful_shutdown_timeout",
            DurationField(or_zero=True),
            "How long running activities get after a stop request.",
        ),
    )
)
_SCOPE = TableShape(
    (
        Key("required_tasks_packs", NameListField(), "Packs whose members are registered."),
        Key("tags", NameListField(), "Tags whose bearers are registered."),
        Key(
            "required_workflows", NameListField(), "Workflows to register; shell-style patterns are welcome."
        ),
        Key("required_activities", NameListField(), "Activities to register."),
        Key("excluded_workflows", NameListField(), "Workflows to leave out."),
        Key("excluded_activities", NameListField(), "Activities to leave out."),
        Key("disable_all_workflows", FlagField(), "Register no workflow at all."),
        Key("disable_all_activities", FlagField(), "Register no activity at all."),
    )
)
_LOG = TableShape(
    (Key("is_dispatch_resolution_traced", FlagField(), "Log where every value of a dispatch comes from."),),
    also_unused=FlagField(),
)
ROOT = TableShape(
    (
        Key("worker_config", _WORKER_CONFIG, "Where activities go, and the baseline of their options."),
        Key(
            "queue_options",
            TableOfShape(_QUEUE, "task queue", QueueNameField()),
            "Options of single task queues.",
        ),
        Key(
            "worker_runtime_profiles",
            TableShape(
                (
                    Key("default_profile", TextField(), "The profile of a worker that names none."),
                    Key("profiles", TableOfShape(_PROFILE, "profile"), "How worker processes are tuned."),
                )
            ),
        ),
        Key(
            "worker_scopes",
            TableShape(
                (
                    Key("default_scope", TextField(), "The scope of a worker that names none."),
                    Key("scopes", TableOfShape(_SCOPE, "scope"), "What workers register."),
                )
            ),
        ),
        Key(
            "temporal_config",
            TableShape(
                (
                    Key("temporal_log_config", _LOG),
                    _unused("temporal_server_configs"),
                    _unused("selected_server"),
                )
            ),
        ),
        Key(
            "strict_queues",
            FlagField(),
            "Whether queues without options, and options without routes, are errors.",
        ),
        Key("auto_heartbeat", FlagField(), "Whether workers send heartbeats for activities that are alive."),
        Key(
            "queue_rate_burst_seconds",
            NumberField(above=0, most=60),
            "So many seconds' worth of a queue's cap may be handed out at once.",
        ),
        _unused("is_enabled"),
        _unused("payload_codec_config"),
        _unused("search_attributes"),
    )
)
