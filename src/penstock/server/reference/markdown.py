"""The reference pages of the HTTP API in Markdown, rendered from the tables that the server itself uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from penstock.core.permissions import ACCESS, Plane
from penstock.errors import Reason
from penstock.server.operation import Operation
from penstock.server.operations.table import OPERATIONS
from penstock.server.problems import STATUS
from penstock.server.reference.openapi import document
from penstock.server.versions import HEADERS, VERSIONS

MEANINGS: Final[Mapping[str, Mapping[Reason, str]]] = MappingProxyType(
    {
        "The request itself": {
            Reason.PAYLOAD_TOO_LARGE: "The body exceeds `DW_MAX_PAYLOAD_BYTES`; `limit` is the maximum.",
            Reason.UNSUPPORTED_MEDIA_TYPE: "The body must be JSON, with `Content-Type: application/json`.",
            Reason.UNSUPPORTED_CONTENT_ENCODING: "Compressed bodies are not supported.",
            Reason.MALFORMED_JSON: (
                "Malformed JSON, too deep, too many keys, a repeated key, or a number that is not finite or does not "
                "fit in 64 bits. `json_error` has the cause."
            ),
            Reason.MALFORMED_REQUEST: (
                "Not valid HTTP, or ambiguous: a header or query parameter is repeated."
            ),
            Reason.HEAD_TOO_LARGE: "Too many headers, or too many bytes before the body.",
            Reason.REQUEST_TIMEOUT: "The request took too long to arrive; the connection is closed.",
            Reason.VALIDATION_FAILED: (
                "Fields are missing, malformed or out of bounds. `errors` and `validation_errors` name each of them."
            ),
            Reason.NOT_FOUND: "There is no such path.",
            Reason.METHOD_NOT_ALLOWED: "The path does not support the method; `Allow` lists those that it does.",
            Reason.MISDIRECTED_HOST: "The `Host` header names a host that is not in `DW_ALLOWED_HOSTS`.",
            Reason.TOKEN_IN_URL: "A credential in the query string, which is logged. Replace the credential.",
        },
        "Authentication": {
            Reason.UNAUTHORIZED: "No valid credential.",
            Reason.SIGNATURE_INVALID: "The signature does not match the request, or its key is unknown.",
            Reason.SIGNATURE_STALE: "The signature's timestamp is too far from the server's clock.",
            Reason.SIGNATURE_REPLAYED: "The nonce was used before. Sign again with a new one.",
            Reason.FORBIDDEN: "The role of the credential does not permit this; `allowed_roles` lists those that do.",
            Reason.TOO_MANY_AUTH_FAILURES: "Too many failures from this address. Retry after `Retry-After` seconds.",
        },
        "Protocol versions": {
            Reason.MISSING_CONTROL_PLANE_VERSION: f"Send `{HEADERS[Plane.CONTROL]}`.",
            Reason.UNSUPPORTED_CONTROL_PLANE_VERSION: "`supported_version` is the supported version.",
            Reason.MISSING_PROTOCOL_VERSION: f"Send `{HEADERS[Plane.WORKER]}`.",
            Reason.UNSUPPORTED_PROTOCOL_VERSION: "`remediation` lists the supported versions.",
        },
        "Namespaces": {
            Reason.NAMESPACE_NOT_FOUND: "There is no such namespace.",
            Reason.NAMESPACE_ALREADY_EXISTS: "The name is taken.",
            Reason.NAMESPACE_NOT_EMPTY: "Only an empty namespace can be deleted.",
            Reason.NAMESPACE_PROTECTED: "The default namespace cannot be deleted.",
        },
        "Workflows, runs and standalone activities": {
            Reason.INSTANCE_NOT_FOUND: "No workflow has this id in the namespace.",
            Reason.RUN_NOT_FOUND: "The workflow has no such run.",
            Reason.INSTANCE_ALREADY_STARTED: (
                "The id is in use by an open or closed run, and the policies of the start do not allow another one."
                " `id_conflict_policy` applies to open runs, `id_reuse_policy` to closed ones."
            ),
            Reason.RUN_NOT_ACTIVE: "The run is closed.",
            Reason.RUN_IS_ENDING: (
                "The run is about to close, after many unhandled signals. Nothing was recorded; retry."
            ),
            Reason.RUN_NOT_CLOSED: "The run is open; only closed runs are archived, rerun or deleted.",
            Reason.HISTORICAL_RUN_COMMAND_REJECTED: "The run is not the current run of the workflow.",
            Reason.RUN_NOT_REDRIVABLE: "The run has not failed, or is no longer the current one of its workflow id.",
            Reason.ANOTHER_RUN_OPEN: (
                "Another run of the workflow is open, so this one cannot be rerun or reset; `open_run_id` is that run."
            ),
            Reason.RUN_IN_USE: "The closed run is needed for a moment longer: its parent takes over its result. Retry.",
            Reason.NOT_A_DECISION_POINT: (
                "At this event no workflow task recorded its decision. `decision_points` are the nearest events at"
                " which one did."
            ),
            Reason.RUN_NOT_COPYABLE: (
                "The history up to this event cannot be continued by another run, because something open in it belongs"
                " to its run; the message names it."
            ),
            Reason.ACTIVITY_NOT_ACTIVE: "The activity has ended.",
            Reason.ACTIVITY_RUNNING: "An attempt of the activity is running, so it cannot be started now.",
            Reason.ACTIVITY_NOT_FOUND: "No standalone activity has this id in the namespace.",
            Reason.INVALID_PAGE_TOKEN: "The page token was not issued by this server. Start from the first page.",
            Reason.INVALID_QUERY: (
                "The query is invalid. `position` is where, `expected` is what would be valid there."
            ),
            Reason.STRUCTURAL_LIMIT_EXCEEDED: (
                "The run would exceed a limit on pending items or on its history. `limit_kind` names the limit."
            ),
        },
        "Schedules": {
            Reason.SCHEDULE_NOT_FOUND: "The namespace has no schedule with this id, or it was deleted.",
            Reason.SCHEDULE_ALREADY_EXISTS: "The namespace has a schedule with this id. Nothing was changed.",
            Reason.SCHEDULE_VERSION_CONFLICT: (
                "The schedule was updated since the version in `if_version`; `current_version` is the current one, "
                "`changed` and `updates` are what moved. Read it again, then repeat the change."
            ),
            Reason.ZONE_DATA_OUTDATED: (
                "Schedules were computed from newer zone data than this server has. Ask another server, or upgrade "
                "`tzdata` here."
            ),
            Reason.INVALID_TIME_RANGE: "The period of a backfill must end after it starts.",
            Reason.BACKFILL_TOO_LARGE: (
                "The period has more than 10,000 moments. Nothing was started; backfill it in parts."
            ),
            Reason.INVALID_AFTER_SEQUENCE: "The cursor of a schedule's history must be an integer of at least 0.",
            Reason.MEMO_TOO_LARGE: "The memo exceeds `DW_MAX_MEMO_BYTES`.",
        },
        "Signals and updates": {
            Reason.UNKNOWN_SIGNAL: "The registered workers declare no such signal for the workflow type.",
            Reason.INVALID_SIGNAL_ARGUMENTS: "The arguments do not match the signature of the handler.",
            Reason.UPDATE_NOT_FOUND: "The workflow has no update with this id.",
            Reason.INVALID_QUERY_ARGUMENTS: "The arguments do not match the signature of the handler.",
            Reason.UNKNOWN_UPDATE: "The registered workers declare no such update for the workflow type.",
            Reason.INVALID_UPDATE_ARGUMENTS: "The arguments do not match the signature of the handler.",
            Reason.UPDATE_FAILED: "The update handler failed; `failure_message` has the error.",
            Reason.REQUEST_ID_CONFLICT: (
                "The request id was used for another request; `conflict` lists the differences. Use a new id."
            ),
            Reason.COOPERATIVE_CANCELLATION_NOT_SUPPORTED: (
                "No active worker that could run the workflow can deliver a cancellation to its code. Start one, or "
                "cancel the run at once."
            ),
        },
        "Bridge adapters and webhooks": {
            Reason.UNKNOWN_TARGET: "The event is for a workflow that does not exist.",
            Reason.AUTH_FAILED: "The webhook is not authentic; `rejection_reason` says why.",
            Reason.SIGNATURE_MISSING: "The webhook has no signature of its adapter.",
            Reason.MALFORMED_PAYLOAD: (
                "The body is not JSON, or the event does not fit; `rejection_reason` and `errors` say why."
            ),
            Reason.MAPPING_VALUE_MISSING: "The mapping of the adapter finds no usable value in the body.",
            Reason.DUPLICATE_START: "The event, or another one with the same workflow id, started the run before.",
            Reason.UNSUPPORTED_ROUTING: "No route of the adapter is for this event, or its name is not valid.",
            Reason.UNSUPPORTED_ACTION: "The event's action is none that this server has.",
            Reason.ADAPTER_UNAVAILABLE: "The adapter is declared for a namespace that does not exist.",
        },
        "Streams": {
            Reason.WORKFLOW_STREAM_NOT_FOUND: "The run has no stream of this name and is closed.",
            Reason.WORKFLOW_STREAM_CLOSED: "The stream is closed; nothing can be appended.",
            Reason.WORKFLOW_STREAM_FULL: "Too many unread items. Retry after `Retry-After` seconds.",
        },
        "Update validation": {
            Reason.UPDATE_VALIDATOR_REJECTED: (
                "The validator of the workflow rejected the update; `validation_errors` has details, if it gave any."
            ),
            Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE: (
                "No active worker on the queue can validate it, or too many updates are pending. Retry later."
            ),
            Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE: (
                "The active workers on the queue have another build than the run."
            ),
            Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED: (
                "The active workers on the queue do not support update validation."
            ),
            Reason.UPDATE_VALIDATION_TASK_NOT_CLAIMED: ("No worker leased the validation in time. Retry."),
            Reason.UPDATE_VALIDATION_EXECUTION_TIMEOUT: (
                "A worker leased the validation and did not report in time. Retry."
            ),
            Reason.UPDATE_VALIDATION_WORKER_FAILED: (
                "The worker could not validate the update; `worker_reason` has its reason."
            ),
            Reason.UPDATE_VALIDATION_TASK_NOT_FOUND: "The caller no longer waits for the result.",
            Reason.UPDATE_VALIDATION_TASK_NOT_LEASED: "The validation is not leased.",
            Reason.UPDATE_VALIDATION_LEASE_EXPIRED: (
                "The lease of the validation expired before the report."
            ),
            Reason.STALE_UPDATE_VALIDATION_COMPLETION: (
                "The validation is at another attempt, or leased to another worker."
            ),
        },
        "External payloads": {
            Reason.EXTERNAL_STORAGE_NOT_CONFIGURED: "The namespace has no external payload storage.",
            Reason.EXTERNAL_STORAGE_DISABLED: "The external payload storage of the namespace is turned off.",
            Reason.STORAGE_DRIVER_UNAVAILABLE: (
                "The storage that a policy names does not work, or this server may not use it; the message says why. "
                "The policy was not changed."
            ),
            Reason.EXTERNAL_PAYLOAD_NOT_FOUND: (
                "No such payload in this namespace, or the storage has lost its bytes. A repetition gives the same."
            ),
            Reason.EXTERNAL_PAYLOAD_EXPIRED: "The payload was uploaded and not used within the grace. Upload it again.",
            Reason.EXTERNAL_PAYLOAD_UNAVAILABLE: "The external storage does not answer now. Retry.",
            Reason.EXTERNAL_PAYLOAD_OVERSIZED: (
                "A memo or a message refers to a payload that does not fit into a request."
            ),
            Reason.EXTERNAL_PAYLOAD_UNSUPPORTED: "The upload is not an encoded payload, or lacks its headers.",
            Reason.EXTERNAL_PAYLOAD_INTEGRITY_MISMATCH: (
                "The bytes do not have the size or the SHA-256 of their reference."
            ),
        },
        "Search attributes": {
            Reason.NAME_RESERVED: "The name is reserved in queries.",
            Reason.ATTRIBUTE_ALREADY_EXISTS: "Already registered; `type` is its type.",
            Reason.SYSTEM_ATTRIBUTE: "A system attribute cannot be deleted.",
            Reason.ATTRIBUTE_NOT_FOUND: "No such search attribute is registered in the namespace.",
            Reason.SEARCH_ATTRIBUTE_LIMIT_REACHED: "The namespace already has `limit` search attributes.",
        },
        "Caps on runs": {
            Reason.RUN_CAP_REACHED: (
                "As many runs of `scope` are open as its cap allows, and its surplus policy is `refuse`. Nothing was "
                "started. Start again when one has closed."
            ),
            Reason.RUN_CAP_CONTRADICTION: (
                "A surplus policy without a cap would do nothing. Set `max_open_runs` too, or unset both."
            ),
        },
        "Unique keys": {
            Reason.UNIQUE_KEY_HELD: (
                "The run `run_id` of `workflow_id` holds the unique key of the start, whose unique_conflict_policy is "
                "`fail`. Nothing was started."
            ),
        },
        "Task queue settings": {
            Reason.CONFIG_VERSION_CONFLICT: (
                "The settings changed since the version in `if_version`; `current_version` is the current one. "
                "Read them again, then repeat the change."
            ),
            Reason.CHANGE_SET_NOT_FOUND: "The namespace has no change set with this id.",
            Reason.CHANGE_SET_STALE: (
                "Settings moved after the change set was proposed; `moved` names each, its value now, who set it and "
                "when. Nothing was changed. Propose the change anew."
            ),
            Reason.CHANGE_SET_STATE_CONFLICT: "`state` says what became of the change set already.",
            Reason.CHANGE_NEEDS_APPROVAL: (
                "The namespace (or the cluster, for limits of all namespaces) wants approvals, see `change_approvals`: "
                "`missing` of `wanted` are not there. Propose a change set and have others approve it; an admin may "
                "break the glass."
            ),
            Reason.CHANGE_PLAN_MOVED: (
                "The plan is not the one that was reviewed: `plan` is its hash now. Read it again."
            ),
            Reason.OWN_CHANGE_SET: "The author of a change set cannot approve it: somebody else has to.",
            Reason.SIMULATION_NOT_FOUND: "The namespace has no simulation with this id; results are kept for 7 days.",
            Reason.TOO_MANY_SIMULATIONS: "Ten simulations of the namespace are under way; wait for one or cancel it.",
            Reason.TOO_MANY_FAIRNESS_KEYS: (
                "More than `most` keys of the queue would have settings. Unset some."
            ),
            Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS: (
                "Rates only apply to activity tasks. `errors` names the fields; use `max_running` instead."
            ),
            Reason.OVERRIDE_CONFLICT: "The change both sets and unsets the weight of a key.",
        },
        "Workers and polls": {
            Reason.WORKER_NOT_FOUND: "No worker has this id in the namespace.",
            Reason.WORKER_NOT_REGISTERED: "Register first. Polls return 412, heartbeats 404.",
            Reason.WORKFLOW_DEFINITION_CHANGED: "The worker is active with another definition of the workflow type.",
            Reason.TASK_QUEUE_MISMATCH: "The worker is registered on another task queue.",
            Reason.BUILD_ID_MISMATCH: "The worker is registered with another build.",
            Reason.WORKER_DRAINING: "The build of the worker is draining and gets no new tasks.",
            Reason.LONG_POLL_CAPACITY_EXHAUSTED: "Too many open polls. Retry after `Retry-After` seconds.",
        },
        "Leases": {
            Reason.TASK_NOT_FOUND: "No such task in the namespace.",
            Reason.TASK_NOT_LEASED: "The task is not leased. The report was not recorded.",
            Reason.TASK_NOT_STARTED: "The task is prefetched and has no permit yet. Start it first.",
            Reason.LEASE_EXPIRED: "The lease expired before the report, which was not recorded.",
            Reason.LEASE_OWNER_MISMATCH: "Another worker holds the lease of the task.",
            Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH: "The task is at another attempt.",
            Reason.COMPLETION_CONFLICT: "The task was already completed by a different report.",
            Reason.RUN_CLOSED: "The run is closed. Drop the work.",
            Reason.RUN_ALREADY_CLOSED: "The run was closed before the report.",
            Reason.RUN_TIMED_OUT: "The run's deadline has passed.",
            Reason.RUN_CANCELLED: "The run was cancelled.",
            Reason.RUN_TERMINATED: "The run was terminated.",
            Reason.INVALID_COMMANDS: "The commands are invalid in the state of the run. None was applied.",
            Reason.CANCELLATION_NOT_REQUESTED: (
                "The run has no such cancellation request, or it is recorded only with the end of the task."
            ),
            Reason.CANCELLATION_CALL_MISMATCH: (
                "The run does not wait for the call at which the cancellation is to be delivered."
            ),
            Reason.CANCELLATION_CALL_RESOLVED: "The call had a result before the cancellation was requested.",
            Reason.ATTEMPT_NOT_FOUND: "The activity has no such attempt.",
            Reason.TASK_MISMATCH: "The attempt belongs to another task.",
            Reason.STALE_ATTEMPT: "A later attempt of the activity is running, or the activity is closed.",
            Reason.ACTIVITY_CANCELLED: "The activity was cancelled.",
            Reason.HISTORY_NOT_AVAILABLE: "The history cannot be read.",
        },
        "Queries": {
            Reason.REJECTED_UNKNOWN_QUERY: "The workflow has no such query.",
            Reason.QUERY_REJECTED: "The worker rejected the query or failed to answer it.",
            Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE: (
                "The history is too long to be replayed for a query. Let the workflow continue as new."
            ),
            Reason.QUERY_WORKER_UNAVAILABLE: "No active worker on the queue supports the workflow type.",
            Reason.QUERY_WORKER_TIMEOUT: "No worker answered the query in time.",
            Reason.QUERY_TASK_QUEUE_FULL: "Too many pending queries on the queue. Retry later.",
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE: "Query tasks cannot be dispatched now.",
            Reason.QUERY_TASK_NOT_FOUND: "The caller no longer waits for the result.",
            Reason.QUERY_TASK_NOT_LEASED: "The query is not leased.",
            Reason.QUERY_TASK_ATTEMPT_MISMATCH: "The query is at another attempt, or leased to another worker.",
        },
        "State of the server": {
            Reason.SERVER_ERROR: "An internal error, or no credential is configured. See the log of the server.",
            Reason.SERVER_DRAINING: "The server is shutting down. Retry, or use another server.",
            Reason.STORE_UNAVAILABLE: "The database is unavailable. Nothing was written.",
            Reason.COORDINATION_UNAVAILABLE: "Redis, which holds shared locks, is unavailable. Nothing was written.",
            Reason.OUTCOME_UNKNOWN: "The connection to the database broke during a commit. Repeat the same request.",
            Reason.STORAGE_FULL: "The disk is full. Nothing was written.",
            Reason.ARCHIVE_UNAVAILABLE: "The archive is not writable. Nothing was deleted.",
            Reason.JOURNAL_OFF: "The server writes no journal. Start it with `DW_JOURNAL=true`.",
        },
        "Start-up": {
            Reason.CONFIGURATION_INVALID: "A setting is invalid; the message names it.",
            Reason.PORT_IN_USE: "Another process is listening on the port of the server.",
            Reason.STORE_IN_USE: "Another server uses the SQLite file.",
            Reason.SCHEMA_TOO_NEW: "The schema of the database is newer than this release.",
            Reason.SCHEMA_OUTDATED: "Run `penstock db migrate` first.",
            Reason.STORE_DAMAGED: "The database does not exist or is not a Penstock database.",
        },
    }
)
"""The meaning of each reason, in the groups of `Reason`."""

_START_UP: Final = "Start-up"
_ANYWHERE: Final = frozenset(
    {"400", "401", "403", "408", "413", "415", "421", "429", "431", "500", "503", "507"}
)
"""Statuses that any operation may return."""

_REASONS_OPENING = """\
# Reasons

