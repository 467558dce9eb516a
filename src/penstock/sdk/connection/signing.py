"""Request signatures: a client proves that it holds a key without sending it.

The counterpart of the server's signature driver (`DW_AUTH_DRIVER=signature`). Each attempt of a request is signed
anew, because a signature is valid once, within the server's window. What is signed and the format of the header are
defined in `penstock.wire.signatures` and in the authentication guide.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.core.permissions import SignatureProfile
from penstock.wire.signatures import HEADER, SignedRequest, sign

KEY_IDS: Final = ("worker", "operator", "admin", "shared")
KEY_VARIABLES: Final = {
    "DW_ADMIN_SIGNATURE_KEY": "admin",
    "DW_OPERATOR_SIGNATURE_KEY": "operator",
    "DW_SIGNATURE_KEY": "shared",
}
"""Environment variables of the client key, in order of precedence, and the id of each key."""
WORKER_KEY_VARIABLE: Final = "DW_WORKER_SIGNATURE_KEY"
PROFILE_VARIABLE: Final = "DW_SIGNATURE_PROFILE"
_BODY_HEADER: Final = "x-signature"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key with its id, and what is signed with it. The secret is left out of its repr."""

    key_id: str
    secret: str = field(repr=False)
    profile: SignatureProfile = SignatureProfile.PENSTOCK

    def __post_init__(self) -> None:
        if self.key_id not in KEY_IDS:
            raise ValueError(f"The id of a signature key is {', '.join(KEY_IDS)}; not {self.key_id!r}")
        if not self.secret or not self.secret.isprintable():
            raise ValueError("A signature key is one line of visible characters")

    @classmethod
    def parse(cls, text: str, key_id: str = "shared", profile: str | None = None) -> SigningKey:
        """Read `operator:secret`. Without an id, `key_id` applies."""
        named, found, secret = text.partition(":")
        chosen = _profile(profile)
        if found and named in KEY_IDS:
            return cls(named, secret, chosen)
        return cls(key_id, text, chosen)

    def headers(self, request: SignedRequest) -> dict[str, str]:
        """Return the header that authenticates this request now."""
        if self.profile is SignatureProfile.BODY:
            key = self.secret.encode("utf-8", "surrogateescape")
            return {_BODY_HEADER: hmac.digest(key, request.body, "sha256").hex()}
        created, nonce = int(time.time()), secrets.token_urlsafe(16)
        value = sign(request, secret=self.secret, key_id=self.key_id, created=created, nonce=nonce)
        return {HEADER: value}


def key_in(environment: Mapping[str, str]) -> str | None:
    """Return the client key of the environment as `id:secret`, if there is one."""
    for variable, key_id in KEY_VARIABLES.items():
        if secret := environment.get(variable, "").strip():
            return f"{key_id}:{secret}"
    return None


def _profile(text: str | None) -> SignatureProfile:
    try:
        return SignatureProfile.PENSTOCK if text is None else SignatureProfile(text.strip().lower())
    except ValueError:
        raise ValueError(f'signature_profile is "penstock" or "body", not {text!r}') from None
