"""The rules that no single setting can break alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.settings.policies import CoordinationKind
from penstock.settings.types.addresses import is_loopback
from penstock.settings.types.database_url import StoreKind, StoreLocation
from penstock.settings.types.secret import Secret
from penstock.settings.values import SettingValues

SECRET_LENGTH_MIN = 32
DISTINCT_CHARACTERS_MIN = 8

SAMPLE_SECRETS = frozenset(
    {
        "admin", "admin-secret", "admin-signature-secret", "admin-token", "auth-token", "change-me",
        "changeit", "changeme", "default", "demo", "demo-token", "dev", "dev-secret", "dev-token",
        "development", "example", "local", "local-dev-token", "operator", "operator-secret",
        "operator-signature-secret", "operator-token", "password", "replace-me", "sample", "secret",
        "secret-token", "shared-secret", "shared-token", "signature-secret", "test", "test-secret",
        "test-token", "token", "worker", "worker-secret", "worker-signature-secret", "worker-token",
        "your-token-here",
    }
)  # fmt: skip
"""Secrets that are printed in public documentation, so that nothing protects them."""

TOKENS = ("DW_WORKER_TOKEN", "DW_OPERATOR_TOKEN", "DW_ADMIN_TOKEN", "DW_AUTH_TOKEN")
SIGNATURE_KEYS = (
    "DW_WORKER_SIGNATURE_KEY",
    "DW_OPERATOR_SIGNATURE_KEY",
    "DW_ADMIN_SIGNATURE_KEY",
    "DW_SIGNATURE_KEY",
)
SHARED = ("DW_AUTH_TOKEN", "DW_SIGNATURE_KEY")
VIEWERS = "DW_VIEWER_TOKEN"
"""Opens the dashboard only: a server whose only secret it is refuses every request of its API."""

_BY_DRIVER = {
    AuthDriver.TOKEN: (*TOKENS, VIEWERS),
    AuthDriver.SIGNATURE: SIGNATURE_KEYS,
    AuthDriver.NONE: (),
}
_MAKE_ONE = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'


@dataclass(frozen=True, slots=True)
class CheckError:
    """A reason not to start, reported under the source of the setting it concerns most."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckWarning:
    """A warning for the operator; the server starts nevertheless."""

    name: str
    text: str


CheckResult = CheckError | CheckWarning


def check(values: SettingValues) -> Iterator[CheckResult]:
    """Apply every rule whose settings were all read; the others are skipped."""
    for needs, rule in _RULES:
        if values.has(*needs):
            yield from rule(values)


def usable_secrets(values: SettingValues) -> dict[str, Secret]:
    """The secrets of the driver in use, without a shared one that is switched off."""
    names = _BY_DRIVER[values.of("DW_AUTH_DRIVER", AuthDriver)]
    found = {name: values.maybe(name, Secret) for name in names}
    return {
        name: secret for name, secret in found.items() if secret is not None and _is_accepted(name, values)
    }


def _is_accepted(name: str, values: SettingValues) -> bool:
    return name not in SHARED or values.of("DW_AUTH_BACKWARD_COMPATIBLE", bool)


def _no_open_door(values: SettingValues) -> Iterator[CheckResult]:
    if values.of("DW_AUTH_DRIVER", AuthDriver) is not AuthDriver.NONE:
        return
    host = values.of("DW_HOST", str)
    if not is_loopback(host):
        yield CheckError(
            "DW_AUTH_DRIVER",
            f"DW_AUTH_DRIVER=none works on a loopback address only, and DW_HOST is {host}:"
            " set DW_AUTH_DRIVER=token or DW_HOST=127.0.0.1",
        )
    elif values.of("DW_TRUSTED_PROXIES", tuple):
        yield CheckWarning(
            "DW_AUTH_DRIVER",
            "DW_AUTH_DRIVER=none with DW_TRUSTED_PROXIES: anyone who reaches the proxy may do everything",
        )


def _secrets_are_strong(values: SettingValues) -> Iterator[CheckResult]:
    host = values.of("DW_HOST", str)
    for name, secret in usable_secrets(values).items():
        weakness = _weakness(secret.reveal())
        if weakness is None:
            continue
        if is_loopback(host):
            yield CheckWarning(
                name, f"{name} {weakness}: it works on loopback and is refused on any other bind"
            )
        else:
            yield CheckError(name, f"{name} {weakness}, and DW_HOST {host} is not loopback: {_MAKE_ONE}")


