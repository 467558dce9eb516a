"""Payloads on the wire: codec envelopes, bare blobs, and plain JSON."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.core import payload_codec
from penstock.core.payload_codec import DEPTH_MAX, Unencodable, decode, unframe
from penstock.errors import InvalidInput, ValidationFailed

__all__ = ["CODEC", "DEPTH_MAX", "Payload", "decode", "encode", "parse", "parse_value"]

CODEC: Final = "avro"
_BLOB_PREFIX: Final = "wwHioz3/VYAiN"
_ENVELOPE_KEYS: Final = {"codec", "blob"}
_EXTERNAL_KEYS: Final = ("external_storage", "external_payload")


class Payload(Struct, frozen=True):
    """An encoded value that the server passes on without decoding it."""

    codec: str
    blob: str

    def envelope(self) -> dict[str, str]:
        """The envelope that workers and clients receive."""
        return {"codec": self.codec, "blob": self.blob}


def parse(value: object, field: str) -> Payload:
    """Parse an argument list: an envelope, a JSON list, one JSON object (its only argument) or nothing.

    Only the framing of an envelope is checked, so the cost is that of decoding base64. Raises
    `ValidationFailed` naming `field`.
    """
    if value is None:
        return encode([], field)
    if isinstance(value, list):
        return encode(value, field)
    if isinstance(value, dict):
        return _parse_envelope(value, field) if _is_envelope(value) else encode([value], field)
    raise _refused(field, 'must be a list of arguments or an envelope {"codec": "avro", "blob": "…"}')


def parse_value(value: object, field: str) -> Payload:
    """Parse a single value: an envelope, a bare blob, or plain JSON (null included).

    Raises `ValidationFailed` naming `field`.
    """
    if isinstance(value, dict) and _is_envelope(value):
        return _parse_envelope(value, field)
    if isinstance(value, str) and value.startswith(_BLOB_PREFIX):
        return _parse_blob(value, field)
    return encode(value, field)


def encode(value: object, field: str = "payload") -> Payload:
    """Encode None, bool, int (64 bit), finite float, bytes, str, list and dict with text keys.

    Anything else raises `ValidationFailed` naming `field`.
    """
    try:
        return Payload(CODEC, payload_codec.encode(value))
    except Unencodable as error:
        raise _refused(field, str(error)) from None


# Envelopes


def _is_envelope(value: dict[object, object]) -> bool:
    """Whether an object is meant as an envelope: it has `codec`, and a body or nothing else."""
    if "codec" not in value:
        return False
    return len(value) == 1 or "blob" in value or any(key in value for key in _EXTERNAL_KEYS)


def _parse_envelope(value: dict[object, object], field: str) -> Payload:
    if value["codec"] != CODEC:
        raise _refused(f"{field}.codec", 'must be "avro", the only codec this server accepts')
    if value.keys() == _ENVELOPE_KEYS:
        return _parse_blob(value["blob"], f"{field}.blob")
    if any(key in value for key in _EXTERNAL_KEYS):
        raise _refused(field, "refers to external storage, which this server does not support")
    raise _refused(field, "must be an envelope with exactly the keys codec and blob")


def _parse_blob(blob: object, field: str) -> Payload:
    if not isinstance(blob, str):
        raise _refused(field, "must be base64 text")
    try:
        unframe(blob)
    except InvalidInput as damage:
        raise _refused(field, f"is not an Avro payload: {damage.details['payload_error']}") from None
    return Payload(CODEC, blob)


def _refused(field: str, message: str) -> ValidationFailed:
    return ValidationFailed({field: [message]})
