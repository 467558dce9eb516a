"""Integrity of exported histories: a canonical form with a checksum and an optional signature."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, Final

CANONICALIZATION: Final = "json-recursive-ksort-v1"
CHECKSUM: Final = "sha256"
SIGNATURE: Final = "hmac-sha256"
_KEY_NAME: Final = b"penstock history export"
_KEY_NAME_DIGITS: Final = 16


def canonical(value: Any) -> bytes:
    """The canonical JSON text of a value: sorted keys at every depth, no spaces, minimal escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def key_name(key: str) -> str:
    """A public identifier of a signing key."""
    return hmac.new(key.encode(), _KEY_NAME, hashlib.sha256).hexdigest()[:_KEY_NAME_DIGITS]


class Seal:
    """An incremental checksum of a canonical text, and a signature if there is a key."""

    def __init__(self, key: str | None = None) -> None:
        self._sum = hashlib.sha256()
        self._key_name = None if key is None else key_name(key)
        self._mark = None if key is None else hmac.new(key.encode(), digestmod=hashlib.sha256)

    def add(self, part: bytes) -> None:
        self._sum.update(part)
        if self._mark is not None:
            self._mark.update(part)

    @property
    def checksum(self) -> str:
        return self._sum.hexdigest()

    def block(self) -> dict[str, str | None]:
        """The integrity fields of the export."""
        return {
            "canonicalization": CANONICALIZATION,
            "checksum_algorithm": CHECKSUM,
            "checksum": self.checksum,
            "signature_algorithm": None if self._mark is None else SIGNATURE,
            "signature": None if self._mark is None else self._mark.hexdigest(),
            "key_id": self._key_name,
        }
