"""A bridge adapter that the configuration declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.bridges.mappings import EventRoute, Template
from penstock.core.bridges.signatures import SIGNATURE_HEADER, SignatureScheme, signing_key
from penstock.settings.types.secret import Secret

TOLERANCE_S_DEFAULT: Final = 300
BYTES_DEFAULT: Final = 262_144


@dataclass(frozen=True, slots=True)
class DeclaredAdapter:
    """An adapter that accepts signed webhooks, and its mapping from their bodies to commands."""

    name: str
    scheme: SignatureScheme
    keys: tuple[Secret, ...]
    """The secrets in force, of which any may have signed."""
    references: tuple[str, ...]
    """Where the secrets come from, in the same order."""
    routes: tuple[EventRoute, ...]
    namespace: str | None = None
    """None: the server's default namespace."""
    tolerance_ms: int = TOLERANCE_S_DEFAULT * 1000
    bytes_max: int = BYTES_DEFAULT
    idempotency_key: Template | None = None
    """None: the signed id of the event, or a hash of the body."""

    @property
    def signature_header(self) -> str:
        return SIGNATURE_HEADER[self.scheme]

    def signing_keys(self) -> tuple[bytes, ...]:
        """The keys of the HMAC."""
        return tuple(signing_key(self.scheme, each.reveal()) for each in self.keys)
