"""Permissions: every role at every door, and whom each credential makes its bearer."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.core.permissions import (
    ACCESS,
    ANYBODY,
    AuthDriver,
    AuthPolicy,
    Plane,
    Principal,
    Role,
    RouteFamily,
    authorize,
    credentials,
)
from penstock.errors import Forbidden, Reason

OPEN = {
    RouteFamily.HEALTH: "worker operator admin",
    RouteFamily.DISCOVERY: "worker operator admin",
    RouteFamily.NAMESPACE_READS: "operator admin",
    RouteFamily.NAMESPACE_CHANGES: "admin",
    RouteFamily.NAMESPACE_LIMITS: "operator admin",
    RouteFamily.STORAGE_TESTS: "admin",
    RouteFamily.EXTERNAL_PAYLOADS: "worker operator admin",
    RouteFamily.WORK: "operator admin",
    RouteFamily.WORKER_READS: "operator admin",
    RouteFamily.WORKER_REMOVAL: "admin",
    RouteFamily.SYSTEM: "admin",
    RouteFamily.WORKER_PROTOCOL: "worker",
}


def test_every_family_has_a_rule_and_only_health_needs_no_credential() -> None:
    assert set(ACCESS) == set(RouteFamily) == set(OPEN)
    assert [family for family in RouteFamily if ACCESS[family].roles is None] == [RouteFamily.HEALTH]


@pytest.mark.parametrize(("family", "role"), list(product(RouteFamily, Role)))
def test_a_role_opens_the_doors_of_the_contract_and_no_other(family: RouteFamily, role: Role) -> None:
    if role in OPEN[family].split() or ACCESS[family].roles is None:
        authorize(Principal.of(role), family)
        return
    with pytest.raises(Forbidden) as refusal:
        authorize(Principal.of(role), family)
    assert refusal.value.reason is Reason.FORBIDDEN
    assert refusal.value.details == {"role": role.value, "allowed_roles": OPEN[family].split()}


@pytest.mark.parametrize("family", RouteFamily)
def test_a_server_without_authentication_opens_every_door(family: RouteFamily) -> None:
    authorize(ANYBODY, family)


def test_only_worker_routes_speak_the_worker_protocol() -> None:
    worker_plane = [family for family, access in ACCESS.items() if access.plane is Plane.WORKER]
    assert worker_plane == [RouteFamily.WORKER_PROTOCOL]


def test_a_shared_secret_beside_a_role_secret_cannot_open_worker_routes() -> None:
    policy = AuthPolicy(AuthDriver.TOKEN, operator_secret="operator-secret", shared_secret="shared-secret")
    shared = credentials(policy)[-1].principal
    authorize(shared, RouteFamily.SYSTEM)
    with pytest.raises(Forbidden):
        authorize(shared, RouteFamily.WORKER_PROTOCOL)


def test_credentials_are_tried_from_the_narrowest_role_to_the_shared_one() -> None:
    policy = AuthPolicy(
        AuthDriver.TOKEN, worker_secret="w", operator_secret="o", admin_secret="a", shared_secret="s"
    )
    assert [known.principal.credential for known in credentials(policy)] == [
        "worker",
        "operator",
        "admin",
        "shared",
    ]
