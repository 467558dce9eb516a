"""Permissions: roles, the route families that each may use, and the role of each credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from penstock.errors import ConfigurationError, Forbidden, Reason

SIGNATURE_WINDOW_MS_MAX: Final = 300_000


class Role(StrEnum):
    """The role of a credential. No role implies another: admins are not workers, so leases stay attributable."""

    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"
    VIEWER = "viewer"
    """Signs in to the dashboard, and reads there what operators read, without payloads; the HTTP API refuses it."""


class Plane(StrEnum):
    """The two protocols; each has its own version header."""

    CONTROL = "control"
    WORKER = "worker"


class RouteFamily(StrEnum):
    """Routes with one access rule: roles, required version header, and whether a namespace must exist."""

    HEALTH = "health"
    DISCOVERY = "discovery"
    NAMESPACE_READS = "namespace_reads"
    NAMESPACE_CHANGES = "namespace_changes"
    NAMESPACE_LIMITS = "namespace_limits"
    STORAGE_TESTS = "storage_tests"
    EXTERNAL_PAYLOADS = "external_payloads"
    WORK = "work"
    WORKER_READS = "worker_reads"
    WORKER_REMOVAL = "worker_removal"
    SYSTEM = "system"
    WORKER_PROTOCOL = "worker_protocol"


@dataclass(frozen=True, slots=True)
class Access:
    """The access rule of a family. `roles` None: no credential is needed."""

    roles: frozenset[Role] | None
    plane: Plane | None
    namespaced: bool


_ANY_ROLE: Final = frozenset({Role.WORKER, Role.OPERATOR, Role.ADMIN})
_OPERATORS: Final = frozenset({Role.OPERATOR, Role.ADMIN})
_ADMINS: Final = frozenset({Role.ADMIN})
_WORKERS: Final = frozenset({Role.WORKER})

ACCESS: Final[Mapping[RouteFamily, Access]] = MappingProxyType(
    {
        RouteFamily.HEALTH: Access(None, None, namespaced=False),
        RouteFamily.DISCOVERY: Access(_ANY_ROLE, None, namespaced=False),
        RouteFamily.NAMESPACE_READS: Access(_OPERATORS, Plane.CONTROL, namespaced=False),
        RouteFamily.NAMESPACE_CHANGES: Access(_ADMINS, Plane.CONTROL, namespaced=False),
        RouteFamily.NAMESPACE_LIMITS: Access(_OPERATORS, Plane.CONTROL, namespaced=False),
        RouteFamily.STORAGE_TESTS: Access(_ADMINS, Plane.CONTROL, namespaced=True),
        RouteFamily.EXTERNAL_PAYLOADS: Access(_ANY_ROLE, None, namespaced=True),
        RouteFamily.WORK: Access(_OPERATORS, Plane.CONTROL, namespaced=True),
        RouteFamily.WORKER_READS: Access(_OPERATORS, Plane.CONTROL, namespaced=True),
        RouteFamily.WORKER_REMOVAL: Access(_ADMINS, Plane.CONTROL, namespaced=True),
        RouteFamily.SYSTEM: Access(_ADMINS, Plane.CONTROL, namespaced=True),
        RouteFamily.WORKER_PROTOCOL: Access(_WORKERS, Plane.WORKER, namespaced=True),
    }
)
"""`WORK`: workflows, activities, schedules, search attributes, task queues, budget groups, bridges, service
endpoints. `SYSTEM`: what concerns all namespaces: limits of the cluster, the journal."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller: its credential's public name, its role, and all roles it may act in."""

    credential: str
    role: Role
    acts_as: frozenset[Role]

    @classmethod
    def of(cls, role: Role) -> Principal:
        """The principal of a role's own credential."""
        return cls(role.value, role, frozenset({role}))


ANYBODY: Final = Principal("none", Role.ADMIN, _ANY_ROLE)
"""The principal of every request to a server without authentication."""


def authorize(principal: Principal, family: RouteFamily) -> None:
    """Raise `Forbidden` unless the principal may use the family; called before anything is read."""
    roles = ACCESS[family].roles
    if roles is not None and not principal.acts_as & roles:
        raise forbidden(principal, roles)


def forbidden(principal: Principal, roles: frozenset[Role]) -> Forbidden:
    """The error for a principal that has none of the roles."""
    allowed = [role.value for role in Role if role in roles]
    return Forbidden(
        Reason.FORBIDDEN,
        f"This route is open to {' and '.join(allowed)} credentials; yours is {principal.role.value}.",
        role=principal.role.value,
        allowed_roles=allowed,
    )


class AuthDriver(StrEnum):
    """How requests are authenticated."""

    NONE = "none"
    TOKEN = "token"
    SIGNATURE = "signature"


class SignatureProfile(StrEnum):
    """What a signature covers: the whole request, or only the body (older clients)."""

    PENSTOCK = "penstock"
    BODY = "body"


class Concealed(Protocol):
    """A secret that is hidden in representations and logs."""

    def reveal(self) -> str: ...


@dataclass(frozen=True, slots=True)
class AuthPolicy:
    """Authentication settings. Secrets are bearer tokens or signature keys, depending on the driver."""

    driver: AuthDriver
    worker_secret: str | Concealed | None = field(default=None, repr=False)
    operator_secret: str | Concealed | None = field(default=None, repr=False)
    admin_secret: str | Concealed | None = field(default=None, repr=False)
    viewer_secret: str | Concealed | None = field(default=None, repr=False)
    shared_secret: str | Concealed | None = field(default=None, repr=False)
    backward_compatible: bool = True
    signature_profile: SignatureProfile = SignatureProfile.PENSTOCK
    signature_window_ms: int = 60_000

    def __post_init__(self) -> None:
        if not 0 < self.signature_window_ms <= SIGNATURE_WINDOW_MS_MAX:
            raise ConfigurationError(
                f"the signature window must be over 0 and at most {SIGNATURE_WINDOW_MS_MAX // 1000} seconds"
            )


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret and the principal that it authenticates."""

    secret: str = field(repr=False)
    principal: Principal


def credentials(policy: AuthPolicy) -> tuple[Credential, ...]:
    """Every usable credential, in the order in which they are tried.

    The shared secret has all roles if there is no role secret, is an admin beside role secrets, and is ignored without
    backward compatibility. Empty secrets are ignored.
    """
    secrets = (
        (Role.WORKER, _text(policy.worker_secret)),
        (Role.OPERATOR, _text(policy.operator_secret)),
        (Role.ADMIN, _text(policy.admin_secret)),
    )
    by_role = tuple(Credential(secret, Principal.of(role)) for role, secret in secrets if secret)
    viewer = _text(policy.viewer_secret)
    viewers = (Credential(viewer, Principal.of(Role.VIEWER)),) if viewer else ()
    shared = _text(policy.shared_secret)
    if not shared or not policy.backward_compatible:
        return (*by_role, *viewers)
    acts_as = _ADMINS if by_role else _ANY_ROLE
    return (*by_role, *viewers, Credential(shared, Principal("shared", Role.ADMIN, acts_as)))


def _text(secret: str | Concealed | None) -> str:
    if secret is None:
        return ""
    return secret if isinstance(secret, str) else secret.reveal()
