"""Authentication by request signature (HMAC), which proves possession of a key without sending it.

Two profiles. `penstock` covers the whole request, a timestamp and a nonce, so that a captured request cannot be
replayed. `body` is the HMAC of the body alone, from the older contract: it can be replayed and sent to another path,
and is used only by deployments that configure it.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

from penstock.core.permissions import Credential, Principal
from penstock.errors import InvalidInput, PenstockError, Reason, Unauthenticated, Unavailable
from penstock.wire.signatures import HEADER, SignatureHeader, SignedRequest, proof, read_header

RegisterNonce = Callable[[str, str, int], Awaitable[bool]]
"""`(key id, nonce, expires_at_ms) -> True` the first time, False after that; shared by all servers."""

_BODY_SHAPE: Final = re.compile(r"[0-9a-f]{64}")
_ERROR_DETAILS: Final = {"authentication": "signature", "signature_profile": "body"}
"""Details of the error, so that clients can tell which credential is expected."""
_AMBIGUOUS_PATH: Final = re.compile(r"//|\\|#|%00")


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """The parts of a request that authentication needs. Path and query are raw text, header names are lower-case."""

    method: str
    raw_path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes
    now_ms: int


class BodySignatureDriver:
    """`X-Signature`: lower-case hex HMAC-SHA256 of the raw body, under any known key."""

    header = "x-signature"

    def __init__(self, credentials: Sequence[Credential]) -> None:
        self._known = tuple(
            (known.secret.encode("utf-8", "surrogateescape"), known.principal) for known in credentials
        )

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        """The principal of the first key that matches; raises `Unauthenticated`."""
        presented = auth_request.headers.get("x-signature", "")
        if not _BODY_SHAPE.fullmatch(presented):
            raise Unauthenticated(
                Reason.UNAUTHORIZED,
                "This server requires signed requests. Send X-Signature: the lower-case hex HMAC-SHA256 of the body.",
                **_ERROR_DETAILS,
            )
        found: Principal | None = None
        for key, principal in self._known:
            expected = hmac.digest(key, auth_request.body, "sha256").hex()
            if hmac.compare_digest(expected, presented) and found is None:
                found = principal
        if found is None:
            raise Unauthenticated(
                Reason.UNAUTHORIZED, "The signature does not match any key of this server.", **_ERROR_DETAILS
            )
        return found


class RequestSignatureDriver:
    """`X-Penstock-Signature`: covers the whole request, a timestamp and a nonce, under a named key."""

    header = HEADER

    def __init__(
        self, credentials: Sequence[Credential], register_nonce: RegisterNonce, *, window_ms: int
    ) -> None:
        self._known = {known.principal.credential: known for known in credentials}
        self._register_nonce = register_nonce
        self._window_ms = window_ms
        self._decoy_key = secrets.token_hex(32)

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        """The principal of the key that signed this request.

        Raises `Unauthenticated` (`signature_stale`, `signature_replayed`, `signature_invalid`) with the
        server's time, `InvalidInput` for an ambiguous path, `Unavailable` if the nonce cannot be recorded.
        """
        value = auth_request.headers.get(HEADER)
        if value is None:
            raise Unauthenticated(
                Reason.UNAUTHORIZED,
                "This server requires signed requests. Send X-Penstock-Signature with the request.",
                authentication="signature",
                signature_profile="penstock",
            )
        _check_path(auth_request.raw_path)
        header = read_header(value)
        if header is None:
            raise _refused(
                Reason.SIGNATURE_INVALID, "The signature header is malformed.", auth_request.now_ms
            )
        if abs(auth_request.now_ms - header.created * 1000) > self._window_ms:
            raise _refused(
                Reason.SIGNATURE_STALE,
                "The timestamp of the signature is too far from the server's clock: check the clock of the client.",
                auth_request.now_ms,
            )
        principal = self._verified(header, auth_request)
        await self._spend_nonce(header, auth_request.now_ms)
        return principal

    def _verified(self, header: SignatureHeader, auth_request: AuthRequest) -> Principal:
        known = self._known.get(header.key_id)
        secret = self._decoy_key if known is None else known.secret
        try:
            expected = proof(_signed_part(auth_request), secret, header.key_id, header.created, header.nonce)
        except ValueError:
            expected = ""
        if not hmac.compare_digest(expected, header.proof) or known is None:
            raise _refused(
                Reason.SIGNATURE_INVALID, "The signature does not match this request.", auth_request.now_ms
            )
        return known.principal

    async def _spend_nonce(self, header: SignatureHeader, now_ms: int) -> None:
        """Record the nonce of a verified signature, so that unauthenticated callers cannot fill the table.

        A nonce is stored one window longer than its signature is valid, to allow for clock skew.
        """
        expires_at_ms = header.created * 1000 + 2 * self._window_ms
        try:
            first_time = await self._register_nonce(header.key_id, header.nonce, expires_at_ms)
        except PenstockError:
            raise
        except Exception as failure:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "The nonce of the signature could not be recorded, so the request was rejected.",
            ) from failure
        if not first_time:
            raise _refused(
                Reason.SIGNATURE_REPLAYED,
                "This signature was used before: sign each attempt with a new nonce.",
                now_ms,
            )


def _signed_part(auth_request: AuthRequest) -> SignedRequest:
    headers = auth_request.headers
    return SignedRequest(
        method=auth_request.method,
        raw_path=auth_request.raw_path,
        raw_query=auth_request.raw_query,
        host=headers.get("host", ""),
        namespace=headers.get("x-namespace", ""),
        content_type=headers.get("content-type", ""),
        content_encoding=headers.get("content-encoding", ""),
        body=auth_request.body,
    )


def _check_path(raw_path: str) -> None:
    """Reject paths that proxies normalise: empty and dot segments.

    An encoded slash is part of its segment, such as an id: routing uses the path as it was sent and signed.
    """
    if _AMBIGUOUS_PATH.search(raw_path) or any(unquote(part) in (".", "..") for part in raw_path.split("/")):
        raise InvalidInput(
            Reason.MALFORMED_REQUEST,
            "A signed request needs a plain path: no '//', no '.' or '..' segments.",
        )


def _refused(reason: Reason, message: str, now_ms: int) -> Unauthenticated:
    server_time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return Unauthenticated(reason, message, server_time=server_time.replace("+00:00", "Z"))
