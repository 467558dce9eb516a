"""Authentication: from the credentials of a request to its `Principal`."""

from __future__ import annotations

from penstock.server.auth.auth_request import AuthRequest, fold_headers
from penstock.server.auth.drivers import Authenticator
from penstock.server.auth.signatures import RegisterNonce
from penstock.server.auth.throttle import FailureThrottle

__all__ = ["AuthRequest", "Authenticator", "FailureThrottle", "RegisterNonce", "fold_headers"]
