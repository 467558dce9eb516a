"""Authentication: from the credentials of a request to its `Principal`."""

from __future__ import annotations

from penstock.server.auth.access import Authenticator, NamespaceCheck
from penstock.server.auth.signatures import AuthRequest, RegisterNonce
from penstock.server.auth.throttle import FailureThrottle

__all__ = ["AuthRequest", "Authenticator", "FailureThrottle", "NamespaceCheck", "RegisterNonce"]
