"""Authentication by bearer token."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from penstock.core.permissions import Credential, Principal
from penstock.errors import Reason, Unauthenticated
from penstock.server.auth.auth_request import AuthRequest


class TokenDriver:
    """Compares digests, always all of them, so that timing reveals nothing about the tokens."""

    def __init__(self, credentials: Sequence[Credential]) -> None:
        self._known = tuple(
            (_digest(known.secret.encode("utf-8", "surrogateescape")), known.principal)
            for known in credentials
        )

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        """The principal of the first credential that matches; raises `Unauthenticated`."""
        presented = _digest(_bearer_token(auth_request.headers.get("authorization", "")))
        found: Principal | None = None
        for digest, principal in self._known:
            if hmac.compare_digest(digest, presented) and found is None:
                found = principal
        if found is None:
            raise _unknown()
        return found


def _bearer_token(header: str) -> bytes:
    """The bytes of the token as sent (header text is decoded as Latin-1)."""
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated(Reason.UNAUTHORIZED, "Send a credential: Authorization: Bearer <token>.")
    try:
        return token.encode("latin-1")
    except UnicodeEncodeError:
        raise _unknown() from None


def _unknown() -> Unauthenticated:
    return Unauthenticated(Reason.UNAUTHORIZED, "The bearer token is not valid on this server.")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