def _weakness(text: str) -> str | None:
    if text.lower() in SAMPLE_SECRETS:
        return "is a sample value that everybody knows"
    if len(text) < SECRET_LENGTH_MIN:
        return f"is shorter than {SECRET_LENGTH_MIN} characters"
    if len(set(text)) < DISTINCT_CHARACTERS_MIN:
        return f"has fewer than {DISTINCT_CHARACTERS_MIN} different characters"
    return None


def _secrets_are_distinct(values: SettingValues) -> Iterator[CheckResult]:
    for (first, one), (second, other) in combinations(usable_secrets(values).items(), 2):
        if one == other:
            yield CheckError(
                second, f"{first} and {second} are the same secret, so its role is unclear: make them differ"
            )


def _secrets_exist(values: SettingValues) -> Iterator[CheckResult]:
    driver = values.of("DW_AUTH_DRIVER", AuthDriver)
    if usable_secrets(values).keys() - {VIEWERS}:
        return
    if driver is AuthDriver.SIGNATURE:
        yield CheckError(
            "DW_AUTH_DRIVER", f"DW_AUTH_DRIVER=signature needs a key: set {', '.join(SIGNATURE_KEYS[:3])}"
        )
    elif driver is AuthDriver.TOKEN:
        yield CheckWarning(
            "DW_AUTH_DRIVER",
            f"no token is set, so every authenticated request is refused: set {', '.join(TOKENS[:3])}",
        )


def _secrets_are_used(values: SettingValues) -> Iterator[CheckResult]:
    driver = values.of("DW_AUTH_DRIVER", AuthDriver)
    for name in (*TOKENS, VIEWERS, *SIGNATURE_KEYS):
        if not values.is_set(name):
            continue
        if name not in _BY_DRIVER[driver]:
            yield CheckWarning(name, f"{name} is not used: DW_AUTH_DRIVER is {driver}")
        elif not _is_accepted(name, values):
            yield CheckWarning(name, f"{name} is not used: DW_AUTH_BACKWARD_COMPATIBLE is false")


def _credentials_stay_private(values: SettingValues) -> Iterator[CheckResult]:
    """A token, or a signature over the body alone, can be replayed by anyone who intercepts it."""
    driver = values.of("DW_AUTH_DRIVER", AuthDriver)
    profile = values.of("DW_SIGNATURE_PROFILE", SignatureProfile)
    replayable = driver is AuthDriver.TOKEN or (
        driver is AuthDriver.SIGNATURE and profile is SignatureProfile.BODY
    )
    host = values.of("DW_HOST", str)
    if not replayable or is_loopback(host) or values.of("DW_TRUSTED_PROXIES", tuple):
        return
    if values.of("DW_INSECURE_HTTP", bool):
        yield CheckWarning(
            "DW_INSECURE_HTTP", f"credentials travel in the clear to {host}: DW_INSECURE_HTTP is true"
        )
    else:
        yield CheckError(
            "DW_HOST",
            f"DW_HOST {host} is not loopback, and credentials would travel in the clear: put a TLS proxy in"
            " front and name it in DW_TRUSTED_PROXIES, or accept it with DW_INSECURE_HTTP=true",
        )


def _signatures_cover_all(values: SettingValues) -> Iterator[CheckResult]:
    is_signature = values.of("DW_AUTH_DRIVER", AuthDriver) is AuthDriver.SIGNATURE
    if is_signature and values.of("DW_SIGNATURE_PROFILE", SignatureProfile) is SignatureProfile.BODY:
        yield CheckWarning(
            "DW_SIGNATURE_PROFILE",
            "DW_SIGNATURE_PROFILE=body signs neither path nor namespace and can be replayed: prefer penstock",
        )


def _hosts_are_named(values: SettingValues) -> Iterator[CheckResult]:
    if not is_loopback(values.of("DW_HOST", str)) and not values.of("DW_ALLOWED_HOSTS", tuple):
        yield CheckWarning(
            "DW_ALLOWED_HOSTS", "DW_ALLOWED_HOSTS is not set, so every Host header is answered"
        )


def _workers_outlive_polls(values: SettingValues) -> Iterator[CheckResult]:
    stale, poll = (
        values.of(name, int) for name in ("DW_WORKER_STALE_AFTER_SECONDS", "DW_WORKER_POLL_TIMEOUT")
    )
    if stale <= poll:
        yield CheckWarning(
            "DW_WORKER_STALE_AFTER_SECONDS",
            f"DW_WORKER_STALE_AFTER_SECONDS ({stale}) is not longer than DW_WORKER_POLL_TIMEOUT ({poll}):"
            " an idle worker will look stale while it polls",
        )


