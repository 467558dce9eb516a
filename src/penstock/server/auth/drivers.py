"""Chooses the authentication driver that the settings configure."""

from __future__ import annotations

from typing import Protocol, assert_never

from penstock.core.permissions import (
    ANYBODY,
    AuthDriver,
    AuthPolicy,
    Principal,
    SignatureProfile,
    credentials,
)
from penstock.errors import Exhausted, PenstockError, Reason, Unauthenticated
from penstock.server.auth.auth_request import AuthRequest, refuse_secrets_in_url
from penstock.server.auth.signatures import BodySignatureDriver, RegisterNonce, RequestSignatureDriver
from penstock.server.auth.throttle import FailureThrottle
from penstock.server.auth.tokens import TokenDriver


class Driver(Protocol):
    """One way to authenticate a request."""

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
        refuse_secrets_in_url(auth_request.raw_query)
        try:
            return await self._driver.authenticate(auth_request)
        except Unauthenticated:
            wait_ms = self._throttle.record_failure(address, auth_request.now_ms)
            if not wait_ms:
                raise
        seconds = -(-wait_ms // 1000)
        raise Exhausted(
            Reason.TOO_MANY_AUTH_FAILURES,
            f"Too many requests from this address failed to authenticate. Wait {seconds} s.",
            retry_after_seconds=seconds,
        )


class _NoAuthentication:
    """No authentication, for a trusted loopback interface only."""

    async def authenticate(self, auth_request: AuthRequest) -> Principal:
        return ANYBODY


class _NoCredentials:
    """Rejects every request: the driver has no credentials configured."""

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
        return TokenDriver(known)
    match policy.signature_profile:
        case SignatureProfile.BODY:
            return BodySignatureDriver(known)
        case SignatureProfile.PENSTOCK:
            return RequestSignatureDriver(known, register_nonce, window_ms=policy.signature_window_ms)
        case _:
            assert_never(policy.signature_profile)
