"""From environment and file to `Settings`, or to one error that names every problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.core.limits.windows import Window
from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.errors import ConfigurationError
from penstock.schema.problems import InvalidValue
from penstock.settings import checks
from penstock.settings.bridge_adapters import SETTING as ADAPTERS
from penstock.settings.bridge_adapters import read_adapters
from penstock.settings.catalogue import CATALOGUE, POLL_TIMEOUT_SECONDS_MAX, Setting
from penstock.settings.declared_adapters import DeclaredAdapter
from penstock.settings.declared_limits import DeclaredLimits
from penstock.settings.diagnostics import Diagnostics
from penstock.settings.limits import admission
from penstock.settings.limits.limit_shapes import PlacedValue
from penstock.settings.policies import (
    AuthSettings,
    CoordinationKind,
    CoordinationPolicy,
    DashboardPolicy,
    ExternalStorageLimits,
    LeasePolicy,
    LimitPolicy,
    ListenPolicy,
    LogFormat,
    LogLevel,
    LogPolicy,
    PollPolicy,
    RoleSecrets,
    Settings,
    ShownSetting,
    SqliteSynchronous,
    StorePolicy,
)
from penstock.settings.sources import RawSetting, RawSettings, gather_raw_settings
from penstock.settings.types.addresses import LOOPBACK_NAMES, is_loopback
from penstock.settings.types.database_url import StoreKind, StoreLocation
from penstock.settings.types.redis_url import RedisLocation
from penstock.settings.types.secret import HIDDEN, Secret
from penstock.settings.types.secret_files import read_secret_file
from penstock.settings.values import DEFAULT, SettingValues


def load(
    environ: Mapping[str, str],
    config_path: Path | None = None,
    *,
    flags: Mapping[str, str] | None = None,
    server_id_default: str = "penstock",
) -> Settings:
    """Read all settings once. `flags` are `DW_*` values from the command line and win over the environment.

    Raises `ConfigurationError` with every problem, one per line, each with its source; the same lines
    are in its details as `problems`. No secret is ever part of one.
    """
    raw = gather_raw_settings(environ, flags or {}, config_path)
    values, problems = _read_all(raw, server_id_default)
    diagnostics = Diagnostics()
    limits = admission.read_limits(values, raw.queues, raw.groups, diagnostics)
    adapters = read_adapters(_declared_adapters(values, raw), environ, diagnostics)
    findings = list(checks.check(values))
    problems += diagnostics.problems
    problems += [_line(values, found) for found in findings if isinstance(found, checks.CheckError)]
    if problems:
        raise ConfigurationError("\n".join(["The configuration is not valid:", *problems]), problems=problems)
    warnings = [_line(values, found) for found in findings if isinstance(found, checks.CheckWarning)]
    return _settings(values, limits, adapters, (*warnings, *diagnostics.cautions))


def _declared_adapters(values: SettingValues, raw: RawSettings) -> PlacedValue | None:
    """The adapters as they were given, unread: the tables of the file, or the object of the setting."""
    if raw.adapters is not None or not values.is_set(ADAPTERS):
        return raw.adapters
    source = values.source(ADAPTERS)
    return PlacedValue(values.raw(ADAPTERS), (ADAPTERS,), lambda _: source)


def _line(values: SettingValues, found: checks.CheckResult) -> str:
    return f"{values.source(found.name)}: {found.text}"


def _read_all(raw: RawSettings, server_id_default: str) -> tuple[SettingValues, list[str]]:
    values, problems = SettingValues(), list(raw.problems)
    for setting in CATALOGUE:
        if setting.name in raw.invalid_names:
            continue
        given = raw.given.get(setting.name)
        if given is None:
            values.put(setting.name, _default(setting), DEFAULT)
            continue
        try:
            values.put(setting.name, _value(setting, given), _source(setting, given))
        except InvalidValue as error:
            problems.append(f"{given.origin}: {given.name} {error.message}")
    if (queues := raw.queues) is not None:
        values.put(admission.OVERRIDES, queues.value, f"{queues.origin} ({queues.shown})")
    if (adapters := raw.adapters) is not None:
        values.put(ADAPTERS, adapters.value, adapters.origin)
    _work_out_defaults(values, server_id_default)
    return values, problems


def _default(setting: Setting) -> object:
    return None if setting.default is None else setting.kind.parse(setting.default)


def _value(setting: Setting, given: RawSetting) -> object:
    if given.name == setting.file_variant:
        if not given.text:
            raise InvalidValue("is empty: it must be the path of a file")
        return setting.kind.parse(read_secret_file(Path(given.text)))
    if not given.text.strip() and not setting.kind.may_be_empty:
        raise InvalidValue(f"is empty: it must be {setting.kind.expects}")
    value = setting.kind.parse(given.text)
    if given.file_is_open_to_others and _is_sensitive(value):
        raise InvalidValue("is a secret in a file that others than its owner may use: chmod 600 the file")
    return value


def _is_sensitive(value: object) -> bool:
    """A secret, or a URL with a password in it."""
    return isinstance(value, Secret | StoreLocation | RedisLocation) and HIDDEN in str(value)


def _source(setting: Setting, given: RawSetting) -> str:
    return f"{given.origin} ({given.name})" if given.name != setting.name else given.origin


def _work_out_defaults(values: SettingValues, server_id_default: str) -> None:
    """The defaults that follow from another setting. One that cannot be read leaves its follower unread."""
    _follow(values, "DW_QUERY_TASK_TIMEOUT", "DW_WORKER_POLL_TIMEOUT", factor=1, minimum=1)
    _follow(values, "DW_QUERY_TASK_LEASE_TIMEOUT", "DW_WORKFLOW_TASK_TIMEOUT", factor=1, minimum=1)
    _follow(values, "DW_WORKER_STALE_AFTER_SECONDS", "DW_WORKER_POLL_TIMEOUT", factor=2, minimum=60)
    if values.has("DW_SERVER_ID") and not values.is_set("DW_SERVER_ID"):
        values.put("DW_SERVER_ID", server_id_default, DEFAULT)


def _follow(values: SettingValues, name: str, leader: str, *, factor: int, minimum: int) -> None:
    if not values.has(name) or values.is_set(name):
        return
    if values.has(leader):
        values.put(name, max(factor * values.of(leader, int), minimum), DEFAULT)
    else:
        values.forget(name)


def _settings(
    values: SettingValues,
    limits: DeclaredLimits,
    adapters: tuple[DeclaredAdapter, ...],
    warnings: tuple[str, ...],
) -> Settings:
    return Settings(
        listen=_listen(values),
        auth=_auth(values),
        limits=_limits(values),
        leases=LeasePolicy(
            workflow_lease_ms=_ms(values, "DW_WORKFLOW_TASK_TIMEOUT"),
            activity_lease_ms=_ms(values, "DW_ACTIVITY_TASK_TIMEOUT"),
            query_lease_ms=_ms(values, "DW_QUERY_TASK_LEASE_TIMEOUT"),
            quarantine_after=values.of("DW_QUARANTINE_AFTER", int),
        ),
        polls=PollPolicy(
            poll_timeout_ms=_ms(values, "DW_WORKER_POLL_TIMEOUT"),
            poll_timeout_ms_max=POLL_TIMEOUT_SECONDS_MAX * 1000,
            query_timeout_ms=_ms(values, "DW_QUERY_TASK_TIMEOUT"),
            worker_stale_after_ms=_ms(values, "DW_WORKER_STALE_AFTER_SECONDS"),
            long_polls_max=values.of("DW_MAX_LONG_POLLS", int),
            queue_rate_ttl_ms=_ms(values, "DW_QUEUE_RATE_TTL"),
        ),
        store=_store(values),
        coordination=_coordination(values),
        logs=LogPolicy(
            level=values.of("DW_LOG_LEVEL", LogLevel), format=values.of("DW_LOG_FORMAT", LogFormat)
        ),
        server_id=values.of("DW_SERVER_ID", str),
        default_namespace=values.of("DW_DEFAULT_NAMESPACE", str),
        retention_days_default=values.of("DW_HISTORY_RETENTION_DAYS", int),
        admission=limits.declaration(
            values.of("DW_DISPATCH_WINDOW", Window),
            values.maybe("DW_QUEUE_RATE_MAX", int),
            values.of("DW_ADMISSION_VERSION", int),
        ),
        journal=values.of("DW_JOURNAL", bool),
        journal_hours=values.of("DW_JOURNAL_HOURS", int),
        archive_dir=values.maybe("DW_ARCHIVE_DIR", Path),
        export_key=values.maybe("DW_EXPORT_SIGNATURE_KEY", Secret),
        bridge_adapters=adapters,
        dashboard=DashboardPolicy(
            values.of("DW_UI", bool),
            values.of("DW_UI_VIEWER_PAYLOADS", bool),
            values.of("DW_SOURCE_LINES", bool),
        ),
        external_storage=ExternalStorageLimits(
            directory=values.maybe("DW_EXTERNAL_STORAGE_DIR", Path),
            endpoints=frozenset(values.of("DW_EXTERNAL_STORAGE_ENDPOINTS", tuple)),
            payload_bytes_max=values.of("DW_EXTERNAL_PAYLOAD_BYTES_MAX", int),
            grace_ms=_ms(values, "DW_EXTERNAL_PAYLOAD_GRACE_SECONDS"),
        ),
        declared=limits,
        warnings=warnings,
        readings=tuple(_reading(values, setting) for setting in CATALOGUE),
    )


def _ms(values: SettingValues, name: str) -> int:
    return values.of(name, int) * 1000


def _listen(values: SettingValues) -> ListenPolicy:
    host = values.of("DW_HOST", str)
    return ListenPolicy(
        host=host,
        port=values.of("DW_PORT", int),
        allowed_hosts=_allowed_hosts(host, values.of("DW_ALLOWED_HOSTS", tuple)),
        trusted_proxies=values.of("DW_TRUSTED_PROXIES", tuple),
        insecure_http=values.of("DW_INSECURE_HTTP", bool),
        compression_enabled=values.of("DW_COMPRESSION_ENABLED", bool),
        processes=values.of("DW_SERVER_PROCESSES", int),
    )


def _allowed_hosts(host: str, named: tuple[str, ...]) -> frozenset[str] | None:
    """A loopback server answers to its own names (and stops DNS rebinding); any other to those given."""
    if is_loopback(host):
        return LOOPBACK_NAMES | {host, *named}
    return frozenset(named) or None


def _auth(values: SettingValues) -> AuthSettings:
    compatible = values.of("DW_AUTH_BACKWARD_COMPATIBLE", bool)
    return AuthSettings(
        driver=values.of("DW_AUTH_DRIVER", AuthDriver),
        tokens=_role_secrets(values, checks.TOKENS, compatible),
        signature_keys=_role_secrets(values, checks.SIGNATURE_KEYS, compatible),
        signature_profile=values.of("DW_SIGNATURE_PROFILE", SignatureProfile),
        signature_window_ms=_ms(values, "DW_SIGNATURE_WINDOW_SECONDS"),
        backward_compatible=compatible,
        viewer_token=values.maybe("DW_VIEWER_TOKEN", Secret),
    )


def _role_secrets(values: SettingValues, names: tuple[str, str, str, str], compatible: bool) -> RoleSecrets:
    worker, operator, admin, shared = (values.maybe(name, Secret) for name in names)
    return RoleSecrets(worker, operator, admin, shared if compatible else None)


def _limits(values: SettingValues) -> LimitPolicy:
    return LimitPolicy(
        payload_bytes_max=values.of("DW_MAX_PAYLOAD_BYTES", int),
        memo_bytes_max=values.of("DW_MAX_MEMO_BYTES", int),
        search_attributes_max=values.of("DW_MAX_SEARCH_ATTRIBUTES", int),
        search_attribute_key_length_max=values.of("DW_MAX_SEARCH_ATTRIBUTE_KEY_LENGTH", int),
        search_attribute_value_bytes_max=values.of("DW_MAX_SEARCH_ATTRIBUTE_VALUE_BYTES", int),
        operation_name_bytes_max=values.of("DW_MAX_OPERATION_NAME_LENGTH", int),
        pending_activities_max=values.of("DW_MAX_PENDING_ACTIVITIES", int),
        pending_timers_max=values.of("DW_MAX_PENDING_TIMERS", int),
        pending_children_max=values.of("DW_MAX_PENDING_CHILDREN", int),
        pending_signals_max=values.of("DW_MAX_PENDING_SIGNALS", int),
        pending_updates_max=values.of("DW_MAX_PENDING_UPDATES", int),
        pending_query_tasks_max=values.of("DW_QUERY_TASK_MAX_PENDING_PER_QUEUE", int),
        history_events_max=values.of("DW_MAX_HISTORY_EVENTS", int),
    )


def _store(values: SettingValues) -> StorePolicy:
    location = values.of("DW_DATABASE_URL", StoreLocation)
    return StorePolicy(
        kind=location.kind,
        path=location.path,
        url=location.url,
        synchronous=values.of("DW_SQLITE_SYNCHRONOUS", SqliteSynchronous),
        pool_size=values.of("DW_POSTGRES_POOL_SIZE", int),
        statement_timeout_ms=values.of("DW_STATEMENT_TIMEOUT_MS", int),
        transaction_timeout_ms=values.of("DW_TRANSACTION_TIMEOUT_MS", int),
        wait_s=values.of("DW_DATABASE_WAIT_SECONDS", int),
    )


def _coordination(values: SettingValues) -> CoordinationPolicy:
    kind = values.of("DW_COORDINATION", CoordinationKind)
    if kind is CoordinationKind.AUTO:
        is_shared = values.of("DW_DATABASE_URL", StoreLocation).kind is StoreKind.POSTGRES
        kind = CoordinationKind.DATABASE if is_shared else CoordinationKind.MEMORY
    return CoordinationPolicy(kind, values.maybe("DW_REDIS_URL", RedisLocation))


def _reading(values: SettingValues, setting: Setting) -> ShownSetting:
    shown = setting.kind.show(values.raw(setting.name)) if values.is_set(setting.name) else None
    return ShownSetting(setting.name, shown or None, values.source(setting.name))