<!-- Written by `penstock docs reasons`. Change penstock/server/reference/markdown.py, then run it again. -->

Every error has a `reason`. Programs branch on it, never on the message; reasons are added and never renamed. Unless a
row states otherwise, a rejected request has changed nothing.

```json
{"message": "…", "error": "…", "reason": "validation_failed",
 "errors": {"priority": ["…"]}, "validation_errors": {"priority": ["…"]}}
```

`message` and `error` are the same text under the two names that clients read; so are `errors` and
`validation_errors` of a 422. Nested fields are named with dots: `commands.0.delay_seconds`.
"""

_HTTP_OPENING = f"""\
# HTTP API

<!-- Written by `penstock docs http`. Change penstock/server/operations, then run it again. -->

A running server serves the same reference as OpenAPI at `/openapi.json` and as a page at `/docs`.

| header | where | value |
|---|---|---|
| `Authorization` | operations with roles | `Bearer <token>`, or a signature |
| `{HEADERS[Plane.CONTROL]}` | control plane | `{VERSIONS[Plane.CONTROL]}` |
| `{HEADERS[Plane.WORKER]}` | worker plane | `1.0` to `{VERSIONS[Plane.WORKER]}` |
| `X-Namespace` | operations with a namespace | defaults to `?namespace=`, then to `DW_DEFAULT_NAMESPACE` |
| `Idempotency-Key` | starts | a repeated key, with the same id or none, returns the first run |

