"""Penstock's request signature: the signed text and the header.

The signed text has a fixed number of lines in a fixed order. Nothing is optional and nothing is negotiated: an absent
header is signed as an empty line. The header is

    X-Penstock-Signature: keyid=operator;created=1767225600;nonce=<16-64 of A-Za-z0-9_->;v1=<hex HMAC-SHA256>
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from msgspec import Struct

HEADER: Final = "x-penstock-signature"
_VERSION: Final = "penstock-signature-v1"
_KEY_ID: Final = "worker|operator|admin|shared"
_HEADER_SHAPE: Final = re.compile(
    rf"keyid=({_KEY_ID});created=(0|[1-9][0-9]{{0,11}});nonce=([A-Za-z0-9_-]{{16,64}});v1=([0-9a-f]{{64}})"
)
_NOT_IN_A_LINE: Final = re.compile(r"[\x00-\x1f\x7f]")


class SignedRequest(Struct, frozen=True):
    """The parts of a request that a signature covers, exactly as sent.

    `raw_path` and `raw_query` are not decoded. `host`, `namespace`, `content_type` and `content_encoding`
    are the values of those headers, empty where the request has none.
    """

    method: str
    raw_path: str
    raw_query: str
    host: str
    namespace: str
    content_type: str
    content_encoding: str
    body: bytes


class SignatureHeader(Struct, frozen=True):
    """The parsed header: key id, creation time (Unix seconds), nonce and HMAC."""

    key_id: str
    created: int
    nonce: str
    proof: str

    def render(self) -> str:
        """The header's value."""
        return f"keyid={self.key_id};created={self.created};nonce={self.nonce};v1={self.proof}"


def sign(request: SignedRequest, *, secret: str, key_id: str, created: int, nonce: str) -> str:
    """The value of the signature header. Each retry needs a new signature with a new nonce.

    Raises `ValueError` if a part cannot be signed, such as a path with a line break or a nonce too short.
    """
    value = SignatureHeader(key_id, created, nonce, proof(request, secret, key_id, created, nonce)).render()
    if read_header(value) is None:
        raise ValueError(f"keyid must be one of {_KEY_ID}, and nonce 16 to 64 letters, digits, - or _")
    return value


def read_header(value: str) -> SignatureHeader | None:
    """Parse the header; None if it deviates from the format in any way."""
    parts = _HEADER_SHAPE.fullmatch(value)
    if parts is None:
        return None
    key_id, created, nonce, signature = parts.groups()
    return SignatureHeader(key_id, int(created), nonce, signature)


def proof(request: SignedRequest, secret: str, key_id: str, created: int, nonce: str) -> str:
    """The HMAC-SHA256 over the request, in lower-case hex. Raises `ValueError` on a line break in a part."""
    lines = (
        _VERSION,
        key_id,
        request.method,
        request.host.lower(),
        request.raw_path,
        request.raw_query,
        request.namespace.lower(),
        str(created),
        nonce,
        hashlib.sha256(request.body).hexdigest(),
        request.content_type,
        request.content_encoding,
    )
    if any(_NOT_IN_A_LINE.search(line) for line in lines):
        raise ValueError("a part of the request contains a control character and cannot be signed")
    text = "\n".join(lines).encode("utf-8")
    return hmac.digest(secret.encode("utf-8", "surrogateescape"), text, "sha256").hex()
