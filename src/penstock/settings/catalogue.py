"""Every setting there is, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.core.limits.admission import LEASES_MAX
from penstock.core.limits.windows import PER_MINUTE_MAX, Window
from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.schema.json_object import JsonObject
from penstock.schema.kinds import Choice, Flag, Kind, Text, Whole
from penstock.settings.policies import CoordinationKind, LogFormat, LogLevel, SqliteSynchronous
from penstock.settings.types.kinds import (
    AUTH_TOKEN,
    DATABASE_URL,
    DIRECTORY,
    FILE_PATH,
    HOST,
    HOSTS,
    NAMESPACE,
    NETWORKS,
    ORIGINS,
    REDIS_URL,
    SIGNING_KEY,
    word,
)

PREFIX = "DW_"
FILE_SUFFIX = "_FILE"
POLL_TIMEOUT_SECONDS_MAX = 60

CLIENT_VARIABLES = {
    "DW_ENV": "the environment that a client uses; the server ignores it",
    "DW_CONFIG_HOME": "the folder of a client's environments; the server ignores it",
}
"""Variables with our prefix that belong to clients: allowed in the environment, never in a server's file."""


class Group(StrEnum):
    """The chapters of the reference page."""

    SERVER = "The server"
    LISTEN = "Where it listens"
    AUTH = "Who may ask"
    BRIDGES = "Webhooks"
    STORE = "Where the truth is kept"
    PAYLOADS = "External payloads"
    COORDINATION = "Between servers"
    DASHBOARD = "The dashboard"
    LIMITS = "Limits"
    ADMISSION = "Admission"
    TIMES = "Times and polls"
    LOGS = "Logs"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: a name, what it expects, its default and what it is for.

    `default` is None where the setting may be absent or its default is worked out; `default_note` says which.
    """

    name: str
    kind: Kind
    default: str | None
    description: str
    default_note: str = "not set"
    in_file: bool = True

    @property
    def alias(self) -> str:
        """The short name in a TOML file: `DW_AUTH_DRIVER` is also `auth_driver`."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def file_variant(self) -> str | None:
        """The setting that names a file holding this one, for secrets; None for all others."""
        return self.name + FILE_SUFFIX if isinstance(self.kind, Text) and self.kind.is_secret else None


def _seconds(minimum: int, maximum: int) -> Whole:
    return Whole(minimum, maximum, "seconds")


_MIB = 1024 * 1024
_LEASES = Whole(0, LEASES_MAX, "leases")
_DISPATCHES = Whole(0, PER_MINUTE_MAX, "dispatches")
_NO_LIMIT = "no limit"

