"""The reference pages of the HTTP API, made from the tables that the server itself reads."""

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
            Reason.PAYLOAD_TOO_LARGE: "The body exceeds `DW_MAX_PAYLOAD_BYTES`; `limit` says how much it may be.",
            Reason.UNSUPPORTED_MEDIA_TYPE: "The body must be JSON, and `Content-Type` must say so.",
            Reason.UNSUPPORTED_CONTENT_ENCODING: "Bodies are taken uncompressed only.",
            Reason.MALFORMED_JSON: (
                "Not one unambiguous JSON text: broken, too deep, too many keys, a key twice, a number that is not "
                "finite or does not fit in 64 bits. `json_error` says which."
            ),
            Reason.MALFORMED_REQUEST: (
                "Not HTTP, or two readers could read it differently: a header or query parameter stands twice."
            ),
            Reason.HEAD_TOO_LARGE: "Too many headers, or too many bytes before the body.",
            Reason.REQUEST_TIMEOUT: "The request did not arrive in time; the connection is closed.",
            Reason.VALIDATION_FAILED: (
                "Fields are missing, malformed or out of bounds. `errors` and `validation_errors` name each of them."
            ),
            Reason.NOT_FOUND: "There is no such path.",
            Reason.METHOD_NOT_ALLOWED: "The path takes other methods; `Allow` names them.",
            Reason.MISDIRECTED_HOST: "The `Host` header names a host that is not in `DW_ALLOWED_HOSTS`.",
            Reason.TOKEN_IN_URL: "A credential in the query string, where logs would keep it. Replace it.",
        },
        "Who asks": {
            Reason.UNAUTHORIZED: "No credential that the server knows.",
            Reason.SIGNATURE_INVALID: "The signature is not that of this request under any known key.",
            Reason.SIGNATURE_STALE: "The signature's timestamp is too far from the server's clock.",
            Reason.SIGNATURE_REPLAYED: "The nonce was used before. Sign anew.",
            Reason.FORBIDDEN: "The credential's role does not open this route; `allowed_roles` names those that do.",
            Reason.TOO_MANY_AUTH_FAILURES: "Too many failures from this address. Wait as `Retry-After` says.",
        },
        "Which protocol": {
            Reason.MISSING_CONTROL_PLANE_VERSION: f"Send `{HEADERS[Plane.CONTROL]}`.",
            Reason.UNSUPPORTED_CONTROL_PLANE_VERSION: "`supported_version` says which version is served.",
            Reason.MISSING_PROTOCOL_VERSION: f"Send `{HEADERS[Plane.WORKER]}`.",
            Reason.UNSUPPORTED_PROTOCOL_VERSION: "`remediation` says which versions are accepted.",
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
                "A run has this id, open or ended, and the policies of the start do not allow another one."
                " `id_conflict_policy` decides about an open run, `id_reuse_policy` about one that has ended."
            ),
            Reason.RUN_NOT_ACTIVE: "The run has ended.",
            Reason.RUN_IS_ENDING: (
                "The run is about to end, after it heard many signals first. Nothing was recorded; send it again."
            ),
            Reason.RUN_NOT_CLOSED: "The run is open; only a closed one is archived.",
            Reason.HISTORICAL_RUN_COMMAND_REJECTED: "The run named is not the workflow's current one.",
            Reason.ACTIVITY_NOT_FOUND: "No standalone activity has this id in the namespace.",
            Reason.INVALID_PAGE_TOKEN: "Not a token that this server gave out. Begin with the first page.",
            Reason.INVALID_QUERY: (
                "The query cannot be read or answered. `position` says where, `expected` what would be right there."
            ),
            Reason.STRUCTURAL_LIMIT_EXCEEDED: (
                "The run would have too much open at once, or too long a history. `limit_kind` says what."
            ),
        },
        "Talking to a run": {
            Reason.UNKNOWN_SIGNAL: "The workers that are there say that the workflow type has no such signal.",
            Reason.INVALID_SIGNAL_ARGUMENTS: "The arguments do not fit what the workflow's code takes.",
            Reason.UNKNOWN_UPDATE: "The workers that are there say that the workflow type has no such update.",
            Reason.INVALID_UPDATE_ARGUMENTS: "The arguments do not fit what the workflow's code takes.",
            Reason.UPDATE_FAILED: "The workflow's code took the update and failed; `failure_message` says how.",
            Reason.REQUEST_ID_CONFLICT: (
                "The request id was used for something else already; `conflict` says what differs. Use a new id."
            ),
        },
        "Streams": {
            Reason.WORKFLOW_STREAM_NOT_FOUND: "The run has no stream of this name, and writes no more.",
            Reason.WORKFLOW_STREAM_CLOSED: "The stream has ended; nothing can be added to it.",
            Reason.WORKFLOW_STREAM_FULL: "More items are not read than the writer allows. Wait as told.",
        },
        "Validation of updates": {
            Reason.UPDATE_VALIDATOR_REJECTED: (
                "The workflow's code does not take the update; `validation_errors` says why, where it knows."
            ),
            Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE: (
                "No live worker on the queue can be asked, or too many updates wait. Try again later."
            ),
            Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE: (
                "The live workers on the queue are of another build than the run."
            ),
            Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED: (
                "The live workers on the queue cannot validate updates."
            ),
            Reason.UPDATE_VALIDATION_TASK_NOT_CLAIMED: (
                "No worker took the update to validate it in time. Try again."
            ),
            Reason.UPDATE_VALIDATION_EXECUTION_TIMEOUT: (
                "A worker took the update and did not answer in time. Try again."
            ),
            Reason.UPDATE_VALIDATION_WORKER_FAILED: (
                "The worker could not validate the update; `worker_reason` says what it said."
            ),
            Reason.UPDATE_VALIDATION_TASK_NOT_FOUND: "Nobody waits for this answer any more.",
            Reason.UPDATE_VALIDATION_TASK_NOT_LEASED: "The validation is not leased to anybody.",
            Reason.UPDATE_VALIDATION_LEASE_EXPIRED: (
                "The lease of the validation ended before the answer came."
            ),
            Reason.STALE_UPDATE_VALIDATION_COMPLETION: (
                "The validation is at another attempt, or another worker has it."
            ),
        },
        "Search attributes": {
            Reason.NAME_RESERVED: "The name means something of its own in queries.",
            Reason.ATTRIBUTE_ALREADY_EXISTS: "The search attribute is registered; `type` says as what.",
            Reason.SYSTEM_ATTRIBUTE: "Every run has this one. It cannot be deleted.",
            Reason.ATTRIBUTE_NOT_FOUND: "No such search attribute is registered in the namespace.",
            Reason.SEARCH_ATTRIBUTE_LIMIT_REACHED: "The namespace has as many search attributes as `limit` allows.",
        },
        "Settings of task queues": {
            Reason.CONFIG_VERSION_CONFLICT: (
                "The settings are no longer at the version named in `if_version`; `current_version` says at which. "
                "Read them again, then repeat the change."
            ),
            Reason.TOO_MANY_FAIRNESS_KEYS: (
                "More keys of the queue would have settings of their own than `most`. Unset some."
            ),
            Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS: (
                "Rates are for activity tasks. `errors` names the fields; limit what runs with `max_running`."
            ),
            Reason.OVERRIDE_CONFLICT: "One change sets and unsets the weight of the same key.",
        },
        "Workers and polls": {
            Reason.WORKER_NOT_FOUND: "No worker has this id in the namespace.",
            Reason.WORKER_NOT_REGISTERED: "Register first. A poll is told so with 412, a heartbeat with 404.",
            Reason.WORKFLOW_DEFINITION_CHANGED: "The worker is active with another definition of the type.",
            Reason.TASK_QUEUE_MISMATCH: "The worker is registered on another task queue.",
            Reason.BUILD_ID_MISMATCH: "The worker is registered with another build.",
            Reason.WORKER_DRAINING: "The worker's build is being drained and gets nothing new.",
            Reason.LONG_POLL_CAPACITY_EXHAUSTED: "Too many polls are open. Wait as told.",
        },
        "Leases": {
            Reason.TASK_NOT_FOUND: "No such task in the namespace.",
            Reason.TASK_NOT_LEASED: "Nobody holds the task now. The report changed nothing.",
            Reason.TASK_NOT_STARTED: "The task was handed out ahead of time and has no permit yet. Start it first.",
            Reason.LEASE_EXPIRED: "The lease ended before the report came. It changed nothing.",
            Reason.LEASE_OWNER_MISMATCH: "Another worker holds the task.",
            Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH: "The task is at another attempt.",
            Reason.COMPLETION_CONFLICT: "The task was completed before, with another report.",
            Reason.RUN_CLOSED: "The run has ended. Drop the work.",
            Reason.RUN_ALREADY_CLOSED: "The run ended before this report.",
            Reason.RUN_TIMED_OUT: "The run's deadline has passed.",
            Reason.RUN_CANCELLED: "The run was cancelled.",
            Reason.RUN_TERMINATED: "The run was terminated.",
            Reason.INVALID_COMMANDS: "The commands do not fit the run's state. None was applied.",
            Reason.ATTEMPT_NOT_FOUND: "The activity has no such attempt.",
            Reason.TASK_MISMATCH: "The attempt belongs to another task.",
            Reason.STALE_ATTEMPT: "A later attempt of the activity is under way, or it has ended.",
            Reason.ACTIVITY_CANCELLED: "The activity was cancelled.",
            Reason.HISTORY_NOT_AVAILABLE: "The history cannot be read.",
        },
        "Queries": {
            Reason.REJECTED_UNKNOWN_QUERY: "The workflow has no such query.",
            Reason.QUERY_REJECTED: "The worker refused or failed to answer.",
            Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE: (
                "The history is too long to be replayed for a question. Let the workflow continue as new."
            ),
            Reason.QUERY_WORKER_UNAVAILABLE: "No live worker on the queue runs this workflow type.",
            Reason.QUERY_WORKER_TIMEOUT: "No worker answered in time.",
            Reason.QUERY_TASK_QUEUE_FULL: "Too many queries wait on the queue. Try again later.",
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE: "Queries cannot be handed out now.",
            Reason.QUERY_TASK_NOT_FOUND: "Nobody waits for this answer any more.",
            Reason.QUERY_TASK_NOT_LEASED: "The query is not leased to anybody.",
            Reason.QUERY_TASK_ATTEMPT_MISMATCH: "The query is at another attempt, or another worker has it.",
        },
        "The server's own state": {
            Reason.SERVER_ERROR: "A fault of the server, or no credential is configured. Its log says more.",
            Reason.SERVER_DRAINING: "The server is stopping. Ask another one, or this one a moment later.",
            Reason.STORE_UNAVAILABLE: "The database cannot be reached. Nothing was written.",
            Reason.COORDINATION_UNAVAILABLE: "Redis cannot lend the locks between servers. Nothing was written.",
            Reason.OUTCOME_UNKNOWN: "The connection to the database broke during a commit. Send the same again.",
            Reason.STORAGE_FULL: "The disk is full. Nothing was written.",
            Reason.ARCHIVE_UNAVAILABLE: "The archive cannot be written. Nothing was deleted.",
            Reason.JOURNAL_OFF: "The server keeps no journal. Start it with `DW_JOURNAL=true`.",
        },
        "Start-up": {
            Reason.CONFIGURATION_INVALID: "A setting is wrong; the message names it.",
            Reason.PORT_IN_USE: "Another program listens on the port that the server should listen on.",
            Reason.STORE_IN_USE: "Another server uses the SQLite file.",
            Reason.SCHEMA_TOO_NEW: "The database belongs to a newer release.",
            Reason.SCHEMA_OUTDATED: "Run `penstock db migrate` first.",
            Reason.STORE_DAMAGED: "The database is not there or cannot be read as one of ours.",
        },
    }
)
"""What each reason tells a reader; the groups are those of `Reason`."""

