"""Signatures of webhooks: what each scheme signs, and whether a delivery is authentic and recent.

Every scheme is an HMAC-SHA256 under a secret that both sides know:

| scheme     | headers                                               | signed text               | time |
|------------|-------------------------------------------------------|---------------------------|------|
| `standard` | webhook-id, webhook-timestamp, webhook-signature      | `id.timestamp.body`       | yes  |
| `stripe`   | stripe-signature: t=…,v1=…                            | `timestamp.body`          | yes  |
| `github`   | x-hub-signature-256: sha256=…                         | `body`                    | no   |

Verification computes the HMAC under every secret of the adapter and compares it with every signature of the delivery,
each in constant time and all of them, so that timing reveals neither a signature nor which secret matched. Several
secrets exist while one is replaced; several signatures are sent while the other side replaces its own.

The time is compared only after the HMAC: until then the timestamp is a claim of the caller. A delivery that is captured
and sent again is refused as too old, or, within the tolerance, is a repetition of an idempotency key. That key must
therefore be covered by the signature: it is taken from the body or, for `standard`, from webhook-id. A header that is
not signed, such as GitHub's delivery id, cannot be the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

SIGNATURES_MAX: Final = 8
"""Signatures of one delivery that are compared; more are refused."""
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_EVENT_ID: Final = re.compile(r"[!-~]{1,255}", re.ASCII)
_STANDARD_PREFIX: Final = "whsec_"


class SignatureScheme(StrEnum):
    """How the deliveries of an adapter are signed."""

    STANDARD = "standard"
    STRIPE = "stripe"
    GITHUB = "github"


SIGNATURE_HEADER: Final[Mapping[SignatureScheme, str]] = {
    SignatureScheme.STANDARD: "webhook-signature",
    SignatureScheme.STRIPE: "stripe-signature",
    SignatureScheme.GITHUB: "x-hub-signature-256",
}


class Refusal(StrEnum):
    """Why a delivery is not authentic."""

    UNSIGNED = "unsigned"
    MALFORMED = "malformed"
    MISMATCH = "mismatch"
    STALE = "stale"


class SignedDelivery(Struct, frozen=True):
    """The parts of a delivery that its signature covers, and the signatures that it presents."""

    content: bytes
    signatures: tuple[bytes, ...]
    signed_at_s: int | None = None
    """None: the scheme has no timestamp."""
    event_id: str | None = None
    """The id of the event, if the scheme signs one."""


def signing_key(scheme: SignatureScheme, secret: str) -> bytes:
    """The key of the HMAC. Raises `ValueError` if the secret does not have the form that the scheme prescribes."""
    if scheme is not SignatureScheme.STANDARD or not secret.startswith(_STANDARD_PREFIX):
        return secret.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(secret.removeprefix(_STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"begins with {_STANDARD_PREFIX} and is not base64 after it") from None


def verify(
    scheme: SignatureScheme,
    headers: Mapping[str, str],
    body: bytes,
    keys: Sequence[bytes],
    tolerance_ms: int,
    now_ms: int,
) -> SignedDelivery | Refusal:
    """The delivery if it is authentic and recent, else why it is not.

    Args:
        scheme: What is signed, and in which headers.
        headers: The headers of the request, by lower-case name.
        body: The body, byte for byte as it was received.
        keys: The keys that are in force; any of them may have signed.
        tolerance_ms: How far the timestamp may be from `now_ms`, in the past or in the future.
        now_ms: The time of this server.
    """
    if SIGNATURE_HEADER[scheme] not in headers:
        return Refusal.UNSIGNED
    delivery = _READERS[scheme](headers, body)
    if delivery is None:
        return Refusal.MALFORMED
    if not _is_authentic(delivery, keys):
        return Refusal.MISMATCH
    signed_at_s = delivery.signed_at_s
    if signed_at_s is not None and abs(now_ms - signed_at_s * 1000) > tolerance_ms:
        return Refusal.STALE
    return delivery


def body_key(body: bytes) -> str:
    """The idempotency key of a delivery whose scheme signs no id: a hash of the body."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _is_authentic(delivery: SignedDelivery, keys: Sequence[bytes]) -> bool:
    matched = False
    for key in keys:
        expected = hmac.digest(key, delivery.content, "sha256")
        for signature in delivery.signatures:
            matched |= hmac.compare_digest(expected, signature)
    return matched


def _standard(headers: Mapping[str, str], body: bytes) -> SignedDelivery | None:
    event_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not _EVENT_ID.fullmatch(event_id) or not _TIMESTAMP.fullmatch(timestamp):
        return None
    signatures: list[bytes] = []
    for each in headers["webhook-signature"].split():
        version, _, encoded = each.partition(",")
        if version == "v1":
            try:
                signatures.append(base64.b64decode(encoded, validate=True))
            except (binascii.Error, ValueError):
                return None
    content = f"{event_id}.{timestamp}.".encode() + body
    return _delivery(content, signatures, int(timestamp), event_id)


def _stripe(headers: Mapping[str, str], body: bytes) -> SignedDelivery | None:
    pairs = [part.strip().partition("=") for part in headers["stripe-signature"].split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1 or not _TIMESTAMP.fullmatch(times[0]):
        return None
    given = [value for name, _, value in pairs if name == "v1"]
    if not all(map(_HEX.fullmatch, given)):
        return None
    return _delivery(f"{times[0]}.".encode() + body, [bytes.fromhex(each) for each in given], int(times[0]))


def _github(headers: Mapping[str, str], body: bytes) -> SignedDelivery | None:
    name, _, value = headers["x-hub-signature-256"].partition("=")
    if name != "sha256" or not _HEX.fullmatch(value):
        return None
    return _delivery(body, [bytes.fromhex(value)])


def _delivery(
    content: bytes, signatures: list[bytes], signed_at_s: int | None = None, event_id: str | None = None
) -> SignedDelivery | None:
    if not 1 <= len(signatures) <= SIGNATURES_MAX:
        return None
    return SignedDelivery(content, tuple(signatures), signed_at_s, event_id)


_READERS: Final = {
    SignatureScheme.STANDARD: _standard,
    SignatureScheme.STRIPE: _stripe,
    SignatureScheme.GITHUB: _github,
}
