"""Payloads on the wire: codec envelopes, bare blobs, and plain JSON."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from penstock.core import payload_codec
from penstock.core.external_payloads import ENVELOPE_KEY, envelope, read_reference
from penstock.core.model import Blob
from penstock.core.payload_codec import DEPTH_MAX, Unencodable, decode, unframe
from penstock.errors import InvalidInput, ValidationFailed

__all__ = ["CODEC", "DEPTH_MAX", "Payload", "decode", "encode", "parse", "parse_value"]

CODEC: Final = "avro"
_BLOB_PREFIX: Final = "wwHioz3/VYAiN"
_ENVELOPE_KEYS: Final = {"codec", "blob"}
_REFERENCE_KEYS: Final = {"codec", ENVELOPE_KEY}
_ADDRESS_KEY: Final = "external_storage"
_EXTERNAL_KEYS: Final = (_ADDRESS_KEY, ENVELOPE_KEY)


class Payload(Struct, frozen=True):
    """An encoded value that the server passes on without decoding it, or the reference to one kept elsewhere."""

    codec: str
    blob: str

    def envelope(self) -> dict[str, Any]:
        """The envelope that workers and clients receive."""
        return envelope(Blob(self.blob))


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


def is_blob(text: str) -> bool:
    """Whether a text begins as an encoded payload does."""
    return text.startswith(_BLOB_PREFIX) and text.isascii()


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
    if value.keys() == _REFERENCE_KEYS:
        reference = read_reference(value[ENVELOPE_KEY])
        if reference is None:
            raise _refused(f"{field}.{ENVELOPE_KEY}", "must be a reference that this server has given out")
        return Payload(CODEC, reference.blob)
    if _ADDRESS_KEY in value:
        raise _refused(
            field,
            "is an address in external storage, and this server follows no addresses. Upload the payload "
            "to /api/external-payloads/v1 and send the reference that it answers",
        )
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