_START_UP: Final = "Start-up"
_ANYWHERE: Final = frozenset(
    {"400", "401", "403", "408", "413", "415", "421", "429", "431", "500", "503", "507"}
)
"""Statuses that say nothing about an operation of its own."""

_REASONS_OPENING = """\
# Reasons

<!-- Written by `penstock docs reasons`. Change penstock/server/reference.py, then run it again. -->

Every refusal has a `reason`. Programs branch on it, never on the prose beside it; reasons are added and never
renamed. Unless a row says otherwise, a refused request has changed nothing.

```json
{"message": "…", "error": "…", "reason": "validation_failed",
 "errors": {"priority": ["…"]}, "validation_errors": {"priority": ["…"]}}
```

`message` and `error` are the same text under the two names that clients read; so are `errors` and
`validation_errors`, which a 422 has. Fields inside others are named with dots: `commands.0.delay_seconds`.
"""

_HTTP_OPENING = f"""\
# HTTP API

<!-- Written by `penstock docs http`. Change penstock/server/operations.py, then run it again. -->

A running server describes the same operations at `/openapi.json`, and shows them at `/docs`.

| header | where | meaning |
|---|---|---|
| `Authorization` | wherever roles are named | `Bearer <token>`, or a signature |
| `{HEADERS[Plane.CONTROL]}` | control plane | `{VERSIONS[Plane.CONTROL]}` |
| `{HEADERS[Plane.WORKER]}` | worker plane | `1.0` to `{VERSIONS[Plane.WORKER]}` |
| `X-Namespace` | wherever it is named | else `?namespace=`, else `DW_DEFAULT_NAMESPACE` |
| `Idempotency-Key` | starts | the same key again, with the same id or none, is answered with the first run |

Checks come in one order: size, media type, JSON, authentication, role, version, namespace, fields. So a caller
with the wrong role never learns which namespaces there are. What each refusal means: [Reasons](reasons.md).

Any operation may also answer 400, 401, 403, 408, 413, 415, 421, 429, 431, 500, 503 or 507; the tables name what
else each of them answers.
"""


def reasons_markdown() -> str:
    """The page `docs/reference/reasons.md`; a test compares the two."""
    return "\n".join([_REASONS_OPENING, *(_reasons(title) for title in MEANINGS)])


def _reasons(title: str) -> str:
    lines = [f"## {title}", ""]
    if title == _START_UP:
        lines += ["The command line shows these and exits; they never cross HTTP.", ""]
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
        heading = ["| operation | | roles | namespace | answers |", "|---|---|---|---|---|"]
        yield "\n".join([f"## {title}", "", *heading, *rows, ""])


def _row(operation: Operation, responses: Iterable[str]) -> str:
    access = ACCESS[operation.family]
    roles = "anybody" if access.roles is None else ", ".join(sorted(role.value for role in access.roles))
    namespaced = "yes" if access.namespaced else ""
    answers = " ".join(sorted({*responses} - _ANYWHERE | {str(each) for each in operation.refusals}))
    return f"| `{operation.method} {operation.path}` | {operation.summary} | {roles} | {namespaced} | {answers} |"
