"""Who calls, and which namespace: authentication by the configured driver, and the check that a namespace exists.

Authentication comes first, so that no namespace is looked up for an unknown caller. Both are cheap for valid requests:
tokens are compared as digests, and an existing namespace is cached for `REMEMBER_MS`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol, assert_never
from urllib.parse import unquote_plus

from penstock.core.external_payloads import StoragePolicy
from penstock.core.permissions import (
    ANYBODY,
    AuthDriver,
    AuthPolicy,
    Credential,
    Principal,
    SignatureProfile,
    credentials,
)
from penstock.engine.context import EngineContext
from penstock.engine.operations import namespaces
from penstock.engine.payloads.policy import policy_of
from penstock.errors import Exhausted, InvalidInput, PenstockError, Reason, Unauthenticated, Unavailable
from penstock.ports.clock import Clock
from penstock.server.auth.signatures import (
    AuthRequest,
    BodySignatureDriver,
    RegisterNonce,
    RequestSignatureDriver,
)
from penstock.server.auth.throttle import FailureThrottle

REMEMBER_MS: Final = 1_000
"""How long a namespace that exists is cached; one that does not exist is looked up each time."""
BELIEVE_MS: Final = 600_000
"""How long a namespace is believed to exist while the store is unavailable, so that the operation itself fails: its
error has details that this check does not know, such as the task of a report or the status of a poll."""
_NAME_MAX: Final = 128
_NAMESPACES_CACHED_MAX: Final = 10_000
_SECRET_PARAMETERS: Final = frozenset({"access_token", "api_key", "authorization", "token"})


class Driver(Protocol):
    """One way to authenticate a request; its credential is in `header`."""

    header: str

    async def authenticate(self, auth_request: AuthRequest) -> Principal: ...


class Authenticator:
    """Authenticates requests and throttles addresses that fail too often."""

    def __init__(
        self, policy: AuthPolicy, *, register_nonce: RegisterNonce, throttle: FailureThrottle | None = None
    ) -> None:
        self._driver = _driver(policy, register_nonce)
        self._throttle = throttle or FailureThrottle()

    async def authenticate(self, auth_request: AuthRequest, address: str) -> Principal:
        """The principal behind the request that came from `address`.

        Raises `InvalidInput` for a credential in the URL, `Unauthenticated`, or `Exhausted` in its place when
        the address has failed too often; `server_error` when no credential is configured.
        """
        if auth_request.raw_query:
            _refuse_secrets_in_url(auth_request.raw_query)
        try:
            return await self._driver.authenticate(auth_request)
        except Unauthenticated as error:
            self.refuse(error, address, auth_request.now_ms)

    def has_credential(self, auth_request: AuthRequest) -> bool:
        """Whether the request presents a credential of this server, valid or not."""
        return self._driver.header in auth_request.headers

    def refuse(self, error: Unauthenticated, address: str, now_ms: int) -> NoReturn:
        """Count a failure of the address. Raises `error`, or `Exhausted` if the address has failed too often."""
        wait_ms = self._throttle.record_failure(address, now_ms)
        if not wait_ms:
            raise error
        seconds = -(-wait_ms // 1000)
        raise Exhausted(
            Reason.TOO_MANY_AUTH_FAILURES,
            f"Too many requests from this address failed to authenticate. Wait {seconds} s.",
            retry_after_seconds=seconds,
        )


def _refuse_secrets_in_url(raw_query: str) -> None:
    """Raise `InvalidInput` (`token_in_url`) if the query contains a credential, valid or not.

    URLs end up in logs, browser histories and referrers, so such a secret must be treated as leaked.
    """
    for pair in raw_query.replace(";", "&").split("&"):
        name = unquote_plus(pair.partition("=")[0]).strip().lower()
        if name in _SECRET_PARAMETERS:
            raise InvalidInput(
                Reason.TOKEN_IN_URL,
                f"The query parameter {name} puts a secret into the URL, which is logged. "
                "Send credentials in a header, and replace this one.",
                parameter=name,
            )


class _TokenDriver:
    """Bearer tokens. Compares digests, always all of them, so that timing reveals nothing about the tokens."""

    header = "authorization"

    def __init__(self, known: Sequence[Credential]) -> None:
        self._known = tuple(
            (hashlib.sha256(each.secret.encode("utf-8", "surrogateescape")).digest(), each.principal)
            for each in known
        )

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        """The principal of the first credential that matches; raises `Unauthenticated`."""
        scheme, _, token = auth_request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated(Reason.UNAUTHORIZED, "Send a credential: Authorization: Bearer <token>.")
        try:
            presented = hashlib.sha256(token.encode("latin-1")).digest()
        except UnicodeEncodeError:
            presented = b""  # header text is decoded as Latin-1, so this was not sent and matches no token
        found: Principal | None = None
        for digest, principal in self._known:
            if hmac.compare_digest(digest, presented) and found is None:
                found = principal
        if found is None:
            raise Unauthenticated(Reason.UNAUTHORIZED, "The bearer token is not valid on this server.")
        return found


class _NoAuthentication:
    """No authentication, for a trusted loopback interface only."""

    header = "authorization"

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        return ANYBODY


class _NoCredentials:
    """Rejects every request: the driver has no credentials configured."""

    header = "authorization"

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        raise PenstockError(
            Reason.SERVER_ERROR,
            "The server has no credential configured for its authentication driver. "
            "Set a token or signature key for at least one role.",
        )


def _driver(policy: AuthPolicy, register_nonce: RegisterNonce) -> Driver:
    if policy.driver is AuthDriver.NONE:
        return _NoAuthentication()
    known = credentials(policy)
    if not known:
        return _NoCredentials()
    if policy.driver is AuthDriver.TOKEN:
        return _TokenDriver(known)
    match policy.signature_profile:
        case SignatureProfile.BODY:
            return BodySignatureDriver(known)
        case SignatureProfile.PENSTOCK:
            return RequestSignatureDriver(known, register_nonce, window_ms=policy.signature_window_ms)
        case _:
            assert_never(policy.signature_profile)


def is_namespace_name(text: str) -> bool:
    """Whether the text can be a name at all; others are not looked up in the database."""
    return len(text) <= _NAME_MAX and text.isprintable()


class NamespaceCheck:
    """Caches which namespaces exist."""

    def __init__(self, ctx: EngineContext, clock: Clock) -> None:
        self._ctx = ctx
        self._clock = clock
        self._fresh_until_ms: dict[str, int] = {}
        self._policies: dict[str, StoragePolicy | None] = {}

    async def require(self, name: str) -> None:
        """Raise `NotFound` (`namespace_not_found`) unless the namespace exists."""
        now_ms = self._clock.now_ms()
        fresh_until_ms = self._fresh_until_ms.get(name, 0)
        if fresh_until_ms > now_ms:
            return
        try:
            found = await namespaces.find(self._ctx, name) if is_namespace_name(name) else None
        except Unavailable:
            if fresh_until_ms and fresh_until_ms + BELIEVE_MS > now_ms:
                return
            raise
        if found is None:
            self._fresh_until_ms.pop(name, None)
            raise namespaces.not_found(name[:_NAME_MAX])
        if len(self._fresh_until_ms) > _NAMESPACES_CACHED_MAX:
            self._fresh_until_ms.clear()
            self._policies.clear()
        self._fresh_until_ms[name] = now_ms + REMEMBER_MS
        self._policies[name] = policy_of(found)

    def storage_policy(self, name: str) -> StoragePolicy | None:
        """The external storage policy of a namespace that `require` has found."""
        return self._policies.get(name)