# One setting a row: name, kind, default, meaning.
# fmt: off
CHAPTERS: dict[Group, tuple[Setting, ...]] = {
    Group.SERVER: (
        Setting("DW_CONFIG", FILE_PATH, None,
                "TOML file with these same settings; `--config` wins over it.", in_file=False),
        Setting("DW_SERVER_ID", word(128), None,
                "Name of this server process in discovery, logs and leases; unique in a cluster.",
                default_note="host name and process id"),
        Setting("DW_DEFAULT_NAMESPACE", NAMESPACE, "default",
                "Namespace of a request that names none; it is made at the first start."),
        Setting("DW_HISTORY_RETENTION_DAYS", Whole(1, 365, "days"), "30",
                "How long closed runs are kept in a namespace that does not say otherwise."),
        Setting("DW_ARCHIVE_DIR", DIRECTORY, None,
                "Where the histories of runs are written before they are deleted; without it they are deleted only.",
                default_note="no archive"),
        Setting("DW_EXPORT_SIGNATURE_KEY", SIGNING_KEY, None,
                "HMAC key that exported histories are signed with; without it they carry a checksum only."),
    ),
    Group.LISTEN: (
        Setting("DW_HOST", HOST, "127.0.0.1",
                "Address to listen on; other machines reach the server only if it is not a loopback one."),
        Setting("DW_PORT", Whole(0, 65535), "8080", "Port to listen on; 0 takes any free one."),
        Setting("DW_SERVER_PROCESSES", Whole(1, 64, "processes"), "1",
                "Server processes behind the one port, to use all cores; more than one needs PostgreSQL."),
        Setting("DW_ALLOWED_HOSTS", HOSTS, "",
                "Host headers that are answered; others get 421. A loopback bind always allows its own names.",
                default_note="loopback names on a loopback bind, else any"),
        Setting("DW_TRUSTED_PROXIES", NETWORKS, "",
                "TLS-ending proxies in front of the server, whose forwarding headers are believed.",
                default_note="none"),
        Setting("DW_INSECURE_HTTP", Flag(), "false",
                "Allow token authentication on a non-loopback bind without TLS; tokens then travel in the clear."),
        Setting("DW_COMPRESSION_ENABLED", Flag(), "true",
                "Compress large JSON responses for callers that accept it."),
    ),
    Group.AUTH: (
        Setting("DW_AUTH_DRIVER", Choice(AuthDriver), "token",
                "How callers prove who they are; `none` is for development on loopback."),
        Setting("DW_WORKER_TOKEN", AUTH_TOKEN, None, "Token of workers: register, poll, complete."),
        Setting("DW_OPERATOR_TOKEN", AUTH_TOKEN, None,
                "Token of operators: workflows, task queues and what can be seen of workers."),
        Setting("DW_ADMIN_TOKEN", AUTH_TOKEN, None, "Token of administrators: namespaces and maintenance too."),
        Setting("DW_VIEWER_TOKEN", AUTH_TOKEN, None,
                "Token of viewers: they sign in to the dashboard with it and change nothing there; the HTTP API "
                "refuses it."),
        Setting("DW_AUTH_TOKEN", AUTH_TOKEN, None,
                "Shared token: opens every route while no role token is set, and is a plain admin otherwise."),
        Setting("DW_WORKER_SIGNATURE_KEY", SIGNING_KEY, None, "HMAC key of workers."),
        Setting("DW_OPERATOR_SIGNATURE_KEY", SIGNING_KEY, None, "HMAC key of operators."),
        Setting("DW_ADMIN_SIGNATURE_KEY", SIGNING_KEY, None, "HMAC key of administrators."),
        Setting("DW_SIGNATURE_KEY", SIGNING_KEY, None, "Shared HMAC key, with the same rule as the shared token."),
        Setting("DW_SIGNATURE_PROFILE", Choice(SignatureProfile), "penstock",
                "What a signature covers: the whole request, or (`body`) its body alone, for older clients."),
        Setting("DW_SIGNATURE_WINDOW_SECONDS", _seconds(1, 300), "60",
                "How far the clock of a signing caller may differ."),
        Setting("DW_AUTH_BACKWARD_COMPATIBLE", Flag(), "true",
                "Accept the shared token or key; `false` leaves only the secrets of roles."),
    ),
    Group.BRIDGES: (
        Setting("DW_BRIDGE_ADAPTERS", JsonObject("adapters by name"), None,
                "Adapters that accept signed webhooks; in a file, the tables `[bridge_adapters.NAME]`.",
                default_note="none"),
    ),
    Group.STORE: (
        Setting("DW_DATABASE_URL", DATABASE_URL, "sqlite:///penstock.db",
                "The store: an SQLite file, PostgreSQL, or (`memory://`) one that is gone when the server stops."),
        Setting("DW_SQLITE_SYNCHRONOUS", Choice(SqliteSynchronous), "full",
                "When SQLite calls fsync; `normal` may lose the last commits in a power cut."),
        Setting("DW_POSTGRES_POOL_SIZE", Whole(2, 1000, "connections"), "8",
                "Connections for reading that one server process holds, two of which are kept for short reads; it "
                "holds five more for writing and one to listen, and up to four for moments in which rows are locked "
                "by other sessions."),
        Setting("DW_STATEMENT_TIMEOUT_MS", Whole(100, 3_600_000, "milliseconds"), "10000",
                "Longest time PostgreSQL works on one statement: a read, a change of settings, retention, or an "
                "operation that was too slow for `DW_TRANSACTION_TIMEOUT_MS`."),
        Setting("DW_TRANSACTION_TIMEOUT_MS", Whole(200, 60_000, "milliseconds"), "2000",
                "Longest time a transaction on PostgreSQL may hold row locks, also when its server is frozen or cut "
                "off in it. The database ends the session; the other servers wait no longer than this."),
        Setting("DW_DATABASE_WAIT_SECONDS", _seconds(0, 3_600), "30",
                "How long a starting server waits for a PostgreSQL that does not accept connections yet, is "
                "recovering or is still read-only; 0 does not wait."),
    ),
    Group.PAYLOADS: (
        Setting("DW_EXTERNAL_STORAGE_DIR", DIRECTORY, None,
                "Directory below which the `local` driver may keep payloads; on several servers, one that they share.",
                default_note="no local driver"),
        Setting("DW_EXTERNAL_STORAGE_ENDPOINTS", ORIGINS, "",
                "Addresses of S3-compatible services that a namespace's policy may name as its endpoint.",
                default_note="only AWS itself"),
        Setting("DW_EXTERNAL_PAYLOAD_BYTES_MAX", Whole(1024, 1024 * _MIB, "bytes"), str(64 * _MIB),
                "Largest payload that is kept in external storage, encoded."),
        Setting("DW_EXTERNAL_PAYLOAD_GRACE_SECONDS", _seconds(1_200, 30 * 86_400), "86400",
                "How long an uploaded payload that nothing refers to is kept."),
    ),
    Group.COORDINATION: (
        Setting("DW_COORDINATION", Choice(CoordinationKind), "auto",
                "Who lends locks and carries wake-ups between servers; `auto` is database on PostgreSQL and memory "
                "elsewhere."),
        Setting("DW_REDIS_URL", REDIS_URL, None,
                "The Redis of DW_COORDINATION=redis; it holds nothing that must not be lost."),
    ),
    Group.DASHBOARD: (
        Setting("DW_UI", Flag(), "true",
                "Serve the dashboard at `/ui`. There is none where requests are signed (DW_AUTH_DRIVER=signature)."),
        Setting("DW_UI_VIEWER_PAYLOADS", Flag(), "false",
                "Show viewers the payloads of runs: inputs, results, and what failures carry."),
        Setting("DW_SOURCE_LINES", Flag(), "false",
                "Ask workers to send the source lines around each frame of a failure. Viewers never see them. "
                "`penstock dev` turns it on."),
    ),
    Group.LIMITS: (
        Setting("DW_MAX_PAYLOAD_BYTES", Whole(256, 64 * _MIB, "bytes"), str(2 * _MIB), "Largest request body."),
        Setting("DW_MAX_MEMO_BYTES", Whole(0, 64 * _MIB, "bytes"), "262144", "Largest memo, as JSON."),
        Setting("DW_MAX_SEARCH_ATTRIBUTES", Whole(0, 10_000), "100", "Search attributes that one run may carry."),
        Setting("DW_MAX_SEARCH_ATTRIBUTE_KEY_LENGTH", Whole(1, 1024, "characters"), "128",
                "Longest name of a search attribute."),
        Setting("DW_MAX_SEARCH_ATTRIBUTE_VALUE_BYTES", Whole(1, _MIB, "bytes"), "2048",
                "Longest text in a search attribute."),
        Setting("DW_MAX_OPERATION_NAME_LENGTH", Whole(1, 4096, "bytes"), "256",
                "Longest name of a signal, query or update."),
        Setting("DW_MAX_PENDING_ACTIVITIES", Whole(0, 1_000_000), "2000",
                "Activities that one run may have open; 0 allows none."),
        Setting("DW_MAX_PENDING_TIMERS", Whole(0, 1_000_000), "2000",
                "Timers that one run may have open; 0 allows none."),
        Setting("DW_MAX_PENDING_CHILDREN", Whole(0, 1_000_000), "2000",
                "Children that one run may wait for; 0 allows none."),
        Setting("DW_MAX_PENDING_SIGNALS", Whole(1, 1_000_000), "5000",
                "Signals that a run's code has not seen yet; more are refused."),
        Setting("DW_MAX_PENDING_UPDATES", Whole(1, 1_000_000), "500",
                "Updates that a run has accepted and not applied yet; more are refused."),
        Setting("DW_QUARANTINE_AFTER", Whole(0, 1_000, "worker deaths"), "3",
                "Workers that may die running one activity before it is ended, whatever its retry policy says; 0: "
                "any number."),
        Setting("DW_MAX_HISTORY_EVENTS", Whole(10, 10_000_000, "events"), "50000",
                "Events that one run may have before it must continue as new."),
        Setting("DW_QUERY_TASK_MAX_PENDING_PER_QUEUE", Whole(1, 10_000), "1024",
                "Query tasks that may wait in one task queue; more are refused with 429."),
        Setting("DW_MAX_LONG_POLLS", Whole(1, 1_000_000), "10000",
                "Polls that one server process keeps open at once."),
    ),
    Group.ADMISSION: (
        Setting("DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE", _LEASES, None,
                "Workflow tasks of one queue that may be leased at once; 0 closes every queue.",
                default_note=_NO_LIMIT),
        Setting("DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE", _LEASES, None,
                "The same for all queues of a namespace together; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER", _LEASES, None,
                "The same for all namespaces together; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE", _DISPATCHES, None,
                "Workflow tasks of one queue that may be dispatched in a minute; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE_PER_NAMESPACE", _DISPATCHES, None,
                "The same for all queues of a namespace together; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE", _LEASES, None,
                "Activity tasks of one queue that may be leased at once; 0 closes every queue.",
                default_note=_NO_LIMIT),
        Setting("DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE", _LEASES, None,
                "The same for all queues of a namespace together; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER", _LEASES, None,
                "The same for all namespaces together; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_ACTIVITY_TASK_MAX_DISPATCHES_PER_MINUTE", _DISPATCHES, None,
                "Activity tasks of one queue that may be dispatched in a minute; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_ACTIVITY_TASK_MAX_DISPATCHES_PER_MINUTE_PER_NAMESPACE", _DISPATCHES, None,
                "The same for all queues of a namespace together; 0 closes.", default_note=_NO_LIMIT),
        Setting("DW_MAX_ACTIVE_LEASES_PER_CLUSTER", _LEASES, None,
                "Workflow and activity tasks of all namespaces that may be leased at once; 0 closes.",
                default_note=_NO_LIMIT),
        Setting("DW_DISPATCH_WINDOW", Choice(Window), "minute",
                "What a minute is: one of the calendar, or (`sliding`) any sixty seconds, which no burst can pass."),
        Setting("DW_QUEUE_RATE_MAX", Whole(1, 1_000_000, "activities a second"), None,
                "Activity tasks that any one queue gives out in a second at most, whatever operators and workers "
                "say.", default_note=_NO_LIMIT),
        Setting("DW_TASK_QUEUE_ADMISSION_OVERRIDES", JsonObject("limits by queue"), None,
                "Limits of single queues and namespaces, and budget groups that queues share.", default_note="none"),
        Setting("DW_ADMISSION_VERSION", Whole(0, 2**31 - 1), "0",
                "Version of the limits declared here; a server that starts with a lower one than the stored changes "
                "none."),
        Setting("DW_JOURNAL", Flag(), "false",
                "Write leases and the load into the journal, for `penstock verify` and `penstock trace`."),
        Setting("DW_JOURNAL_HOURS", Whole(1, 720, "hours"), "24", "How long lines of the journal are kept."),
    ),
    Group.TIMES: (
        Setting("DW_WORKER_POLL_TIMEOUT", _seconds(0, POLL_TIMEOUT_SECONDS_MAX), "30",
                "How long a poll waits for a task when it does not say itself."),
        Setting("DW_WORKFLOW_TASK_TIMEOUT", _seconds(1, 86_400), "60", "Lease of a workflow task."),
        Setting("DW_ACTIVITY_TASK_TIMEOUT", _seconds(1, 86_400), "300",
                "Lease of an activity task; heartbeats renew it."),
        Setting("DW_QUERY_TASK_TIMEOUT", _seconds(1, 600), None,
                "How long the caller of a query waits for a worker.",
                default_note="DW_WORKER_POLL_TIMEOUT, at least 1"),
        Setting("DW_QUERY_TASK_LEASE_TIMEOUT", _seconds(1, 86_400), None,
                "Lease of a query task.", default_note="DW_WORKFLOW_TASK_TIMEOUT"),
        Setting("DW_WORKER_STALE_AFTER_SECONDS", _seconds(1, 86_400), None,
                "Silence after which a worker counts as stale.",
                default_note="twice DW_WORKER_POLL_TIMEOUT, at least 60"),
        Setting("DW_QUEUE_RATE_TTL", _seconds(1, 86_400), "300",
                "How long a queue rate that workers reported stays in force after the last report."),
    ),
    Group.LOGS: (
        Setting("DW_LOG_LEVEL", Choice(LogLevel), "info", "Least important line that is written."),
        Setting("DW_LOG_FORMAT", Choice(LogFormat), "auto",
                "Shape of a line; `auto` is console on a terminal and JSON elsewhere."),
    ),
}
# fmt: on

CATALOGUE: tuple[Setting, ...] = tuple(setting for rows in CHAPTERS.values() for setting in rows)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in CATALOGUE}
FILE_VARIANTS: dict[str, Setting] = {
    setting.file_variant: setting for setting in CATALOGUE if setting.file_variant is not None
}
NAMES: tuple[str, ...] = (*SETTINGS, *FILE_VARIANTS)
