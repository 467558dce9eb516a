"""Who caused an event, as the event records it.

A principal is taken from the credential that authenticated the request, never from its body or from headers that a
caller may set. It is stored in the payload of the few events that a caller causes, and shown beside the payload. An
event without one was caused by the server itself, by workflow code, or before principals were recorded.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from penstock.core.permissions import AuthDriver, Principal

PRINCIPAL: Final = "principal"
"""The key in a stored payload."""
_WEBHOOK: Final = "webhook:"


class Caller(Struct, frozen=True):
    """The principal of a request: how it was authenticated, and as what."""

    type: str
    id: str


ANONYMOUS: Final = Caller("server", "anonymous")
"""The caller of a server without authentication."""


def caller_of(principal: Principal, driver: AuthDriver) -> Caller:
    """The caller behind an authenticated principal."""
    if principal.credential.startswith(_WEBHOOK):
        return Caller("auth:webhook", principal.credential.removeprefix(_WEBHOOK))
    if driver is AuthDriver.NONE:
        return ANONYMOUS
    return Caller(f"auth:{driver.value}", principal.credential)


def caused_by(caller: Caller | None) -> dict[str, Any]:
    """The field that attributes an event to its caller; nothing if there is none."""
    return {} if caller is None else {PRINCIPAL: {"type": caller.type, "id": caller.id}}
