"""The frozen policies that everything else receives."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from penstock.core.limits.admission import NOTHING_DECLARED, Declaration
from penstock.core.limits.rate_reports import REPORT_TTL_DEFAULT_MS
from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.settings.declared_adapters import DeclaredAdapter
from penstock.settings.declared_limits import NO_LIMITS, DeclaredLimits
from penstock.settings.types.addresses import Network, is_loopback
from penstock.settings.types.database_url import StoreKind
from penstock.settings.types.redis_url import RedisLocation
from penstock.settings.types.secret import Secret


class SqliteSynchronous(StrEnum):
    """When SQLite calls fsync: at every commit, or (faster, may lose the last ones) at checkpoints."""

    FULL = "full"
    NORMAL = "normal"


class CoordinationKind(StrEnum):
    """What provides locks between servers; `auto` selects the database if servers can share it."""

    AUTO = "auto"
    MEMORY = "memory"
    DATABASE = "database"
    REDIS = "redis"


class LogLevel(StrEnum):
    """The least important line that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class LogFormat(StrEnum):
    """How a line looks; `auto` is console on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class ListenPolicy:
    """Listen address, accepted host names and trusted proxies."""

    host: str
    port: int
    allowed_hosts: frozenset[str] | None
    """Lower-case names without port, brackets and final dot; None allows every host."""
    trusted_proxies: tuple[Network, ...]
    insecure_http: bool
    compression_enabled: bool
    processes: int = 1
    """Server processes that share the address."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def probe_hosts(self) -> frozenset[str] | None:
        """The host names under which health, readiness and metrics are answered.

        Load balancers, orchestrators and Prometheus address a server by its IP. Behind loopback, where DNS rebinding
        is the danger, probes are as strict as everything else.
        """
        return self.allowed_hosts if self.is_loopback else None

    def trusts_proxy(self, peer: str) -> bool:
        """Whether forwarding headers of this peer may be believed. An odd address is never trusted."""
        if not self.trusted_proxies:
            return False
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.trusted_proxies)


@dataclass(frozen=True, slots=True)
class RoleSecrets:
    """One secret a role, and the shared one from before roles."""

    worker: Secret | None = None
    operator: Secret | None = None
    admin: Secret | None = None
    shared: Secret | None = None

    @property
    def has_roles(self) -> bool:
        """With any role secret set, the shared one is a plain admin and no longer opens worker routes."""
        return any(secret is not None for secret in (self.worker, self.operator, self.admin))

    @property
    def is_empty(self) -> bool:
        return not self.has_roles and self.shared is None


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Authentication. `tokens` and `signature_keys` hold only the secrets that are enabled.

    The shared secret is absent where `backward_compatible` is false.
    """

    driver: AuthDriver
    tokens: RoleSecrets
    signature_keys: RoleSecrets
    signature_profile: SignatureProfile
    signature_window_ms: int
    backward_compatible: bool
    viewer_token: Secret | None = None
    """Opens the dashboard only, so it is not among the secrets of roles."""

    @property
    def secrets(self) -> RoleSecrets:
        """The secrets of the driver in use. Empty with `token` means: every authenticated route is closed."""
        match self.driver:
            case AuthDriver.TOKEN:
                return self.tokens
            case AuthDriver.SIGNATURE:
                return self.signature_keys
            case AuthDriver.NONE:
                return RoleSecrets()


@dataclass(frozen=True, slots=True)
class LimitPolicy:
    """How large and how many. A limit of 0 closes its gate."""

    payload_bytes_max: int
    memo_bytes_max: int
    search_attributes_max: int
    search_attribute_key_length_max: int
    search_attribute_value_bytes_max: int
    operation_name_bytes_max: int
    pending_activities_max: int
    pending_timers_max: int
    pending_children_max: int
    pending_signals_max: int
    pending_updates_max: int
    pending_query_tasks_max: int
    history_events_max: int


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """Lease durations, and how many leases of an activity may expire before it is quarantined."""

    workflow_lease_ms: int
    activity_lease_ms: int
    """The longest lease of an activity task; a worker may request a shorter one."""
    query_lease_ms: int
    quarantine_after: int
    """Worker deaths that end an activity; 0: none do."""


@dataclass(frozen=True, slots=True)
class PollPolicy:
    """Timeouts and bounds of long polls and queries, and when workers and their reported rates expire."""

    poll_timeout_ms: int
    poll_timeout_ms_max: int
    query_timeout_ms: int
    worker_stale_after_ms: int
    long_polls_max: int
    queue_rate_ttl_ms: int = REPORT_TTL_DEFAULT_MS


@dataclass(frozen=True, slots=True)
class StorePolicy:
    """Where the truth is kept: `path` for SQLite only, `url` for PostgreSQL only."""

    kind: StoreKind
    path: Path | None
    url: Secret | None
    synchronous: SqliteSynchronous
    pool_size: int
    statement_timeout_ms: int
    transaction_timeout_ms: int = 2_000
    wait_s: int = 30
    """How long a starting server waits for PostgreSQL."""


@dataclass(frozen=True, slots=True)
class CoordinationPolicy:
    """What provides locks between servers: never `auto`; `redis` always comes with a location."""

    kind: CoordinationKind
    redis: RedisLocation | None = None


@dataclass(frozen=True, slots=True)
class DashboardPolicy:
    """Whether the dashboard is served, and what it shows of payloads and of source code."""

    enabled: bool = True
    viewers_see_payloads: bool = False
    asks_source_lines: bool = False
    """Whether workers are asked to send source lines with failures."""


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """Log level and format."""

    level: LogLevel
    format: LogFormat


@dataclass(frozen=True, slots=True)
class ExternalStorageLimits:
    """Where policies of namespaces may keep payloads, how large these may be, and how long unused ones are kept."""

    directory: Path | None = None
    endpoints: frozenset[str] = frozenset()
    payload_bytes_max: int = 64 * 1024 * 1024
    grace_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting as it was read, without secrets; `shown` is None if it is not set."""

    name: str
    shown: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All policies of one server, and the warnings an operator should see when it starts."""

    listen: ListenPolicy
    auth: AuthSettings
    limits: LimitPolicy
    leases: LeasePolicy
    polls: PollPolicy
    store: StorePolicy
    coordination: CoordinationPolicy
    logs: LogPolicy
    server_id: str
    default_namespace: str
    retention_days_default: int
    admission: Declaration = NOTHING_DECLARED
    journal: bool = False
    journal_hours: int = 24
    archive_dir: Path | None = None
    export_key: Secret | None = None
    bridge_adapters: tuple[DeclaredAdapter, ...] = ()
    dashboard: DashboardPolicy = DashboardPolicy()
    external_storage: ExternalStorageLimits = ExternalStorageLimits()
    warnings: tuple[str, ...] = ()
    readings: tuple[ShownSetting, ...] = field(default=(), repr=False)
    declared: DeclaredLimits = field(default=NO_LIMITS, repr=False)
    """The source of each limit in `admission`."""