def _memos_fit(values: SettingValues) -> Iterator[CheckResult]:
    memo, payload = (values.of(name, int) for name in ("DW_MAX_MEMO_BYTES", "DW_MAX_PAYLOAD_BYTES"))
    if memo > payload:
        yield CheckWarning(
            "DW_MAX_MEMO_BYTES",
            f"DW_MAX_MEMO_BYTES ({memo}) is never reached: DW_MAX_PAYLOAD_BYTES ({payload}) is smaller",
        )


def _redis_is_named(values: SettingValues) -> Iterator[CheckResult]:
    kind = values.of("DW_COORDINATION", CoordinationKind)
    is_named = values.is_set("DW_REDIS_URL")
    if kind is CoordinationKind.REDIS and not is_named:
        yield CheckError(
            "DW_COORDINATION",
            "DW_COORDINATION=redis needs DW_REDIS_URL, as in redis://127.0.0.1:6379/0",
        )
    elif is_named and kind is not CoordinationKind.REDIS:
        yield CheckError(
            "DW_REDIS_URL",
            f"DW_REDIS_URL is set and DW_COORDINATION is {kind}, so that Redis would not be used:"
            " set DW_COORDINATION=redis, or remove DW_REDIS_URL",
        )


def _coordination_reaches_all_servers(values: SettingValues) -> Iterator[CheckResult]:
    kind = values.of("DW_COORDINATION", CoordinationKind)
    is_shared = values.of("DW_DATABASE_URL", StoreLocation).kind is StoreKind.POSTGRES
    if kind is CoordinationKind.MEMORY and is_shared:
        yield CheckError(
            "DW_COORDINATION",
            "DW_COORDINATION=memory reaches one server only, and any number of servers may share PostgreSQL:"
            " set DW_COORDINATION=database (or auto), or redis; a single server loses nothing by it",
        )
    elif kind is CoordinationKind.REDIS and not is_shared:
        yield CheckWarning(
            "DW_COORDINATION",
            "DW_COORDINATION=redis with a store of one server: Redis is asked for locks that no other server uses,"
            " and queries wait for it; auto is enough here",
        )


def _processes_share_a_database(values: SettingValues) -> Iterator[CheckResult]:
    count = values.of("DW_SERVER_PROCESSES", int)
    if count > 1 and values.of("DW_DATABASE_URL", StoreLocation).kind is not StoreKind.POSTGRES:
        yield CheckError(
            "DW_SERVER_PROCESSES",
            f"DW_SERVER_PROCESSES={count} needs PostgreSQL in DW_DATABASE_URL: an SQLite file is served by one process",
        )


_AUTH = ("DW_AUTH_DRIVER", "DW_AUTH_BACKWARD_COMPATIBLE")
_RULES: tuple[tuple[tuple[str, ...], Callable[[SettingValues], Iterator[CheckResult]]], ...] = (
    (("DW_AUTH_DRIVER", "DW_HOST", "DW_TRUSTED_PROXIES"), _no_open_door),
    ((*_AUTH, "DW_HOST"), _secrets_are_strong),
    (_AUTH, _secrets_are_distinct),
    ((*_AUTH, *TOKENS, VIEWERS, *SIGNATURE_KEYS), _secrets_exist),
    (_AUTH, _secrets_are_used),
    (
        ("DW_AUTH_DRIVER", "DW_SIGNATURE_PROFILE", "DW_HOST", "DW_TRUSTED_PROXIES", "DW_INSECURE_HTTP"),
        _credentials_stay_private,
    ),
    (("DW_AUTH_DRIVER", "DW_SIGNATURE_PROFILE"), _signatures_cover_all),
    (("DW_HOST", "DW_ALLOWED_HOSTS"), _hosts_are_named),
    (("DW_WORKER_STALE_AFTER_SECONDS", "DW_WORKER_POLL_TIMEOUT"), _workers_outlive_polls),
    (("DW_MAX_MEMO_BYTES", "DW_MAX_PAYLOAD_BYTES"), _memos_fit),
    (("DW_COORDINATION", "DW_REDIS_URL"), _redis_is_named),
    (("DW_COORDINATION", "DW_DATABASE_URL"), _coordination_reaches_all_servers),
    (("DW_SERVER_PROCESSES", "DW_DATABASE_URL"), _processes_share_a_database),
)
