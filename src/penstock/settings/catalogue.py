"""Every setting there is, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.core.limits.admission import LEASES_MAX
from penstock.core.limits.windows import PER_MINUTE_MAX, Window
from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.settings.policies import CoordinationKind, LogFormat, LogLevel, SqliteSynchronous
from penstock.settings.types.kinds import (
    AuthTokenKind,
    ChoiceKind,
    DatabaseUrlKind,
    DirectoryKind,
    FilePathKind,
    FlagKind,
    HostKind,
    HostListKind,
    IntegerKind,
    JsonObjectKind,
    NamespaceKind,
    NetworkListKind,
    RedisUrlKind,
    SettingKind,
    SigningKeyKind,
    WordKind,
)

PREFIX = "DW_"
FILE_SUFFIX = "_FILE"
POLL_TIMEOUT_SECONDS_MAX = 60

CLIENT_VARIABLES = {"DW_ENV": "the connection profile that a client uses; the server ignores it"}
"""Variables with our prefix that belong to clients: allowed in the environment, never in a server's file."""


class Group(StrEnum):
    """The chapters of the reference page."""

    SERVER = "The server"
    LISTEN = "Where it listens"
    AUTH = "Who may ask"
    STORE = "Where the truth is kept"
    COORDINATION = "Between servers"
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
    kind: SettingKind
    default: str | None
    description: str
    group: Group
    default_note: str = "not set"
    in_file: bool = True

    @property
    def alias(self) -> str:
        """The short name in a TOML file: `DW_AUTH_DRIVER` is also `auth_driver`."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def file_variant(self) -> str | None:
        """The setting that names a file holding this one, for secrets; None for all others."""
        return self.name + FILE_SUFFIX if isinstance(self.kind, AuthTokenKind | SigningKeyKind) else None


def _seconds(minimum: int, maximum: int) -> IntegerKind:
    return IntegerKind(minimum, maximum, "seconds")


_MIB = 1024 * 1024
_LEASES = IntegerKind(0, LEASES_MAX, "leases")
_DISPATCHES = IntegerKind(0, PER_MINUTE_MAX, "dispatches")
_NO_LIMIT = "no limit"

CATALOGUE: tuple[Setting, ...] = (
    # The server
    Setting(
        "DW_CONFIG",
        FilePathKind(),
        None,
        "TOML file with these same settings; `--config` wins over it.",
        Group.SERVER,
        in_file=False,
    ),
    Setting(
        "DW_SERVER_ID",
        WordKind(128),
        None,
        "Name of this server process in discovery, logs and leases; unique in a cluster.",
        Group.SERVER,
        default_note="host name and process id",
    ),
    Setting(
        "DW_DEFAULT_NAMESPACE",
        NamespaceKind(),
        "default",
        "Namespace of a request that names none; it is made at the first start.",
        Group.SERVER,
    ),
    Setting(
        "DW_HISTORY_RETENTION_DAYS",
        IntegerKind(1, 365, "days"),
        "30",
        "How long closed runs are kept in a namespace that does not say otherwise.",
        Group.SERVER,
    ),
    Setting(
        "DW_ARCHIVE_DIR",
        DirectoryKind(),
        None,
        "Where the histories of runs are written before they are deleted; without it they are deleted only.",
        Group.SERVER,
        default_note="no archive",
    ),
    Setting(
        "DW_EXPORT_SIGNATURE_KEY",
        SigningKeyKind(),
        None,
        "HMAC key that exported histories are signed with; without it they carry a checksum only.",
        Group.SERVER,
    ),
    # Where it listens
    Setting(
        "DW_HOST",
        HostKind(),
        "127.0.0.1",
        "Address to listen on; other machines reach the server only if it is not a loopback one.",
        Group.LISTEN,
    ),
    Setting(
        "DW_PORT", IntegerKind(0, 65535), "8080", "Port to listen on; 0 takes any free one.", Group.LISTEN
    ),
    Setting(
        "DW_ALLOWED_HOSTS",
        HostListKind(),
        "",
        "Host headers that are answered; others get 421. A loopback bind always allows its own names.",
        Group.LISTEN,
        default_note="loopback names on a loopback bind, else any",
    ),
    Setting(
        "DW_TRUSTED_PROXIES",
        NetworkListKind(),
        "",
        "TLS-ending proxies in front of the server, whose forwarding headers are believed.",
        Group.LISTEN,
        default_note="none",
    ),
    Setting(
        "DW_INSECURE_HTTP",
        FlagKind(),
        "false",
        "Allow token authentication on a non-loopback bind without TLS; tokens then travel in the clear.",
        Group.LISTEN,
    ),
    Setting(
        "DW_COMPRESSION_ENABLED",
        FlagKind(),
        "true",
        "Compress large JSON responses for callers that accept it.",
        Group.LISTEN,
    ),
    # Who may ask
    Setting(
        "DW_AUTH_DRIVER",
        ChoiceKind(AuthDriver),
        "token",
        "How callers prove who they are; `none` is for development on loopback.",
        Group.AUTH,
    ),
    Setting(
        "DW_WORKER_TOKEN", AuthTokenKind(), None, "Token of workers: register, poll, complete.", Group.AUTH
    ),
    Setting(
        "DW_OPERATOR_TOKEN",
        AuthTokenKind(),
        None,
        "Token of operators: workflows, task queues and what can be seen of workers.",
        Group.AUTH,
    ),
    Setting(
        "DW_ADMIN_TOKEN",
        AuthTokenKind(),
        None,
        "Token of administrators: namespaces and maintenance too.",
        Group.AUTH,
    ),
    Setting(
        "DW_AUTH_TOKEN",
        AuthTokenKind(),
        None,
        "Shared token: opens every route while no role token is set, and is a plain admin otherwise.",
        Group.AUTH,
    ),
    Setting("DW_WORKER_SIGNATURE_KEY", SigningKeyKind(), None, "HMAC key of workers.", Group.AUTH),
    Setting("DW_OPERATOR_SIGNATURE_KEY", SigningKeyKind(), None, "HMAC key of operators.", Group.AUTH),
    Setting("DW_ADMIN_SIGNATURE_KEY", SigningKeyKind(), None, "HMAC key of administrators.", Group.AUTH),
    Setting(
        "DW_SIGNATURE_KEY",
        SigningKeyKind(),
        None,
        "Shared HMAC key, with the same rule as the shared token.",
        Group.AUTH,
    ),
    Setting(
        "DW_SIGNATURE_PROFILE",
        ChoiceKind(SignatureProfile),
        "penstock",
        "What a signature covers: the whole request, or (`body`) its body alone, for older clients.",
        Group.AUTH,
    ),
    Setting(
        "DW_SIGNATURE_WINDOW_SECONDS",
        _seconds(1, 300),
        "60",
        "How far the clock of a signing caller may differ.",
        Group.AUTH,
    ),
    Setting(
        "DW_AUTH_BACKWARD_COMPATIBLE",
        FlagKind(),
        "true",
        "Accept the shared token or key; `false` leaves only the secrets of roles.",
        Group.AUTH,
    ),
    # Where the truth is kept
    Setting(
        "DW_DATABASE_URL",
        DatabaseUrlKind(),
        "sqlite:///penstock.db",
        "The store: an SQLite file, PostgreSQL, or (`memory://`) a database that is gone when the server stops.",
        Group.STORE,
    ),
    Setting(
        "DW_SQLITE_SYNCHRONOUS",
        ChoiceKind(SqliteSynchronous),
        "full",
        "When SQLite calls fsync; `normal` may lose the last commits in a power cut.",
        Group.STORE,
    ),
    Setting(
        "DW_POSTGRES_POOL_SIZE",
        IntegerKind(2, 1000, "connections"),
        "8",
        "Connections for reading that one server process holds, two of which are kept for short reads; it holds five "
        "more for writing and one to listen, and up to four for moments in which rows are locked by other sessions.",
        Group.STORE,
    ),
    Setting(
        "DW_STATEMENT_TIMEOUT_MS",
        IntegerKind(100, 3_600_000, "milliseconds"),
        "10000",
        "Longest time PostgreSQL works on one statement: a read, a change of settings, retention, or an operation that "
        "was too slow for `DW_TRANSACTION_TIMEOUT_MS`.",
        Group.STORE,
    ),
    Setting(
        "DW_TRANSACTION_TIMEOUT_MS",
        IntegerKind(200, 60_000, "milliseconds"),
        "2000",
        "Longest time a transaction on PostgreSQL may hold row locks, also when its server is frozen or cut off in it. "
        "The database ends the session; the other servers wait no longer than this.",
        Group.STORE,
    ),
    Setting(
        "DW_DATABASE_WAIT_SECONDS",
        _seconds(0, 3_600),
        "30",
        "How long a starting server waits for a PostgreSQL that does not accept connections yet, is recovering or is "
        "still read-only; 0 does not wait.",
        Group.STORE,
    ),
    # How servers keep out of each other's way
    Setting(
        "DW_COORDINATION",
        ChoiceKind(CoordinationKind),
        "auto",
        "Who lends locks and carries wake-ups between servers; `auto` is database on PostgreSQL and memory elsewhere.",
        Group.COORDINATION,
    ),
    Setting(
        "DW_REDIS_URL",
        RedisUrlKind(),
        None,
        "The Redis of DW_COORDINATION=redis; it holds nothing that must not be lost.",
        Group.COORDINATION,
    ),
    # Limits
    Setting(
        "DW_MAX_PAYLOAD_BYTES",
        IntegerKind(256, 64 * _MIB, "bytes"),
        str(2 * _MIB),
        "Largest request body.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_MEMO_BYTES",
        IntegerKind(0, 64 * _MIB, "bytes"),
        "262144",
        "Largest memo, as JSON.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_SEARCH_ATTRIBUTES",
        IntegerKind(0, 10_000),
        "100",
        "Search attributes that one run may carry.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_SEARCH_ATTRIBUTE_KEY_LENGTH",
        IntegerKind(1, 1024, "characters"),
        "128",
        "Longest name of a search attribute.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_SEARCH_ATTRIBUTE_VALUE_BYTES",
        IntegerKind(1, _MIB, "bytes"),
        "2048",
        "Longest text in a search attribute.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_OPERATION_NAME_LENGTH",
        IntegerKind(1, 4096, "bytes"),
        "256",
        "Longest name of a signal, query or update.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_PENDING_ACTIVITIES",
        IntegerKind(0, 1_000_000),
        "2000",
        "Activities that one run may have open; 0 allows none.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_PENDING_TIMERS",
        IntegerKind(0, 1_000_000),
        "2000",
        "Timers that one run may have open; 0 allows none.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_PENDING_CHILDREN",
        IntegerKind(0, 1_000_000),
        "2000",
        "Children that one run may wait for; 0 allows none.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_PENDING_SIGNALS",
        IntegerKind(1, 1_000_000),
        "5000",
        "Signals that a run's code has not seen yet; more are refused.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_PENDING_UPDATES",
        IntegerKind(1, 1_000_000),
        "500",
        "Updates that a run has accepted and not applied yet; more are refused.",
        Group.LIMITS,
    ),
    Setting(
        "DW_QUARANTINE_AFTER",
        IntegerKind(0, 1_000, "worker deaths"),
        "3",
        "Workers that may die running one activity before it is ended, whatever its retry policy says; 0: any number.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_HISTORY_EVENTS",
        IntegerKind(10, 10_000_000, "events"),
        "50000",
        "Events that one run may have before it must continue as new.",
        Group.LIMITS,
    ),
    Setting(
        "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE",
        IntegerKind(1, 10_000),
        "1024",
        "Query tasks that may wait in one task queue; more are refused with 429.",
        Group.LIMITS,
    ),
    Setting(
        "DW_MAX_LONG_POLLS",
        IntegerKind(1, 1_000_000),
        "10000",
        "Polls that one server process keeps open at once.",
        Group.LIMITS,
    ),
    # Admission
    Setting(
        "DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE",
        _LEASES,
        None,
        "Workflow tasks of one queue that may be leased at once; 0 closes every queue.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE",
        _LEASES,
        None,
        "The same for all queues of a namespace together; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER",
        _LEASES,
        None,
        "The same for all namespaces together; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE",
        _DISPATCHES,
        None,
        "Workflow tasks of one queue that may be dispatched in a minute; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_WORKFLOW_TASK_MAX_DISPATCHES_PER_MINUTE_PER_NAMESPACE",
        _DISPATCHES,
        None,
        "The same for all queues of a namespace together; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE",
        _LEASES,
        None,
        "Activity tasks of one queue that may be leased at once; 0 closes every queue.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_NAMESPACE",
        _LEASES,
        None,
        "The same for all queues of a namespace together; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER",
        _LEASES,
        None,
        "The same for all namespaces together; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_ACTIVITY_TASK_MAX_DISPATCHES_PER_MINUTE",
        _DISPATCHES,
        None,
        "Activity tasks of one queue that may be dispatched in a minute; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_ACTIVITY_TASK_MAX_DISPATCHES_PER_MINUTE_PER_NAMESPACE",
        _DISPATCHES,
        None,
        "The same for all queues of a namespace together; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_MAX_ACTIVE_LEASES_PER_CLUSTER",
        _LEASES,
        None,
        "Workflow and activity tasks of all namespaces that may be leased at once; 0 closes.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_DISPATCH_WINDOW",
        ChoiceKind(Window),
        "minute",
        "What a minute is: one of the calendar, or (`sliding`) any sixty seconds, which no burst can pass.",
        Group.ADMISSION,
    ),
    Setting(
        "DW_QUEUE_RATE_MAX",
        IntegerKind(1, 1_000_000, "activities a second"),
        None,
        "Activity tasks that any one queue gives out in a second at most, whatever operators and workers say.",
        Group.ADMISSION,
        default_note=_NO_LIMIT,
    ),
    Setting(
        "DW_TASK_QUEUE_ADMISSION_OVERRIDES",
        JsonObjectKind("limits by queue"),
        None,
        "Limits of single queues and namespaces, and budget groups that queues share.",
        Group.ADMISSION,
        default_note="none",
    ),
    Setting(
        "DW_ADMISSION_VERSION",
        IntegerKind(0, 2**31 - 1),
        "0",
        "Version of the limits declared here; a server that starts with a lower one than the stored changes none.",
        Group.ADMISSION,
    ),
    Setting(
        "DW_JOURNAL",
        FlagKind(),
        "false",
        "Write every lease into the journal, for `penstock verify`.",
        Group.ADMISSION,
    ),
    Setting(
        "DW_JOURNAL_HOURS",
        IntegerKind(1, 720, "hours"),
        "24",
        "How long lines of the journal are kept.",
        Group.ADMISSION,
    ),
    # Times and polls
    Setting(
        "DW_WORKER_POLL_TIMEOUT",
        _seconds(0, POLL_TIMEOUT_SECONDS_MAX),
        "30",
        "How long a poll waits for a task when it does not say itself.",
        Group.TIMES,
    ),
    Setting(
        "DW_WORKFLOW_TASK_TIMEOUT",
        _seconds(1, 86_400),
        "60",
        "Lease of a workflow task.",
        Group.TIMES,
    ),
    Setting(
        "DW_ACTIVITY_TASK_TIMEOUT",
        _seconds(1, 86_400),
        "300",
        "Lease of an activity task; heartbeats renew it.",
        Group.TIMES,
    ),
    Setting(
        "DW_QUERY_TASK_TIMEOUT",
        _seconds(1, 600),
        None,
        "How long the caller of a query waits for a worker.",
        Group.TIMES,
        default_note="DW_WORKER_POLL_TIMEOUT, at least 1",
    ),
    Setting(
        "DW_QUERY_TASK_LEASE_TIMEOUT",
        _seconds(1, 86_400),
        None,
        "Lease of a query task.",
        Group.TIMES,
        default_note="DW_WORKFLOW_TASK_TIMEOUT",
    ),
    Setting(
        "DW_WORKER_STALE_AFTER_SECONDS",
        _seconds(1, 86_400),
        None,
        "Silence after which a worker counts as stale.",
        Group.TIMES,
        default_note="twice DW_WORKER_POLL_TIMEOUT, at least 60",
    ),
    Setting(
        "DW_QUEUE_RATE_TTL",
        _seconds(1, 86_400),
        "300",
        "How long a queue rate that workers reported stays in force after the last report.",
        Group.TIMES,
    ),
    # Logs
    Setting(
        "DW_LOG_LEVEL", ChoiceKind(LogLevel), "info", "Least important line that is written.", Group.LOGS
    ),
    Setting(
        "DW_LOG_FORMAT",
        ChoiceKind(LogFormat),
        "auto",
        "Shape of a line; `auto` is console on a terminal and JSON elsewhere.",
        Group.LOGS,
    ),
)

SETTINGS: dict[str, Setting] = {setting.name: setting for setting in CATALOGUE}
FILE_VARIANTS: dict[str, Setting] = {
    setting.file_variant: setting for setting in CATALOGUE if setting.file_variant is not None
}
NAMES: tuple[str, ...] = (*SETTINGS, *FILE_VARIANTS)
