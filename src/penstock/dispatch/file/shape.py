"""The shape of a dispatch file: tables, keys and kinds of values, for both the reader and the JSON Schema."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from penstock.dispatch.bounds import POLLS_MAX, RATE_LEAST, RATE_MAX, SLOTS_MAX
from penstock.dispatch.frozen import FrozenDict
from penstock.dispatch.options import RetryPolicyConfigOverlay
from penstock.dispatch.routing.models import (
    HandleOptions,
    OptionsPattern,
    QueuePattern,
    RetryPolicyConfig,
    Route,
    RouteOptions,
)
from penstock.dispatch.schedules import DeclaredSchedule
from penstock.schema.json_schema import schema_of
from penstock.schema.kinds import NOT_BLANK, Choice, Duration, Flag, Kind, Number, Text, TextList, Whole
from penstock.schema.shapes import Key, ListOf, Table, TableOf

QUEUE_NAME_MAX = 200
NAME_MAX = 255
"""No server takes a longer one."""
RESERVED_PREFIX = "__penstock"
_QUEUE_NAME = Text(
    f"the name of a task queue: at most {QUEUE_NAME_MAX} characters and not empty, no control characters or other"
    f" invisible ones, and no reserved {RESERVED_PREFIX} at the beginning",
    re.compile(rf"(?!{RESERVED_PREFIX}){NOT_BLANK.pattern}", re.DOTALL),
    QUEUE_NAME_MAX,
    is_printable=True,
)
_ROUTING_KEY = Text(
    "a routing key, which must not be empty here (calls without one go to the default)", re.compile("(?s).+")
)
_NAME = Text(
    f"a name of 1 to {NAME_MAX} characters, without control characters or other invisible ones",
    length_max=NAME_MAX,
    is_printable=True,
)
_NAMES = TextList("a list of names", _NAME)
_RATE = Number(above=0, least=RATE_LEAST, most=RATE_MAX)
_SLOTS, _SLOTS_OR_NONE = Whole(1, SLOTS_MAX), Whole(0, SLOTS_MAX)


def _perhaps(name: str, holds: Kind | Table, says: str) -> Key:
    return Key(name, holds, says, can_be_unset=True)


def _route(**found: Any) -> Route:
    for name in ("by_handle", "handle_options"):
        found[name] = FrozenDict(found.get(name, {}))
    return Route(**found)


def _options_pattern(match: str, **found: Any) -> OptionsPattern:
    return OptionsPattern(match, HandleOptions(**found))


# One key a line.
# fmt: off
_RETRY_SCALARS = (
    Key("initial_interval", Duration(), "The pause before the second attempt."),
    Key("backoff_coefficient", Number(least=1), "Each pause is so many times the one before."),
    Key("maximum_interval", Duration(or_unlimited=True), 'The longest pause, or "unlimited".'),
    Key("maximum_attempts", Whole(1, or_unlimited=True), 'How often it is tried in all, or "unlimited".'),
)
_BASELINE = Table(
    (*_RETRY_SCALARS, Key("non_retryable_error_types", _NAMES, "Errors of these types are never retried.")),
    {"non_retryable_error_types_extra":
        "not allowed on the baseline; the main list is `non_retryable_error_types`"},
    make=RetryPolicyConfig,
)
_OVERLAY = Table(
    (*_RETRY_SCALARS,
     Key("non_retryable_error_types_extra", _NAMES, "Adds types that are never retried; none is removed.")),
    {"non_retryable_error_types":
        "not allowed on an overlay; overlays add with `non_retryable_error_types_extra`"},
    make=RetryPolicyConfigOverlay,
)
_START_TO_CLOSE = _perhaps("start_to_close_timeout", Duration(), "How long one attempt may take.")
_RETRY = _perhaps("retry_policy_config", _OVERLAY, "What differs from the retry policy of the queue.")
_OF_THE_QUEUE = "belongs to the queue: set it in `queue_options`"
_CAP_INSTEAD = {"max_task_queue_activities_per_second": f"not allowed here: the cap {_OF_THE_QUEUE}"}
_HANDLE_INSTEAD = {
    "heartbeat_timeout": "not allowed here: heartbeat is a property of the queue; set it in `queue_options`",
    "schedule_to_close_timeout": f"not allowed here: it {_OF_THE_QUEUE}",
    "schedule_to_start_timeout": f"not allowed here: it {_OF_THE_QUEUE}",
    **_CAP_INSTEAD,
}
_HANDLE = Table((_START_TO_CLOSE, _RETRY), _HANDLE_INSTEAD, make=HandleOptions)
_MATCH = Key("match", Text(), "A shell-style pattern of routing keys, as claude-*.", is_required=True)
_ACTIVITY_KEYS = (
    _START_TO_CLOSE,
    _perhaps("schedule_to_close_timeout", Duration(), "How long all attempts and waits may take."),
    _perhaps("schedule_to_start_timeout", Duration(), "How long an activity may wait in the queue."),
    _perhaps("heartbeat_timeout", Duration(), "How long an activity may be silent."),
)
_ACTIVITY = Table((*_ACTIVITY_KEYS, _RETRY), _CAP_INSTEAD, make=RouteOptions)
_QUEUE_PATTERN = Table(
    (_MATCH, Key("queue", _QUEUE_NAME, "Where matching keys go.", is_required=True)), make=QueuePattern
)
_OPTIONS_PATTERN = Table((_MATCH, _START_TO_CLOSE, _RETRY), _HANDLE_INSTEAD, make=_options_pattern)
_ROUTE = Table((
    Key("default", _QUEUE_NAME, "Where the activity goes without a better word.", is_required=True),
    Key("by_handle", TableOf(_QUEUE_NAME, "handle", _ROUTING_KEY),
        "Routing keys, exactly as they are, to queues."),
    Key("by_pattern", ListOf(_QUEUE_PATTERN), "Tried in order when no key of by_handle is the routing key."),
    _perhaps("options", _ACTIVITY, "Options of the activity, over those of its queue."),
    Key("handle_options", TableOf(_HANDLE, "handle", _ROUTING_KEY), "Options of single routing keys."),
    Key("handle_options_by_pattern", ListOf(_OPTIONS_PATTERN),
        "Tried in order when no key of handle_options is the routing key."),
), make=_route)
_WORKER_CONFIG = Table((
    Key("default_task_queue", _QUEUE_NAME, "The home queue."),
    Key("task_queue", _QUEUE_NAME, "The old name of default_task_queue."),
    Key("activity_queues", TableOf(_ROUTE, "activity"), "Where activities go. None: routing is off."),
    Key("default_activity_start_to_close_timeout", Duration(),
        "How long one attempt of an activity may take if nothing else says so."),
    _perhaps("default_activity_heartbeat_timeout", Duration(), "How long an activity may be silent."),
    Key("retry_policy_config", _BASELINE, "How activities are retried if nothing else says so."),
    _perhaps("workflow_execution_timeout", Duration(), "Bounds a workflow with all its runs."),
    _perhaps("run_timeout", Duration(), "Bounds one run of a workflow."),
    _perhaps("task_timeout", Duration(most=timedelta(minutes=2)), "Bounds one workflow task."),
    _perhaps("start_delay", Duration(or_zero=True), "How long a workflow waits before it begins."),
    _perhaps("rpc_timeout", Duration(), "How long the request that starts a workflow may take."),
))
_QUEUE = Table((
    *_ACTIVITY_KEYS,
    _perhaps("retry_policy_config", _OVERLAY, "What differs from the baseline's retry policy."),
    _perhaps("max_task_queue_activities_per_second", _RATE,
             "Most activities per second that the queue hands out, to all its workers together."),
))
_PROFILE = Table((
    Key("inherits", Text(), "The profile that gives what this one leaves out."),
    Key("tuning_mode", Choice(("explicit",), ("resource_based",)),
        "How slots are found; only explicit numbers for now."),
    Key("max_cached_workflows", _SLOTS_OR_NONE, "Workflow states kept in memory; 0 replays on each task."),
    Key("max_concurrent_workflow_tasks", _SLOTS, "Slots for workflow tasks."),
    Key("max_concurrent_activities", _SLOTS_OR_NONE, "Slots for activities; 0 never polls for any."),
    Key("max_concurrent_local_activities", _SLOTS_OR_NONE, "Slots for local activities; 0 refuses them."),
    Key("max_concurrent_workflow_task_polls", Whole(1, POLLS_MAX), "Open polls for workflow tasks."),
    Key("max_concurrent_activity_task_polls", Whole(0, POLLS_MAX), "Open polls for activities."),
    Key("max_activities_per_second", _RATE, "Most activities per second of this process."),
    Key("sticky_queue_schedule_to_start_timeout", Duration(),
        "How long a task waits for the worker that has its workflow in memory."),
    Key("max_heartbeat_throttle_interval", Duration(), "Heartbeats are sent at least this often."),
    Key("default_heartbeat_throttle_interval", Duration(), "How often without a heartbeat timeout."),
    Key("graceful_shutdown_timeout", Duration(or_zero=True),
        "How long running activities get after a stop request."),
))
_SCOPE = Table((
    Key("required_tasks_packs", _NAMES, "Packs whose members are registered."),
    Key("tags", _NAMES, "Tags whose bearers are registered."),
    Key("required_workflows", _NAMES, "Workflows to register; shell-style patterns are welcome."),
    Key("required_activities", _NAMES, "Activities to register."),
    Key("excluded_workflows", _NAMES, "Workflows to leave out."),
    Key("excluded_activities", _NAMES, "Activities to leave out."),
    Key("disable_all_workflows", Flag(), "Register no workflow at all."),
    Key("disable_all_activities", Flag(), "Register no activity at all."),
))
_CRONS = TextList("a list of cron expressions", Text("a cron expression", length_max=255))
_SCHEDULE = Table((
    Key("cron", _CRONS, "When it fires: cron expressions of five fields, or @daily and the like."),
    Key("every", Duration(), "When it fires: an interval since 1970-01-01 UTC."),
    Key("timezone", _NAME, "The time zone of the cron expressions; UTC by default."),
    Key("jitter", Duration(most=timedelta(hours=1)), "Delays each fire by up to this time."),
    Key("workflow", _NAME, "The workflow that it starts."),
    Key("activity", _NAME, "The activity or task that it starts, instead of a workflow."),
    Key("task_queue", _QUEUE_NAME, "Where it runs: by default the home queue, or the route of the activity."),
    Key("args", Kind(), "A list of its arguments."),
), needs_one_of=("cron", "every"), make=DeclaredSchedule)
_LOG = Table(
    (Key("is_dispatch_resolution_traced", Flag(), "Log where every value of a dispatch comes from."),),
    also_unused=Flag(),
)
_UNUSED = {
    name: Key(name, Kind(), is_unused=True)
    for name in ("temporal_server_configs", "selected_server", "is_enabled", "payload_codec_config",
                 "search_attributes")
}
ROOT = Table((
    Key("worker_config", _WORKER_CONFIG, "Where activities go, and the baseline of their options."),
    Key("queue_options", TableOf(_QUEUE, "task queue", _QUEUE_NAME), "Options of single task queues."),
    Key("worker_runtime_profiles", Table((
        Key("default_profile", Text(), "The profile of a worker that names none."),
        Key("profiles", TableOf(_PROFILE, "profile"), "How worker processes are tuned."),
    ))),
    Key("worker_scopes", Table((
        Key("default_scope", Text(), "The scope of a worker that names none."),
        Key("scopes", TableOf(_SCOPE, "scope"), "What workers register."),
    ))),
    Key("temporal_config", Table((
        Key("temporal_log_config", _LOG), _UNUSED["temporal_server_configs"], _UNUSED["selected_server"],
    ))),
    Key("schedules", TableOf(_SCHEDULE, "schedule", _NAME), "Schedules that workers create when they start."),
    Key("strict_queues", Flag(), "Whether queues without options, and options without routes, are errors."),
    Key("auto_heartbeat", Flag(), "Whether workers send heartbeats for activities that are alive."),
    Key("queue_rate_burst_seconds", Number(above=0, most=60),
        "So many seconds' worth of a queue's cap may be handed out at once."),
    _UNUSED["is_enabled"],
    _UNUSED["payload_codec_config"],
    _UNUSED["search_attributes"],
))
# fmt: on


def json_schema() -> dict[str, Any]:
    """The schema of a whole file: the root table under any of its three names; other tables are ignored."""
    here = {"$ref": "#/$defs/dispatch"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Dispatch configuration of Penstock",
        "type": "object",
        "properties": {
            "penstock": here,
            "temporal": here,
            "tool": {"type": "object", "properties": {"penstock": here}},
        },
        "$defs": {"dispatch": schema_of(ROOT)},
    }
