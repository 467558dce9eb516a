"""Receives signed webhooks: verifies the signature of a declared adapter, and maps the body to the contract's envelope.

A request is taken for a webhook if its path names a declared adapter, and it either has the signature header of that
adapter or presents no credential of this server. Every other request is an ordinary one: an operator may send an event
in the contract's envelope through a declared adapter too, with a credential.

The signature replaces the credential and the version header, and the declaration replaces the namespace header, so that
systems which know nothing of this server can call it. What a caller may do with the secret of an adapter is exactly
what the routes of that adapter say. Failures count against the caller's address like those of other credentials.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.bridges.mappings import MappingError
from penstock.core.bridges.signatures import Refusal, SignedDelivery, body_key, verify
from penstock.core.permissions import Principal, Role
from penstock.errors import InvalidInput, Reason, Unauthenticated
from penstock.server.auth.access import Authenticator
from penstock.server.auth.signatures import AuthRequest
from penstock.settings import DeclaredAdapter

_REASONS: Final = {
    Refusal.UNSIGNED: Reason.SIGNATURE_MISSING,
    Refusal.MALFORMED: Reason.SIGNATURE_INVALID,
    Refusal.MISMATCH: Reason.SIGNATURE_INVALID,
    Refusal.STALE: Reason.SIGNATURE_STALE,
}
_MESSAGES: Final = {
    Refusal.UNSIGNED: "The request has no signature of the adapter: send the header {header}.",
    Refusal.MALFORMED: "The header {header}, or one that belongs to it, is not in the form that the adapter expects.",
    Refusal.MISMATCH: "The signature does not match the body under any secret of the adapter.",
    Refusal.STALE: "The signature's timestamp is too far from the server's clock: the event was delayed or replayed.",
}


@dataclass(frozen=True, slots=True)
class VerifiedWebhook:
    """A webhook whose signature is valid, with its event in the contract's envelope."""

    principal: Principal
    namespace: str | None
    """None: the server's default namespace."""
    document: dict[str, Any]


class WebhookReceiver:
    """Verifies and maps the webhooks of the declared adapters."""

    def __init__(self, adapters: Iterable[DeclaredAdapter], authenticator: Authenticator) -> None:
        self._adapters = {each.name: (each, each.signing_keys()) for each in adapters}
        self._authenticator = authenticator

    def receive(
        self, name: str, auth_request: AuthRequest, document: object, address: str
    ) -> VerifiedWebhook | None:
        """The verified webhook; None if the request is not one and must be authenticated by a credential.

        Args:
            name: The adapter that the path names.
            auth_request: The request as it was received.
            document: Its body as JSON.
            address: Where it comes from, for throttling.

        Raises `Unauthenticated`, `Exhausted` in its place when the address has failed too often, and `InvalidInput`
        for a body that is too large, that no route is for, or in which the mapping finds no value.
        """
        if name not in self._adapters:
            return None
        adapter, keys = self._adapters[name]
        headers = auth_request.headers
        if adapter.signature_header not in headers and self._authenticator.has_credential(auth_request):
            return None
        if len(auth_request.body) > adapter.bytes_max:
            message = f"The body exceeds the {adapter.bytes_max} bytes of this adapter."
            raise InvalidInput(Reason.PAYLOAD_TOO_LARGE, message, limit=adapter.bytes_max)
        verified = verify(
            adapter.scheme, headers, auth_request.body, keys, adapter.tolerance_ms, auth_request.now_ms
        )
        if isinstance(verified, Refusal):
            message = _MESSAGES[verified].format(header=adapter.signature_header)
            self._authenticator.refuse(
                Unauthenticated(_REASONS[verified], message), address, auth_request.now_ms
            )
        principal = Principal(f"webhook:{name}", Role.OPERATOR, frozenset({Role.OPERATOR}))
        mapped = _mapped(adapter, verified, document, auth_request.body)
        return VerifiedWebhook(principal, adapter.namespace, mapped)


def _mapped(adapter: DeclaredAdapter, delivery: SignedDelivery, event: object, body: bytes) -> dict[str, Any]:
    route = next((each for each in adapter.routes if each.matches(event)), None)
    if route is None:
        raise InvalidInput(
            Reason.UNSUPPORTED_ROUTING,
            f"No route of the adapter {adapter.name!r} is for this event. Declare one, or do not send such events.",
        )
    try:
        key = delivery.event_id or body_key(body)
        if adapter.idempotency_key is not None:
            key = adapter.idempotency_key.rendered(event)
        return {"idempotency_key": key, **route.command(event)}
    except MappingError as error:
        raise InvalidInput(
            Reason.MAPPING_VALUE_MISSING,
            f"The mapping of the adapter {adapter.name!r} does not fit this event: {error}.",
        ) from None