Requests are checked in this order: size, media type, JSON, authentication, role, version, namespace, fields. A caller
with the wrong role cannot find out which namespaces exist. The meaning of each error: [Reasons](reasons.md).

Any operation may also return 400, 401, 403, 408, 413, 415, 421, 429, 431, 500, 503 or 507; the tables list the other
statuses.
"""


def reasons_markdown() -> str:
    """The page `docs/reference/reasons.md`; a test compares the two."""
    return "\n".join([_REASONS_OPENING, *(_reasons(title) for title in MEANINGS)])


def _reasons(title: str) -> str:
    lines = [f"## {title}", ""]
    if title == _START_UP:
        lines += ["The command line prints these and exits; they never appear in HTTP responses.", ""]
        rows = [f"| `{reason}` | {meaning} |" for reason, meaning in MEANINGS[title].items()]
        return "\n".join([*lines, "| reason | meaning |", "|---|---|", *rows, ""])
    rows = [f"| `{reason}` | {STATUS[reason]} | {meaning} |" for reason, meaning in MEANINGS[title].items()]
    return "\n".join([*lines, "| reason | status | meaning |", "|---|---|---|", *rows, ""])


def operations_markdown() -> str:
    """The page `docs/reference/http.md`; a test compares the two."""
    return "\n".join([_HTTP_OPENING, *_chapters()])


def _chapters() -> Iterator[str]:
    chapters: dict[str, list[Operation]] = {}
    for operation in sorted(OPERATIONS, key=lambda each: each.path):
        chapters.setdefault(operation.path.split("/")[2], []).append(operation)
    paths = document()["paths"]
    for title, operations in chapters.items():
        rows = [_row(each, paths[each.path][each.method.lower()]["responses"]) for each in operations]
        heading = ["| operation | | roles | namespace | statuses |", "|---|---|---|---|---|"]
        yield "\n".join([f"## {title}", "", *heading, *rows, ""])


def _row(operation: Operation, responses: Iterable[str]) -> str:
    access = ACCESS[operation.family]
    roles = "anybody" if access.roles is None else ", ".join(sorted(role.value for role in access.roles))
    namespaced = "yes" if access.namespaced else ""
    answers = " ".join(sorted({*responses} - _ANYWHERE | {str(each) for each in operation.refusals}))
    return f"| `{operation.method} {operation.path}` | {operation.summary} | {roles} | {namespaced} | {answers} |"
